"""A lake belongs to one sink: <path>/_holdfast/_sinks/<name>, an empty file.

Of two sinks in one lake each would take the other's unfinished rows for left over, and the other's finished batches for
its own: their fences are not of one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import SettingError

if TYPE_CHECKING:
    from holdfast.adapters.spark.writers.files import Files

_SINKS = "_sinks"


def require_own(files: Files, marks: str, sink: str, path: str) -> None:
    """Whether the lake is this sink's; it becomes that, if it is no sink's yet.

    Args:
        files: the lake's.
        marks: the folder of the marks.
        sink: its name.
        path: of the lake, for texts.

    Raises:
        SettingError: it is another's.
    """
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


def _sinks(files: Files, marks: str) -> set[str]:
    return {each.rpartition("/")[2] for each in files.found(f"{marks}/{_SINKS}/*")}
