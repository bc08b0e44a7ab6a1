"""The owner of a lake: each belongs to one sink, named by an empty file <path>/_holdfast/_sinks/<name>.

Two sinks in one lake would remove each other's unfinished rows as orphans, and take each other's finished batches for
their own: their fences cannot be compared.

A lake must not have compacted files either. Earlier versions could merge finished attempts, and removed their marks.
This version would take their rows for unfinished: readers would miss them, and a replayed batch would be doubled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import SettingError

if TYPE_CHECKING:
    from holdfast.adapters.spark.writers.files import Files

_SINKS = "_sinks"
_COMPACTED = "_compacted"


def require_own(files: Files, marks: str, sink: str, path: str) -> None:
    """Check that the lake belongs to this sink. A lake without an owner becomes this sink's.

    Args:
        files: the lake's file system.
        marks: the folder of the marks.
        sink: the sink's name.
        path: the lake's path, for errors.

    Raises:
        SettingError: the lake belongs to another sink, or was compacted by an earlier version.
    """
    require_plain(files, marks, path)
    there = _sinks(files, marks)
    if not there:
        files.touch(f"{marks}/{_SINKS}/{sink}")
        there = _sinks(files, marks)
        if there - {sink}:  # two sinks have begun at the same time: at least one of them sees the other, and gives way
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
