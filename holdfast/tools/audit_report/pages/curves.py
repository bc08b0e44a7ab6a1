"""Lag and intake over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.tools.audit_report.pages.frame import TOP, Picture, Times, Values, bar, colour, legend, runs, short
from holdfast.tools.audit_report.pages.words import clock, long
from holdfast.tools.svg import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.tools.audit_report.pages.model import Curves, GroupAudit, Series

_HEIGHT = 190


def lag(group: GroupAudit, times: Times) -> Picture | None:
    """The group's lag as an area, the partitions that were furthest behind as lines. None: nothing is known."""
    curves = group.lag
    if curves is None or not curves.series:
        return None
    total, *worst = curves.series
    known = [value for value in total.values if value is not None]
    if not known:
        return None
    plot = _Plot(curves, times, Values.up_to(max(known), TOP, TOP + _HEIGHT))
    shapes = [*plot.frame(), *plot.area(total)]
    for i, series in enumerate(worst):
        shapes += plot.line(series, colour(i))
    shapes += times.marks(group.rebalances.rows, TOP, plot.values.bottom)
    entries = [("total", total.name), *((colour(i), series.name) for i, series in enumerate(worst))]
    key, end = legend(plot.values.bottom + 28, entries)
    most = max(known)
    at = curves.from_ms + total.values.index(most) * curves.step_ms
    words = (
        f"At most {short(most)} records behind, at {clock(at)}; {short(known[-1])} at the end. "
        "Lag is the log's end less the group's position, as members have said them."
    )
    return Picture("lag", f"Lag of {group.group}, in records", words, end, [*shapes, *key])


def intake(group: GroupAudit, times: Times) -> Picture | None:
    """Records ended a second, members stacked. None: nothing is known."""
    curves = group.intake
    if curves is None or not curves.series:
        return None
    layers = [[value or 0.0 for value in series.values] for series in curves.series]
    sums = [sum(each) for each in zip(*layers, strict=True)]
    peak = max(sums, default=0.0)
    plot = _Plot(curves, times, Values.up_to(peak, TOP, TOP + _HEIGHT))
    shapes = [*plot.frame()]
    below = [0.0] * len(sums)
    entries = []
    for series, layer in zip(curves.series, layers, strict=True):
        kind = colour(group.members.index(series.name)) if series.name in group.members else "rest"
        entries.append((kind, series.name))
        above = [low + more for low, more in zip(below, layer, strict=True)]
        shapes += plot.layer(series.name, kind, below, above)
        below = above
    shapes += times.marks(group.rebalances.rows, TOP, plot.values.bottom)
    key, end = legend(plot.values.bottom + 28, entries)
    words = f"At most {short(peak)} a second, in steps of {long(curves.step_ms / 1000)}; members are stacked."
    return Picture("intake", f"Records finished per second in {group.group}, by member", words, end, [*shapes, *key])


class _Plot(NamedTuple):
    """Values at even steps, between two axes."""

    curves: Curves
    times: Times
    values: Values

    def frame(self) -> Iterator[str]:
        yield from self.times.axis(TOP, self.values.bottom)
        yield from self.values.axis()

    def area(self, series: Series) -> Iterator[str]:
        bottom = self.values.bottom
        for points in self._parts(series):
            left, right = points[0].split()[0], points[-1].split()[0]
            yield f'<path class="total" d="M{left} {bottom:g}L{"L".join(points)}L{right} {bottom:g}Z"/>'

    def line(self, series: Series, kind: str) -> Iterator[str]:
        for points in self._parts(series):
            if len(points) == 1:
                x, y = map(float, points[0].split())
                yield bar(x - 1.5, y - 1.5, 3, 3, kind)
            else:
                yield f'<path class="curve {kind}" d="M{"L".join(points)}"/>'

    def layer(self, name: str, kind: str, below: Sequence[float], above: Sequence[float]) -> Iterator[str]:
        """Draw a member's part on top of those below it, step by step."""
        there = [high if high > low else None for low, high in zip(below, above, strict=True)]
        y = self.values.y
        for first, following in runs(there):
            edges = [self._x(i) for i in range(first, following + 1)]
            tops = [f"V{y(above[first + i]):.1f}H{x:.1f}" for i, x in enumerate(edges[1:])]
            feet = [f"V{y(below[following - 1 - i]):.1f}H{x:.1f}" for i, x in enumerate(reversed(edges[:-1]))]
            shape = f"M{edges[0]:.1f} {y(below[first]):.1f}{''.join(tops)}{''.join(feet)}Z"
            yield f'<path class="{kind}" d="{shape}"><title>{clean(name)}</title></path>'

    def _x(self, step: float) -> float:
        return self.times.x(self.curves.from_ms + step * self.curves.step_ms)

    def _parts(self, series: Series) -> Iterator[list[str]]:
        for first, following in runs(series.values):
            yield [
                f"{self._x(i + 0.5):.1f} {self.values.y(series.values[i] or 0.0):.1f}" for i in range(first, following)
            ]
