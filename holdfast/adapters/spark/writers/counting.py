"""What counts in a lake, and where it lies: attempts by their marks, and parts that a compaction has put together.

A reader takes the marks first and the manifest after. What was replaced has lost its mark later than the manifest came,
so nothing is missed; and what is in both is taken from the part, so nothing is read twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.spark.writers.manifests import Manifests, Span
from holdfast.adapters.spark.writers.marks import Mark, Marks

if TYPE_CHECKING:
    from holdfast.adapters.spark.writers.files import Files


class Standing(NamedTuple):
    """Where the rows are."""

    marks: frozenset[Mark]  #: attempts that have folders of their own
    parts: tuple[Span, ...] = ()  #: those of all others that count


class Counting:
    """Of one lake.

    Args:
        files: the lake's.
        marks: the folder that has its marks.
    """

    def __init__(self, files: Files, marks: str) -> None:
        self.marks = Marks(files, marks)
        self.manifests = Manifests(files, marks)

    def all(self) -> Standing:
        """All that counts."""
        marks = self.marks.all()
        manifest = self.manifests.holding()
        if manifest is None:
            return Standing(frozenset(marks))
        return Standing(frozenset(marks - self.manifests.attempts(manifest.pages, marks)), manifest.parts)

    def of(self, query: str, batch: int) -> tuple[set[Mark], set[Mark], tuple[Span, ...]]:
        """Finished attempts at one batch: those with folders of their own, those in parts, and the parts."""
        marks = self.marks.of(query, batch)
        manifest = self.manifests.holding()
        if manifest is None:
            return marks, set(), ()
        near = [Mark(query, batch, "")]
        inside = {mark for mark in self.manifests.attempts(manifest.pages, near) if mark.batch == batch}
        parts = [part for part in manifest.parts if part.query == query and part.first <= batch <= part.last]
        return marks - inside, inside, tuple(parts)

    def has(self, mark: Mark) -> bool:
        """Whether the attempt is finished."""
        if self.marks.has(mark):
            return True
        manifest = self.manifests.holding()
        return manifest is not None and mark in self.manifests.attempts(manifest.pages, [mark])
