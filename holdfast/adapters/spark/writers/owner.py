"""A lake belongs to one sink: <path>/_holdfast/_sinks/<name>, an empty file.

Of two sinks in one lake each would take the other's unfinished rows for left over, and the other's finished batches for
its own: their fences are not of one row.

Nor may a lake have compacted files: earlier versions could put finished attempts together, and removed their marks
then. Here these would count as never written: readers would miss them, and a batch that comes again would be doubled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import SettingError

if TYPE_CHECKING:
    from holdfast.adapters.spark.writers.files import Files

_SINKS = "_sinks"
_COMPACTED = "_compacted"


def require_own(files: Files, marks: str, sink: str, path: str) -> None:
    """Check that the lake is this sink's; it becomes that, if it is no sink's yet.

    Args:
        files: the lake's.
        marks: the folder of the marks.
        sink: its name.
        path: of the lake, for texts.

    Raises:
        SettingError: it is another's, or was compacted by an earlier version.
    """
    require_plain(files, marks, path)
    there = _sinks(files, marks)
    if not there:
        files.touch(f"{marks}/{_SINKS}/{sink}")
        there = _sinks(files, marks)
        if there - {sink}:  # two that begin at the same time: each sees the other, or one of the two sees itself alone
            files.remove(f"{marks}/{_SINKS}/{sink}")
    if others := sorted(there - {sink}):
        raise SettingError(
            "path",
            path,
            f"belongs to sink {others[0]!r}, and sink {sink!r} would remove rows of it: give each sink a path of its "
            f"own. If the sink got another name, remove {path}/_holdfast/{_SINKS}/{others[0]}",
        )


def require_plain(files: Files, marks: str, path: str) -> None:
    """Raises SettingError: an earlier version has compacted the lake."""
    if files.found(f"{marks}/{_COMPACTED}/*"):
        raise SettingError(
            "path",
            path,
            "was compacted by an earlier version of holdfast, and this one would not see the compacted rows: let that "
            "version read the lake, and write its rows to a Delta table, or give the writer another path",
        )


def _sinks(files: Files, marks: str) -> set[str]:
    return {each.rpartition("/")[2] for each in files.found(f"{marks}/{_SINKS}/*")}
