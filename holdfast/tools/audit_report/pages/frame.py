"""Parts of every picture: a time axis from left to right, a value axis, rebalances across, and the SVG around it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from holdfast.tools.audit_report.pages.style import HATCH, MOST_COLOURS, PICTURE
from holdfast.tools.svg import LETTER, clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from holdfast.tools.audit_report.pages.model import Rebalance

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 960, 150, 14, 26, 24
#: More rebalances than that are marked above alone, without numbers; more than that are not marked.
_MOST_NUMBERS, _MOST_MARKS = 40, 400
#: The least distance between the numbers of rebalances.
_NUMBER_PX = 16
_LABEL_LETTERS = 20
_STEPS_S = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800),
    *(3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000),
)
_MOST_TICKS = 9
#: Half of a clock time's width.
_CLOCK_PX = 24


class Picture(NamedTuple):
    """One of them: an SVG for a page that has the style, or to stand alone."""

    name: str
    title: str
    #: The picture in words, for screen readers.
    words: str
    height: float
    shapes: Sequence[str]

    def inline(self, prefix: str) -> str:
        """Inside a page that has the style and the hatch. `prefix`: makes its ids unique there."""
        return "\n".join([self._head(f"{prefix}{self.name}"), *self.shapes, "</svg>"])

    def alone(self) -> str:
        """A file of its own."""
        style = PICTURE.replace(":root", "svg.audit")
        ground = f'<rect class="ground" width="{WIDTH}" height="{self.height:g}"/>'
        return "\n".join([self._head(self.name), f"<style>{style}</style>{HATCH}", ground, *self.shapes, "</svg>", ""])

    def _head(self, name: str) -> str:
        return (
            f'<svg class="audit" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height:g}" '
            f'width="{WIDTH}" height="{self.height:g}" role="img" aria-labelledby="{name}-title {name}-words">'
            f'<title id="{name}-title">{clean(self.title)}</title><desc id="{name}-words">{clean(self.words)}</desc>'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The time axis of all pictures of a group."""

    from_ms: int
    to_ms: int

    def x(self, at_ms: float) -> float:
        """Where a moment is; at an edge if it is beyond."""
        share = (at_ms - self.from_ms) / max(self.to_ms - self.from_ms, 1)
        return LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - RIGHT)

    def axis(self, top: float, bottom: float) -> Iterator[str]:
        """Lines down, and clock times (UTC) below."""
        span_s = max(self.to_ms - self.from_ms, 1) / 1000
        step_s = next((each for each in _STEPS_S if span_s / each <= _MOST_TICKS), _STEPS_S[-1])
        lines, words = [], []
        at = math.ceil(self.from_ms / 1000 / step_s)
        while (at_ms := at * step_s * 1000) <= self.to_ms:
            x = self.x(at_ms)
            lines.append(f"M{x:.1f} {top:g}V{bottom:g}")
            anchor = "middle" if x < WIDTH - RIGHT - _CLOCK_PX else "end"
            words.append(label(x, bottom + 15, _moment(at_ms, step_s), f'text-anchor="{anchor}"', faint=True))
            at += 1
        yield f'<path class="grid" d="{"".join(lines)}"/>'
        yield f'<path class="axis" d="M{LEFT} {bottom:g}H{WIDTH - RIGHT}"/>'
        yield from words

    def marks(self, rebalances: Sequence[Rebalance], top: float, bottom: float) -> Iterator[str]:
        """A dashed line each, its number above, and behind it the time in which the group stood still."""
        some = rebalances[:_MOST_MARKS]
        for each in some:
            if each.stop_s and each.stop_from_ms is not None:
                left = self.x(each.stop_from_ms)
                right = self.x(each.stop_from_ms + each.stop_s * 1000)
                tip = f"rebalance {each.number}: no member finished a record for {each.stop_s:.1f} s"
                yield bar(left, top, max(right - left, 1), bottom - top, "stop", tip=tip)
        few = len(rebalances) <= _MOST_NUMBERS
        lines = [f"M{self.x(each.began_ms):.1f} {top - 6:g}V{bottom if few else top:g}" for each in some]
        if lines:
            yield f'<path class="rebalance" d="{"".join(lines)}"/>'
        last = -math.inf
        for each in some if few else ():
            x = self.x(each.began_ms)
            if x - last >= _NUMBER_PX:
                yield label(x, top - 10, str(each.number), 'text-anchor="middle"', faint=True)
                last = x


