"""The runs over time, in one picture: who was alive, what was handled again, how much waited."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from examples.lab.group import Kind, Life
    from examples.lab.referee import Execution, Verdict

# Okabe and Ito's palette: told apart with all common kinds of colour blindness.
_ALIVE, _LAG, _AGAIN, _EVENT, _FROZEN = "#0072B2", "#56B4E9", "#D55E00", "#444444", "#999999"
_AGAIN_TEXT = "#A33F00"  # the same hue, dark enough to read
_SLOW = "#003B5C"
_STEP_S = 0.1
#: Repetitions that follow each other more closely have one label.
_TOGETHER_S = 5.0
#: A block as long as that has its label inside.
_WIDE_S = 7.0
#: Where the chart ends and the figures begin, as a part of the width.
_CHART = 0.775
#: The height of the labels of events, in levels, each of two lines of text.
_LEVELS, _LEVEL_PT = 2, 33
_LABELS_PT = 28
#: Text that lines pass behind.
_ON_WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the picture needs of one consumer. All times in seconds of the monotonic clock."""

    kind: Kind
    verdict: Verdict
    lives: Mapping[str, Sequence[Life]]


def draw(
    rows: Sequence[Row], events: Sequence[tuple[float, str]], *, origin: float, until: float, folder: Path
) -> list[Path]:
    """Write the picture as PNG and SVG; `origin` is what the x axis counts from."""
    with rc_context({"font.size": 11, "font.family": "DejaVu Sans", "svg.hashsalt": "holdfast"}):
        return _draw(rows, events, origin, until, folder)


def _draw(
    rows: Sequence[Row], events: Sequence[tuple[float, str]], origin: float, until: float, folder: Path
) -> list[Path]:
    height = 2.9 + 2.75 * len(rows)
    figure = Figure(figsize=(14, height))  # not by pyplot: it needs neither a display nor a global state
    FigureCanvasAgg(figure)
    # Above the rows: the title and the events' labels; below: the axis' label and the legend.
    outer = figure.add_gridspec(
        len(rows), 1, left=0.075, right=_CHART, top=1 - 2.2 / height, bottom=0.95 / height, hspace=0.32
    )
    highest = max((waiting for row in rows for at, waiting in row.verdict.lag if at >= origin), default=1)
    for place, row in enumerate(rows):
        inner = outer[place].subgridspec(2, 1, height_ratios=[1.35, 1.0], hspace=0.06)
        members, lag = figure.add_subplot(inner[0]), figure.add_subplot(inner[1])
        _draw_members(members, row, origin, until)
        _draw_waiting(lag, row, origin, until, highest)
        for axis in (members, lag):
            for at, _ in events:
                axis.axvline(at - origin, color=_EVENT, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
            axis.spines[["top", "right"]].set_visible(False)
            axis.set_xlim(-0.5, until - origin + 0.5)
        members.spines["bottom"].set_visible(False)
        members.tick_params(axis="x", bottom=False, labelbottom=False)
        if place == 0:
            _label_events(members, events, origin)
        if place < len(rows) - 1:
            lag.tick_params(axis="x", labelbottom=False)
        else:
            lag.set_xlabel("seconds since the first members' start")
        _write_figures(members, row.verdict, headed=place == 0)
    figure.text(
        0.012,
        1 - 0.2 / height,
        "What is done twice, and what is lost, when a consumer group changes",
        fontsize=17,
        va="top",
    )
    figure.text(
        0.012,
        1 - 0.55 / height,
        "Each row is a group of consumer processes. All groups get the same orders and live through the same events.",
        fontsize=11.5,
        va="top",
        color=_EVENT,
    )
    figure.align_ylabels()
    _draw_legend(figure)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "rebalance.png", folder / "rebalance.svg"]
    for path in written:
        figure.savefig(path, dpi=110)
    return written


def _draw_members(axis: Axes, row: Row, origin: float, until: float) -> None:
    names = sorted(row.lives)
    verdict = row.verdict
    for level, name in enumerate(names):
        lives = row.lives[name]
        for life in lives:
            _draw_life(axis, level, life, origin, until)
        for run in verdict.slow:
            if run.member == name:
                _block(axis, level, run.start - origin, _end_of(run, lives, until) - origin, _SLOW)
        again = [run for run in verdict.repetitions if run.member == name]
        for run in again:
            _block(axis, level, run.start - origin, _end_of(run, lives, until) - origin, _AGAIN)
        for cluster in _clusters(again):
            last = cluster[-1]
            wide = _end_of(last, lives, until) - last.start > _WIDE_S
            _label(axis, level, last.start - origin, f"{len(cluster):,} again", inside=wide)
        for run in verdict.losses:
            if run.member == name:
                _label(axis, level, _end_of(run, lives, until) - origin, "lost", shift=8)
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.55, -0.8)
    axis.set_ylabel("members")
    axis.tick_params(axis="y", length=0)
    title = axis.annotate(
        row.kind.title,
        (0, 1),
        xycoords="axes fraction",
        xytext=(0, 6),
        textcoords="offset points",
        fontweight="bold",
        fontsize=13,
        bbox=_ON_WHITE,
        zorder=4,
    )
    axis.annotate(
        row.kind.what,
        (1, 0),
        xycoords=title,
        xytext=(10, 2.5),
        textcoords="offset points",
        color=_EVENT,
        bbox=_ON_WHITE,
        zorder=4,
    )


