"""Story: the events of a scripted world, as lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

#: A failure shows a story of up to so many lines in full. Of a longer one it shows the lines about its subject, and
#: those that are not daily.
_LINES = 60


class Line(NamedTuple):
    """One event."""

    at_s: float
    who: str
    what: str
    #: An everyday event of a member: shown if it is about the failure's subject, or if the whole story is shown.
    daily: bool = False

    def __str__(self) -> str:
        return f"  {self.at_s:9.3f} s  {self.who:7} {self.what}"


class Story:
    """The lines of a world, in the order of time."""

    def __init__(self, seed: int, now: Callable[[], float]) -> None:
        self._seed, self._now = seed, now
        self.lines: list[Line] = []

    def add(self, who: str, what: str, *, daily: bool = False) -> None:
        """Add an event that happens now."""
        self.lines.append(Line(self._now(), who, what, daily))

    def whole(self) -> str:
        """All lines."""
        return "\n".join(map(str, self.lines))

    def failure(self, said: str, about: Collection[str] = ()) -> AssertionError:
        """The error that a test fails with.

        Args:
            said: which assertion failed.
            about: words; lines that contain one of them are shown.
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
