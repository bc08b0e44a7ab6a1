"""Text for a terminal of some width: rows in columns, and sentences in lines. No word is cut, and nothing is left out.
Pure.

A table that is too wide keeps its order: the columns that find no room stand in lines of their own below each row, set
in, under names that are folded in the same way. Of these lines, one that would say nothing ("-") is left out.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

from holdfast.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_GAP = "  "


def table(names: Sequence[str], rows: Iterable[Sequence[object]], width: int | None) -> list[list[str]]:
    """The lines of the names, then those of each row; numbers to the right.

    Args:
        names: of the columns.
        rows: with a cell for each column.
        width: columns of the terminal; None: a row is one line, however long.
    """
    cells = [[_cell(each) for each in row] for row in (names, *rows)]
    widths = [max(columns(row[column][0]) for row in cells) for column in range(len(names))]
    right = [all(row[column][1] for row in cells[1:]) and len(cells) > 1 for column in range(len(names))]
    groups = _groups(widths, width)
    found = []
    for row in cells:
        padded = [_padded(row[column][0], widths[column], to_right=right[column]) for column in range(len(names))]
        lines = [_GAP.join(padded[first:end]).rstrip() for first, end in groups]
        folded = [_GAP + line for line in lines[1:] if line.strip(" -")]
        found.append([each for line in (lines[0], *folded) for each in wrapped(line, width, 2 * len(_GAP))])
    return found


def wrapped(text: str, width: int | None, hang: int) -> list[str]:
    """The text in lines; a word that is longer than a line has its own, and stays whole.

    Args:
        text: in one line.
        width: columns of the terminal; None: one line.
        hang: how far the lines behind the first are set in.
    """
    if width is None or columns(text) <= width:
        return [text]
    first, *others = text.lstrip(" ").split(" ")
    lines = [" " * (len(text) - len(text.lstrip(" "))) + first]
    for word in others:
        if not word or columns(lines[-1]) + 1 + columns(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(" " * hang + word)
    return [line.rstrip() for line in lines]


def columns(text: str) -> int:
    """How wide it is on a terminal: a Chinese letter takes two columns, an accent none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def _groups(widths: Sequence[int], width: int | None) -> list[tuple[int, int]]:
    """The columns of each line, from one to the one behind the last: as many as there is room for, one at least."""
    ends, used = [0], 0
    for column, each in enumerate(widths):
        needed = used + len(_GAP) + each if used else (len(_GAP) if len(ends) > 1 else 0) + each
        if width is not None and used and needed > width:
            ends.append(column)
            needed = len(_GAP) + each
        used = needed
    return list(zip(ends, [*ends[1:], len(widths)], strict=True))


def _padded(text: str, width: int, *, to_right: bool) -> str:
    space = " " * (width - columns(text))
    return space + text if to_right else text + space


def _cell(value: Any) -> tuple[str, bool]:  # noqa: ANN401 - whatever a table shows
    """The text, and whether it is a number."""
    if value is None:
        return "-", True
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}", True
    if isinstance(value, float):
        return f"{value:,.1f}", True
    return printable(str(value)), False
