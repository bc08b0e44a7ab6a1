"""Rows that count in a lake, and where they lie: attempts by their marks, and parts that a compaction has put together.

Which were put together, and where: a manifest for each compaction, of which the last one holds.

    <path>/_holdfast/_compacted/<name>.json             all parts that are to be read, and all pages
    <path>/_holdfast/_compacted/<name>.<query>.page     the attempts whose rows this compaction has put into a part
    <path>/_holdfast/_compacted/<name>.finished         empty: the compaction is finished
    <path>/hf_query=<query>/hf_batch=<last of it>/hf_attempt=<name>/...    a part

A name has its compaction's fence in it, and begins with another letter than an attempt's: whoever removes attempts
passes over it. A manifest counts once it is marked. It says all that the ones before it have said, so of those that
count the one with the highest fence holds, alone: readers go from the attempts to the part in one step, and one
that comes late changes nothing. Pages are written once, and later manifests name them, so each has a few lines, however
old the lake is.

A reader takes the marks first and the manifest after. What was replaced has lost its mark later than the manifest came,
so nothing is missed; and what is in both is taken from the part, so nothing is read twice.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.spark._pyspark import SPARK_ERRORS
from holdfast.adapters.spark.writers.marks import Mark, Marks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.adapters.spark.writers.files import Files
    from holdfast.dedup.spark_batches import Attempt

_NAME = re.compile(r"c(\d+)-[^.]+")
_MANIFEST, _MARK = ".json", ".finished"


def name_of(attempt: Attempt) -> str:
    """The name of that attempt's compaction."""
    return f"c{attempt.fence}-{attempt.session}"


def fence_of(name: str) -> int:
    """Of a compaction: of two the one that began later has the higher one."""
    return int(name[1:].partition("-")[0])


class Span(NamedTuple):
    """Batches of a query: a part that has their rows, or a page that has their attempts. None of other queries."""

    query: str
    first: int
    last: int
    name: str  #: of the compaction that wrote it

    @property
    def folder(self) -> str:
        """Of a part, below the lake's."""
        return f"hf_query={self.query}/hf_batch={self.last}/hf_attempt={self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Of one compaction, and of all before it."""

    name: str
    parts: tuple[Span, ...] = ()
    pages: tuple[Span, ...] = ()


class Manifests:
    """The manifests of a lake.

    Args:
        files: the lake's.
        marks: the folder that has its marks.
    """

    def __init__(self, files: Files, marks: str) -> None:
        self._files = files
        self._folder = f"{marks}/_compacted"

    def names(self) -> tuple[list[str], list[str]]:
        """Of compactions that are finished, and of those that are not, each in their order. By one listing."""
        there = {path.rpartition("/")[2] for path in self._files.found(f"{self._folder}/*")}
        named = {each.removesuffix(_MANIFEST) for each in there if each.endswith(_MANIFEST)}
        ordered = sorted((each for each in named if _NAME.fullmatch(each)), key=fence_of)
        finished = [each for each in ordered if each + _MARK in there]
        return finished, [each for each in ordered if each + _MARK not in there]

    def holding(self) -> Manifest | None:
        """The one that says what is to be read; None: nothing was ever put together."""
        while finished := self.names()[0]:
            try:
                return self.read(finished[-1])
            except (*SPARK_ERRORS, OSError):
                if self.names()[0][-1:] == finished[-1:]:
                    raise  # it cannot be read. Else another one holds by now, and this one was removed
        return None

    def read(self, name: str) -> Manifest:
        """One of them. Raises ValueError: it was cut off, which one that is finished never is."""
        found = json.loads(self._files.text(self._at(name, _MANIFEST)))
        parts, pages = ([Span(*each) for each in found[what]] for what in ("parts", "pages"))
        return Manifest(name=name, parts=tuple(parts), pages=tuple(pages))

    def known(self) -> tuple[list[Manifest], list[Manifest]]:
        """The manifests of `names`, read: all of one listing, made anew where one was removed meanwhile."""
        while True:
            finished, begun = self.names()
            try:
                return [self.read(name) for name in finished], [self.begun(name) for name in begun]
            except (*SPARK_ERRORS, OSError):
                if self.names() == (finished, begun):
                    raise

    def begun(self, name: str) -> Manifest:
        """One that is not finished. If its driver died while it was written, it never came to a part."""
        try:
            return self.read(name)
        except ValueError:
            return Manifest(name=name)

    def attempts(self, pages: Iterable[Span], near: Iterable[Mark]) -> set[Mark]:
        """The attempts whose rows are in parts, as these pages say. Pages are read that have batches of `near`, and no
        others."""
        wanted = defaultdict(set)
        for mark in near:
            wanted[mark.query].add(mark.batch)
        found = set()
        for page in pages:
            if any(page.first <= batch <= page.last for batch in wanted[page.query]):
                there = json.loads(self._files.text(self._page(page)))
                found |= {Mark(page.query, batch, attempt) for batch, attempt in there}
        return found

    def write(self, manifest: Manifest, attempts: Iterable[Mark]) -> None:
        """A manifest that does not count yet; its own pages, which have these attempts, before it."""
        for page in manifest.pages:
            if page.name == manifest.name:
                own = sorted((mark.batch, mark.attempt) for mark in attempts if mark.query == page.query)
                self._files.write(self._page(page), json.dumps(own))
        self._files.write(
            self._at(manifest.name, _MANIFEST), json.dumps({"parts": manifest.parts, "pages": manifest.pages})
        )

    def finish(self, name: str) -> None:
        """Let a manifest count from now on. One that was never written, or was removed, does not."""
        if self._files.found(self._at(name, _MANIFEST)):
            self._files.touch(self._at(name, _MARK))

    def since_ms(self, name: str, *, finished: bool) -> int:
        """When it was marked, or written if it is not. By the clock of the file system, as all such times here."""
        return self._files.modified_ms(self._at(name, _MARK if finished else _MANIFEST))

    def remove(self, name: str, but: Iterable[Span]) -> None:
        """All of it, except for these pages. First of all it ends to count, and last of all it ends to be found."""
        kept = {self._page(page).rpartition("/")[2] for page in but}
        self._files.remove(self._at(name, _MARK))
        for path in self._files.found(self._at(name, ".*.page")):
            if path.rpartition("/")[2] not in kept:
                self._files.remove(path)
        self._files.remove(self._at(name, _MANIFEST))

    def _page(self, page: Span) -> str:
        return self._at(page.name, f".{page.query}.page")

    def _at(self, name: str, what: str) -> str:
        return f"{self._folder}/{name}{what}"


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