def _moment(at_ms: float, step_s: float) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    if step_s >= 86_400:
        return f"{at:%b} {at.day}"
    if step_s >= 60:
        return f"{at:%b} {at.day}" if (at.hour, at.minute) == (0, 0) else f"{at:%H:%M}"
    return f"{at:%H:%M:%S}" + (f".{at.microsecond // 1000:03d}" if step_s < 1 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """A value axis from 0 up."""

    most: float
    top: float
    bottom: float

    @staticmethod
    def up_to(most: float, top: float, bottom: float) -> Values:
        """To a round number above."""
        step = _round_up(max(most, 1.0) / 4)
        return Values(most=math.ceil(max(most, 1.0) / step) * step, top=top, bottom=bottom)

    def y(self, value: float) -> float:
        """Where a value is."""
        return self.bottom - min(max(value / self.most, 0.0), 1.0) * (self.bottom - self.top)

    def axis(self) -> Iterator[str]:
        """Lines across, and numbers to the left."""
        step = _round_up(self.most / 4)
        at = 0.0
        lines = []
        while at <= self.most:
            y = self.y(at)
            lines.append(f"M{LEFT} {y:.1f}H{WIDTH - RIGHT}")
            yield label(LEFT - 8, y + 4, short(at), 'text-anchor="end"', faint=True)
            at += step
        yield f'<path class="grid" d="{"".join(lines)}"/>'


def _round_up(value: float) -> float:
    """1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * 0.999)


def short(value: float) -> str:
    """Such as 12, 3.5k, 2M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.3g}{name}"
    return f"{value:.3g}"


def label(x: float, y: float, words: str, look: str = "", *, faint: bool = False, tip: str = "") -> str:
    """One line of text; `tip` is shown under the pointer."""
    told = f"<title>{clean(tip)}</title>" if tip and tip != words else ""
    kind = ' class="faint"' if faint else ""
    return f'<text x="{x:.1f}" y="{y:g}"{kind}{" " + look if look else ""}>{clean(words)}{told}</text>'


def name_at_left(y: float, name: str) -> str:
    """A row's name, in what room there is: names differ at their ends as often as at their beginnings."""
    half = _LABEL_LETTERS // 2
    said = name if len(name) <= _LABEL_LETTERS else f"{name[: half - 1]}…{name[-half:]}"
    return label(LEFT - 8, y, said, 'text-anchor="end"', tip=name)


def bar(x: float, y: float, width: float, height: float, kind: str, *, tip: str = "") -> str:
    """A rectangle of a class."""
    head = f'<rect class="{kind}" x="{x:.1f}" y="{y:g}" width="{width:.1f}" height="{height:g}"'
    return f"{head}><title>{clean(tip)}</title></rect>" if tip else f"{head}/>"


def colour(place: int) -> str:
    """The class of a member, by its place among the names."""
    return f"m{place % MOST_COLOURS}"


def legend(y: float, entries: Iterable[tuple[str, str]]) -> tuple[list[str], float]:
    """(class, words) in lines below a picture; its shapes, and where it ends."""
    shapes: list[str] = []
    x = float(LEFT)
    for kind, words in entries:
        wide = 18 + len(words) * LETTER + 14
        if x > LEFT and x + wide > WIDTH - RIGHT:
            x, y = float(LEFT), y + 18
        shapes += [bar(x, y, 12, 10, kind), label(x + 18, y + 9, words)]
        x += wide
    return shapes, y + 18


def runs(values: Sequence[float | None]) -> Iterator[tuple[int, int]]:
    """From, to (exclusive) of the parts without None."""
    edges = [-1, *(i for i, value in enumerate(values) if value is None), len(values)]
    for before, after in pairwise(edges):
        if after - before > 1:
            yield before + 1, after
