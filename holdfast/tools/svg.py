"""The few shapes that pictures of plans are made of, as SVG. All text is escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

INK, FAINT, LINE = "#1f2328", "#6a737d", "#d8dee4"
#: Advance of a letter, generously: pictures are laid out without knowing the font.
LETTER = 7


def document(width: int, height: int, title: str, shapes: Iterable[str]) -> str:
    """The whole of it, on white: it is looked at on dark pages too."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" font-family="Helvetica, Arial, sans-serif" font-size="12" fill="{INK}">'
    )
    ground = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, f"<title>{clean(title)}</title>", ground, *shapes, "</svg>", ""])


def text(x: int, y: int, words: str, look: str = "", *, tip: str = "") -> str:
    """One line of text; `tip`, if it says more, is shown under the pointer."""
    told = f"<title>{clean(tip)}</title>" if tip and tip != words else ""
    return f'<text x="{x}" y="{y}"{" " + look if look else ""}>{clean(words)}{told}</text>'


def box(x: int, y: int, width: int, height: int, look: str, *, tip: str = "") -> str:
    """A rectangle."""
    told = f"<title>{clean(tip)}</title>" if tip else ""
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="2" {look}>{told}</rect>'


def line(left: int, right: int, y: int) -> str:
    """A thin one, from left to right."""
    return f'<path d="M{left} {y}H{right}" stroke="{LINE}"/>'


def clean(words: str) -> str:
    """XML has no control characters, not even escaped ones."""
    return escape("".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in words))
