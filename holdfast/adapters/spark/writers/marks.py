"""Marks: the finished attempts of a lake, an empty file for each, in folders for a thousand batches.

    <path>/_holdfast/<query>/<batch // 1000>/<batch>.<attempt>
    <path>/_holdfast/<query>/<batch>/<attempt>                    the form of earlier versions: read, never written

With a folder for each batch, a reader of the lake would need a listing for each batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.dedup.spark_batches import fence_of

if TYPE_CHECKING:
    from holdfast.adapters.spark.writers.files import Files

_TOGETHER = 1000


class Mark(NamedTuple):
    """The mark of a finished attempt."""

    query: str
    batch: int
    attempt: str

    @property
    def folder(self) -> str:
        """The folder of the attempt's rows, below the lake's."""
        return f"hf_query={self.query}/hf_batch={self.batch}/hf_attempt={self.attempt}"


class Marks:
    """The marks of a lake.

    Args:
        files: the lake's file system.
        folder: the folder of the marks.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder

    def all(self) -> set[Mark]:
        """All marks. Lists a folder for each query, and one for each thousand batches."""
        return self._found("*/*/*")

    def of(self, query: str, batch: int) -> set[Mark]:
        """The marks of attempts at one batch."""
        marks = self._found(f"{query}/{batch // _TOGETHER}/{batch}.*") | self._found(f"{query}/{batch}/a*")
        return {mark for mark in marks if mark.batch == batch}

    def add(self, mark: Mark) -> None:
        """Mark an attempt as finished. An existing mark stays."""
        query, batch, attempt = mark
        self._files.touch(f"{self._folder}/{query}/{batch // _TOGETHER}/{batch}.{attempt}")

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