def _draw_life(axis: Axes, level: int, life: Life, origin: float, until: float) -> None:
    ended = life.ended if life.ended is not None else until
    alive_since = life.began
    for began, over in [*life.stopped, (ended, None)]:
        axis.hlines(level, alive_since - origin, began - origin, color=_ALIVE, linewidth=7)
        if over is not None:
            axis.hlines(level, began - origin, over - origin, color=_FROZEN, linewidth=2, linestyle=":")
            alive_since = over
    if life.how in {"killed", "failed"}:
        axis.plot(ended - origin, level, marker="X", color="black", markersize=11, linestyle="", zorder=4)


def _end_of(run: Execution, lives: Sequence[Life], until: float) -> float:
    """When the handler ended, or the process without which it did not."""
    if isfinite(run.end):
        return run.end
    return next((life.ended for life in lives if life.ended is not None and life.ended >= run.start), until)


def _block(axis: Axes, level: int, start: float, end: float, colour: str) -> None:
    axis.fill_betweenx([level - 0.34, level + 0.34], start, end, color=colour, linewidth=1.2, zorder=3)


def _label(axis: Axes, level: int, at: float, text: str, *, shift: float = 4, inside: bool = False) -> None:
    axis.annotate(
        text,
        (at, level if inside else level - 0.14),
        xytext=(shift, 0),
        textcoords="offset points",
        color="white" if inside else _AGAIN_TEXT,
        fontsize=10,
        fontweight="bold",
        va="center" if inside else "bottom",
        zorder=5,
        path_effects=[] if inside else [withStroke(linewidth=3, foreground="white")],
    )


def _clusters(runs: Sequence[Execution]) -> list[list[Execution]]:
    """Repetitions that follow each other closely are labelled together."""
    clusters: list[list[Execution]] = []
    for run in runs:
        if clusters and run.start - clusters[-1][-1].start < _TOGETHER_S:
            clusters[-1].append(run)
        else:
            clusters.append([run])
    return clusters


def _draw_waiting(axis: Axes, row: Row, origin: float, until: float, highest: int) -> None:
    times = [at for at, _ in row.verdict.lag]
    moments = [origin + step * _STEP_S for step in range(int((until - origin) / _STEP_S) + 1)]
    waiting = [row.verdict.lag[place - 1][1] if (place := bisect_right(times, at)) else 0 for at in moments]
    axis.fill_between([at - origin for at in moments], waiting, color=_LAG, linewidth=0)
    axis.set_ylim(0, highest * 1.08)
    axis.set_ylabel("orders\nwaiting")


def _write_figures(axis: Axes, verdict: Verdict, *, headed: bool) -> None:
    """What is to be seen at first sight: three figures beside the chart."""
    columns = (("handled\nagain", verdict.repeated), ("lost", verdict.lost), ("waiting\nat the end", verdict.left))
    for place, (name, count) in enumerate(columns):
        x = 1.055 + 0.098 * place
        axis.text(
            x,
            0.42,
            f"{count:,}",
            transform=axis.transAxes,
            fontsize=21,
            fontweight="bold" if count else "normal",
            color=_AGAIN_TEXT if count else _EVENT,
            ha="center",
            va="center",
        )
        if headed:
            axis.text(x, 1.06, name, transform=axis.transAxes, ha="center", va="bottom")


def _label_events(axis: Axes, events: Sequence[tuple[float, str]], origin: float) -> None:
    """Each label stands at its event, and a level higher where it would touch the one before."""
    ends = [-1.0] * _LEVELS
    for at, label in events:
        text = axis.annotate(
            label,
            (at - origin, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, _LABELS_PT),
            textcoords="offset points",
            fontsize=10.5,
            ha="left",
            va="bottom",
            linespacing=1.25,
            bbox=_ON_WHITE,
            zorder=4,
        )
        box = text.get_window_extent()
        level = next((level for level, end in enumerate(ends) if end < box.x0), ends.index(min(ends)))
        ends[level] = box.x1 + 6
        height = _LABELS_PT + level * _LEVEL_PT
        text.xyann = (0, height)
        line = {"arrowstyle": "-", "color": _EVENT, "linewidth": 0.9, "linestyle": (0, (4, 3))}
        axis.annotate(
            "",
            (at - origin, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, height),
            textcoords="offset points",
            arrowprops=line,
            zorder=1,
        )


def _draw_legend(figure: Figure) -> None:
    figure.legend(
        handles=[
            Line2D([], [], color=_ALIVE, linewidth=7, label="process runs"),
            Line2D([], [], color=_FROZEN, linewidth=2, linestyle=":", label="process is frozen"),
            Line2D([], [], color="black", marker="X", markersize=11, linestyle="", label="process is killed"),
            Patch(color=_SLOW, label="the slow order"),
            Patch(color=_AGAIN, label="an order is handled again"),
            Patch(color=_LAG, label="orders that wait or are in work"),
        ],
        loc="lower center",
        ncols=6,
        frameon=False,
        fontsize=10.5,
        handletextpad=0.6,
        columnspacing=2.0,
    )
