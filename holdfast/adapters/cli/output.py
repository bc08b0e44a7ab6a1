"""Output of commands: tables for people, JSON for programs, progress beside both. Nothing else writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TextIO

from holdfast.adapters.cli.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Draws a terminal anew.
CLEAR = "\x1b[H\x1b[J"


class Output:
    """Results go to `out`, everything about how it goes to `err`.

    Args:
        as_json: results are JSON, one value a line; what is for people alone is left out.
    """

    def __init__(self, *, as_json: bool, out: TextIO, err: TextIO) -> None:
        self.as_json = as_json
        self._out, self._err = out, err
        self._progress: Progress | None = None

    def say(self, text: str = "") -> None:
        """A line of the result, for people."""
        if not self.as_json:
            self._clear()
            self._out.write(text + "\n")

    def json(self, value: object) -> None:
        """A line of the result, for programs."""
        if self.as_json:
            self._clear()
            self._out.write(json.dumps(value, ensure_ascii=False) + "\n")

    def note(self, text: str) -> None:
        """A line about the work, for people."""
        self._clear()
        self._err.write(text + "\n")
        self._err.flush()

    def table(self, names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Columns for people; numbers to the right."""
        cells = [[_cell(each) for each in row] for row in (names, *rows)]
        widths = [max(len(row[column][0]) for row in cells) for column in range(len(names))]
        right = [all(row[column][1] for row in cells[1:]) and len(cells) > 1 for column in range(len(names))]
        for row in cells:
            parts = [
                text.rjust(width) if to_right else text.ljust(width)
                for (text, _), width, to_right in zip(row, widths, right, strict=True)
            ]
            self.say("  ".join(parts).rstrip())

    def confirm(self, question: str, source: TextIO) -> bool | None:
        """Ask a person; None = there is none: `source` is no terminal."""
        if not source.isatty():
            return None
        self._err.write(f"{question} [y/N] ")
        self._err.flush()
        return source.readline().strip().lower() in ("y", "yes")

    def progress(self, what: str, total: int | None = None) -> Progress:
        """For work that may take long."""
        self._progress = Progress(self._err, what, total)
        return self._progress

    def _clear(self) -> None:
        if self._progress is not None:
            self._progress.clear()


def shown(text: str, at_most: int = 60) -> str:
    """Text of strangers (keys, error messages) on one line and without control characters, which a terminal obeys."""
    safe = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    return safe if len(safe) <= at_most else safe[: at_most - 1] + "…"


def of_bytes(value: bytes | None) -> dict[str, str | None]:
    """Bytes for JSON: as text where they are text, else in hex under another name."""
    if value is None:
        return {"text": None}
    try:
        return {"text": value.decode()}
    except UnicodeDecodeError:
        return {"hex": value.hex()}


def size(count: int) -> str:
    """Bytes for people."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"


def count(number: int, thing: str) -> str:
    """Such as "1 member", "2 members"."""
    return f"{number:,} {thing}{'s' * (number != 1)}"


def span(seconds: float) -> str:
    """A time's length for people, to the two largest units."""
    left = int(max(seconds, 0))
    parts: list[str] = []
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        if left >= unit or (name == "s" and not parts):
            parts.append(f"{left // unit}{name}")
            left %= unit
    return " ".join(parts[:2])


def _cell(value: Any) -> tuple[str, bool]:  # noqa: ANN401 - whatever a table shows
    if value is None:
        return "-", True
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}", True
    if isinstance(value, float):
        return f"{value:,.1f}", True
    return str(value), False
