"""Which attempts of a lake are finished: an empty file each, a thousand batches to a folder.

    <path>/_holdfast/<query>/<batch // 1000>/<batch>.<attempt>
    <path>/_holdfast/<query>/<batch>/<attempt>                    the same, as it was before: read and never made

A folder for each batch would cost who reads the lake as many listings as it has batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.dedup.batches import fence_of

if TYPE_CHECKING:
    from holdfast.adapters.spark.writers.files import Files

_TOGETHER = 1000


class Mark(NamedTuple):
    """This attempt is finished."""

    query: str
    batch: int
    attempt: str


class Marks:
    """Those of a lake.

    Args:
        files: the lake's.
        folder: of the marks.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder

    def all(self) -> set[Mark]:
        """Every one of them. It lists a folder a query and one a thousand batches."""
        return self._found("*/*/*")

    def of(self, query: str, batch: int) -> set[Mark]:
        """Of attempts at one batch."""
        marks = self._found(f"{query}/{batch // _TOGETHER}/{batch}.*") | self._found(f"{query}/{batch}/a*")
        return {mark for mark in marks if mark.batch == batch}

    def has(self, mark: Mark) -> bool:
        """Whether the attempt is finished."""
        return bool(
            self._files.found(self._place(mark)) or self._files.found(f"{self._folder}/{'/'.join(map(str, mark))}")
        )

    def add(self, mark: Mark) -> None:
        """It is finished. One that is there stays."""
        self._files.touch(self._place(mark))

    def _place(self, mark: Mark) -> str:
        return f"{self._folder}/{mark.query}/{mark.batch // _TOGETHER}/{mark.batch}.{mark.attempt}"

    def _found(self, pattern: str) -> set[Mark]:
        marks = set()
        for path in self._files.found(f"{self._folder}/{pattern}"):
            query, above, name = path.rsplit("/", 3)[-3:]
            batch, _, attempt = name.partition(".")
            if batch.isdecimal() and fence_of(attempt) is not None:
                marks.add(Mark(query, int(batch), attempt))
            elif above.isdecimal() and fence_of(name) is not None:
                marks.add(Mark(query, int(above), name))
        return marks
