"""Story: what happened in a scripted world, as a person can read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

#: So many lines a failure shows in full; of a longer story it shows what is about its subject, and what the test did.
_LINES = 60


class Line(NamedTuple):
    """One thing that happened."""

    at_s: float
    who: str
    what: str
    #: What members do all the time: shown where it is about what is told, or where all is.
    daily: bool = False

    def __str__(self) -> str:
        return f"  {self.at_s:9.3f} s  {self.who:7} {self.what}"


class Story:
    """Lines, in the order of time."""

    def __init__(self, seed: int, now: Callable[[], float]) -> None:
        self._seed, self._now = seed, now
        self.lines: list[Line] = []

    def add(self, who: str, what: str, *, daily: bool = False) -> None:
        """Tell something that happened now."""
        self.lines.append(Line(self._now(), who, what, daily))

    def whole(self) -> str:
        """All of it."""
        return "\n".join(map(str, self.lines))

    def failure(self, said: str, about: Collection[str] = ()) -> AssertionError:
        """The error that a test fails with.

        Args:
            said: what is broken.
            about: words of the lines that tell how.
        """
        lines = self._of(about)
        left_out = len(self.lines) - len(lines)
        shown = "\n".join(map(str, lines))
        more = f"\n  ({left_out} lines are left out; world.story has them all)" if left_out else ""
        return AssertionError(f"{said}\nWhat happened (seed {self._seed}):\n{shown}{more}")

    def _of(self, about: Collection[str]) -> Sequence[Line]:
        if len(self.lines) <= _LINES:
            return self.lines
        told = [line for line in self.lines if not line.daily or _is_about(line, about)]
        return told if len(told) <= _LINES else [*told[: _LINES // 2], *told[-_LINES // 2 :]]


def _is_about(line: Line, about: Collection[str]) -> bool:
    what = line.what.replace(",", " ") + " "
    return any(f"{word} " in what for word in about)
