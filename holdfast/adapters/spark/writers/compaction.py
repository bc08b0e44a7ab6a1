"""A lake's many small files put together into few: START at `Compaction`, whose methods are the steps in their order.

The rows of finished attempts are copied into a part, and a manifest says so: see counting.py. It counts when Redis has
finished the compaction's own attempt, which it refuses if another compaction has begun, and when it is marked then; the
next compaction marks it where the driver died before that. So whatever dies, or stands still and goes on late, readers
have the attempts or the part.

What was replaced stays for a while, for readers that have looked before. A compaction removes what those before it have
replaced, and only once its own manifest counts: then none that comes late can hold instead, and go back to what was
removed. An attempt's mark goes after its folder: where it dies between the two, the next one finds it by the mark.

The attempts at the last batch of each query stay as they are: that batch alone may come again.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.adapters.spark.writers.counting import Counting, Manifest, Span, Standing, fence_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.adapters.spark.writers.files import Files
    from holdfast.adapters.spark.writers.marks import Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """The result of a compaction."""

    path: str
    attempts: int = 0  #: whose rows are in a part from now on
    parts: tuple[str, ...] = ()  #: folders that were written
    removed: tuple[str, ...] = ()  #: folders of attempts and parts that earlier compactions have replaced


class Compaction:
    """One of them.

    Args:
        files: the lake's.
        path: of the lake.
        marks: the folder that has its marks.
        name: of this compaction.
        grace_s: for how long what was replaced stays.
        small: bytes; a part that has less is put together with what came since.
    """

    def __init__(self, files: Files, path: str, marks: str, name: str, *, grace_s: float, small: int) -> None:
        self._files = files
        self._path = path
        self._counting = Counting(files, marks)
        self._grace_ms = int(grace_s * 1000)
        self._small = small
        self._marks: set[Mark] = set()
        self._jobs: list[tuple[Standing, Span]] = []
        self._before = Manifest(name="")
        self._own = Manifest(name=name)

    def look(self) -> bool:
        """1. What there is. False: nothing to put together, and nothing to remove."""
        manifests = self._counting.manifests
        self._marks = self._counting.marks.all()
        self._before = manifests.holding() or self._before
        replaced = manifests.attempts(self._before.pages, self._marks)
        by_query: dict[str, set[Mark]] = defaultdict(set)
        for mark in self._marks:
            by_query[mark.query].add(mark)
        for query, marks in sorted(by_query.items()):
            last = max(mark.batch for mark in marks)
            self._plan(query, frozenset(mark for mark in marks - replaced if mark.batch < last))
        finished, begun = manifests.known()
        parts = {part for each in finished for part in each.parts}
        return bool(self._jobs or replaced or begun or parts - set(self._before.parts))

    def write(self, copy: Callable[[Standing, str], None]) -> None:
        """2. The manifest, which does not count yet and says what is to be removed if it never does; then the parts.

        Args:
            copy: the rows of these attempts and parts, into that folder.
        """
        new = [to for _, to in self._jobs]
        gone = {part for sources, _ in self._jobs for part in sources.parts}
        pages = []
        for sources, to in self._jobs:
            batches = [mark.batch for mark in sources.marks]
            pages.append(Span(to.query, min(batches), max(batches), self._own.name))
        self._own = Manifest(
            name=self._own.name,
            parts=tuple(part for part in self._before.parts if part not in gone) + tuple(new),
            pages=(*self._before.pages, *pages),
        )
        self._counting.manifests.write(self._own, [mark for sources, _ in self._jobs for mark in sources.marks])
        for sources, to in self._jobs:
            copy(sources, f"{self._path}/{to.folder}")

    def mark(self) -> None:
        """3. After Redis' finish: it counts."""
        self._counting.manifests.finish(self._own.name)

    def remove(self) -> Compacted:
        """4. What readers do not look at any more."""
        manifests = self._counting.manifests
        now_ms = manifests.since_ms(self._own.name, finished=False)

        def over(manifest: Manifest, *, finished: bool) -> bool:
            return manifests.since_ms(manifest.name, finished=finished) + self._grace_ms <= now_ms

        finished, begun = manifests.known()
        earlier = [each for each in finished if fence_of(each.name) < fence_of(self._own.name)]
        settled = next((each for each in reversed(earlier) if over(each, finished=True)), None)
        removed = self._remove_attempts(settled) if settled else []
        gone = earlier[: earlier.index(settled)] if settled else []
        kept = [each for each in finished if each not in gone]
        dead = [each for each in begun if fence_of(each.name) < fence_of(self._own.name)]
        gone += [each for each in dead if over(each, finished=False)]
        removed += self._remove_parts(gone, kept)
        return Compacted(
            path=self._path,
            attempts=sum(len(sources.marks) for sources, _ in self._jobs),
            parts=tuple(f"{self._path}/{to.folder}" for _, to in self._jobs),
            removed=tuple(removed),
        )

    def _plan(self, query: str, marks: frozenset[Mark]) -> None:
        if not marks:
            return
        parts = [
            part
            for part in self._before.parts
            if part.query == query and self._files.size(f"{self._path}/{part.folder}") < self._small
        ]
        if len(marks) + len(parts) > 1:
            batches = [mark.batch for mark in marks] + [each for part in parts for each in (part.first, part.last)]
            to = Span(query, min(batches), max(batches), self._own.name)
            self._jobs.append((Standing(marks, tuple(parts)), to))

    def _remove_attempts(self, settled: Manifest) -> list[str]:
        pages = set(settled.pages) & set(self._own.pages)
        removed = []
        for mark in sorted(self._marks & self._counting.manifests.attempts(pages, self._marks)):
            folder = f"{self._path}/{mark.folder}"
            self._files.remove(folder)
            self._files.remove_if_empty(folder.rpartition("/")[0])
            self._counting.marks.remove(mark)
            removed.append(folder)
        return removed

    def _remove_parts(self, gone: Iterable[Manifest], kept: list[Manifest]) -> list[str]:
        parts = {part for each in kept for part in each.parts}
        pages = {page for each in kept for page in each.pages}
        removed = []
        for manifest in gone:
            for part in sorted(set(manifest.parts) - parts):
                folder = f"{self._path}/{part.folder}"
                if self._files.found(folder):
                    self._files.remove(folder)
                    self._files.remove_if_empty(folder.rpartition("/")[0])
                    removed.append(folder)
            self._counting.manifests.remove(manifest.name, pages)
        return removed
