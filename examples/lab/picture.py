"""The runs over time, in one picture: who was alive, what was handled again, how much waited."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from examples.lab.group import Kind, Life
    from examples.lab.referee import Verdict

# Okabe and Ito's palette: told apart with all common kinds of colour blindness.
_ALIVE, _LAG, _AGAIN, _EVENT, _FROZEN = "#0072B2", "#56B4E9", "#D55E00", "#444444", "#999999"
_AGAIN_TEXT = "#A33F00"  # the same hue, dark enough to read
_STEP_S = 0.1
_TOGETHER_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the picture needs of one consumer. All times in seconds since the run's start."""

    kind: Kind
    verdict: Verdict
    lives: Mapping[str, Life]


def draw(
    rows: Sequence[Row], events: Sequence[tuple[float, str]], *, origin: float, until: float, folder: Path
) -> list[Path]:
    """Write the picture as PNG and SVG; `origin` is what the x axis counts from."""
    with rc_context({"font.size": 11, "font.family": "DejaVu Sans", "svg.hashsalt": "holdfast"}):
        return _draw(rows, events, origin, until, folder)


def _draw(
    rows: Sequence[Row], events: Sequence[tuple[float, str]], origin: float, until: float, folder: Path
) -> list[Path]:
    height = 2.2 + 3.1 * len(rows)
    figure = Figure(figsize=(14, height))  # not by pyplot: it needs neither a display nor a global state
    # Above the rows: the title and the events' labels; below: the axis' label and the legend.
    outer = figure.add_gridspec(
        len(rows), 1, left=0.075, right=0.985, top=1 - 1.75 / height, bottom=0.95 / height, hspace=0.3
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
    figure.text(
        0.012,
        1 - 0.2 / height,
        "Who works, and what is done twice, when a consumer group changes",
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
    _draw_legend(figure)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "rebalance.png", folder / "rebalance.svg"]
    for path in written:
        figure.savefig(path, dpi=110)
    return written


def _draw_members(axis: Axes, row: Row, origin: float, until: float) -> None:
    names = sorted(row.lives)
    for level, name in enumerate(names):
        life = row.lives[name]
        ended = life.ended if life.ended is not None else until
        alive_since = life.began
        for began, over in [*life.stopped, (ended, None)]:
            axis.hlines(level, alive_since - origin, began - origin, color=_ALIVE, linewidth=7)
            if over is not None:
                axis.hlines(level, began - origin, over - origin, color=_FROZEN, linewidth=2, linestyle=":")
                alive_since = over
        if life.how in {"killed", "failed"}:
            axis.plot(ended - origin, level, marker="X", color="black", markersize=11, linestyle="", zorder=4)
        again = [at - origin for at, member in row.verdict.repetitions if member == name]
        axis.vlines(again, level - 0.34, level + 0.34, color=_AGAIN, linewidth=1.2, zorder=3)
        for cluster in _clusters(again):
            axis.annotate(
                f"{len(cluster):,} again",
                (cluster[-1], level - 0.14),
                xytext=(4, 0),
                textcoords="offset points",
                color=_AGAIN_TEXT,
                fontsize=10,
                fontweight="bold",
                va="bottom",
                zorder=5,
                path_effects=[withStroke(linewidth=3, foreground="white")],
            )
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.55, -0.8)
    axis.set_ylabel("members")
    axis.tick_params(axis="y", length=0)
    verdict = row.verdict
    title = axis.annotate(
        row.kind.title,
        (0, 1),
        xycoords="axes fraction",
        xytext=(0, 6),
        textcoords="offset points",
        fontweight="bold",
        fontsize=13,
    )
    axis.annotate(row.kind.what, (1, 0), xycoords=title, xytext=(10, 2.5), textcoords="offset points", color=_EVENT)
    axis.annotate(
        f"handled again: {verdict.repeated:,}      lost: {verdict.lost:,}      "
        f"longest pause: {verdict.longest_pause_s:.1f} s",
        (1, 1),
        xycoords="axes fraction",
        xytext=(0, 6),
        textcoords="offset points",
        ha="right",
        fontsize=12,
        fontweight="bold" if verdict.repeated or verdict.lost else "normal",
    )


def _clusters(moments: Sequence[float]) -> list[list[float]]:
    """Repetitions that follow each other closely are labelled together."""
    clusters: list[list[float]] = []
    for moment in moments:
        if clusters and moment - clusters[-1][-1] < _TOGETHER_S:
            clusters[-1].append(moment)
        else:
            clusters.append([moment])
    return clusters


def _draw_waiting(axis: Axes, row: Row, origin: float, until: float, highest: int) -> None:
    times = [at for at, _ in row.verdict.lag]
    moments = [origin + step * _STEP_S for step in range(int((until - origin) / _STEP_S) + 1)]
    waiting = [row.verdict.lag[place - 1][1] if (place := bisect_right(times, at)) else 0 for at in moments]
    axis.fill_between([at - origin for at in moments], waiting, color=_LAG, linewidth=0)
    axis.set_ylim(0, highest * 1.08)
    axis.set_ylabel("orders\nwaiting")


def _label_events(axis: Axes, events: Sequence[tuple[float, str]], origin: float) -> None:
    for at, label in events:
        axis.annotate(
            label,
            (at - origin, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 26),
            textcoords="offset points",
            fontsize=10.5,
            ha="left",
            va="bottom",
            linespacing=1.25,
        )


def _draw_legend(figure: Figure) -> None:
    figure.legend(
        handles=[
            Line2D([], [], color=_ALIVE, linewidth=7, label="process runs"),
            Line2D([], [], color=_FROZEN, linewidth=2, linestyle=":", label="process is frozen"),
            Line2D([], [], color="black", marker="X", markersize=11, linestyle="", label="process is killed"),
            Line2D(
                [],
                [],
                color=_AGAIN,
                marker="|",
                markersize=15,
                markeredgewidth=3,
                linestyle="",
                label="an order is handled again by this process",
            ),
            Patch(color=_LAG, label="orders that wait or are in work"),
        ],
        loc="lower center",
        ncols=5,
        frameon=False,
        fontsize=10.5,
        handletextpad=0.6,
        columnspacing=2.4,
    )
