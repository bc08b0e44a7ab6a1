"""The page: one table, and a timeline for each cell. It loads nothing, and runs nothing."""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from tests.lab import timeline
from tests.lab.consumers import CONSUMERS
from tests.lab.faults import FAULTS
from tests.lab.table import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.lab.evidence import Evidence
    from tests.lab.faults import Fault
    from tests.lab.judge import Verdict

_PAGE = Path(__file__).parent / "page.html"
_BY_NAME = {each.name: each for each in CONSUMERS}
_ROW, _GAP, _BAR = 12, 6, 10
_WIDTH = 1000
_BEFORE_S, _AXIS_S = 1.0, 5
_KEY = (
    ("a", "at work, in the member's colour"),
    ("a alive", "alive, without work"),
    ("frozen", "frozen"),
    ("out", "alive, and put out of the group"),
    ("dead", "killed, or ended by itself"),
    ("pause", "a partition's pause: records to start, none started (over 1 s)"),
    ("again", "a record runs again"),
    ("lost", "a record that is lost"),
)


def html(verdicts: Sequence[Verdict]) -> str:
    """All of it, as text."""
    played = {each.evidence.consumer for each in verdicts}
    return Template(_PAGE.read_text(encoding="utf-8")).substitute(
        machine=_machine([each.evidence for each in verdicts]),
        table=_table(verdicts),
        columns="".join(f"<dt>{escape(each.head)}</dt><dd>{escape(each.told)}</dd>" for each in COLUMNS),
        consumers="".join(_consumer(each.name, verdicts) for each in CONSUMERS if each.name in played),
        key="".join(f"<li>{_swatch(kind)}{escape(told)}</li>" for kind, told in _KEY),
        faults="".join(_fault(each, [it for it in verdicts if it.evidence.fault == each.name]) for each in FAULTS),
    )


def _machine(found: Sequence[Evidence]) -> str:
    if not found:
        return "No cell has been played."
    machine: dict[str, dict[str, None]] = {}
    for each in found:
        for name, said in each.machine.items():
            machine.setdefault(name, {})[said] = None
    return escape(", ".join(f"{name} {' and '.join(said)}" for name, said in machine.items()))


def _consumer(name: str, verdicts: Iterable[Verdict]) -> str:
    it = _BY_NAME[name]
    versions = {
        each: said for one in verdicts if one.evidence.consumer == name for each, said in one.evidence.versions.items()
    }
    said = ", ".join(f"{each} {version}" for each, version in versions.items())
    return (
        f"<dt>{escape(it.title)}</dt><dd>{_words(it.written)} <span class=faint>{escape(said)}</span><br>"
        f"{_words(it.limits)}</dd>"
    )


def _words(text: str) -> str:
    """Escaped, with what is between backquotes as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{each}</code>" if number % 2 else each for number, each in enumerate(parts))


def _table(verdicts: Sequence[Verdict]) -> str:
    heads = "".join(f'<th title="{escape(each.told)}">{escape(each.head)}</th>' for each in COLUMNS)
    parts = [f"<table><thead><tr><th>consumer</th>{heads}</tr></thead>"]
    for fault in FAULTS:
        rows = [each for each in verdicts if each.evidence.fault == fault.name]
        if not rows:
            continue
        several = len({each.evidence.seed for each in rows}) > 1
        parts.append(
            f'<tbody class=fault><tr><th colspan="{len(COLUMNS) + 1}">{escape(fault.name)} '
            f"<span>{escape(fault.told)}</span></th></tr></tbody><tbody>"
        )
        parts += [_row(each, several=several) for each in rows]
        parts.append("</tbody>")
    return "".join([*parts, "</table>"])


def _row(verdict: Verdict, *, several: bool) -> str:
    consumer = _BY_NAME[verdict.evidence.consumer]
    title = consumer.title + (f", seed {verdict.evidence.seed}" if several else "")
    ours = " class=ours" if consumer.module.startswith("holdfast") else ""
    if verdict.evidence.error:
        cells = f'<td colspan="{len(COLUMNS)}">could not be played</td>'
    else:
        cells = "".join(
            f"<td{' class=bad' if each.stands_out(verdict) else ''}>{escape(each.text(verdict))}</td>"
            for each in COLUMNS
        )
    return f"<tr{ours}><td>{escape(title)}</td>{cells}</tr>"


def _fault(fault: Fault, verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return ""
    until = max(each.evidence.over for each in verdicts)
    cells = "".join(_cell(each, until) for each in verdicts)
    left_out = [each.title for each in CONSUMERS if not fault.fits(each.store) and each.broker == "Kafka"]
    without = f"<p class=faint>Not for {escape(', '.join(left_out))}: they have no store.</p>" if left_out else ""
    return f"<h2>{escape(fault.name)}</h2><p>{escape(fault.told)}</p>{without}<div class=cells>{cells}</div>"


def _cell(verdict: Verdict, until: float) -> str:
    evidence = verdict.evidence
    title = f"<h3>{escape(_BY_NAME[evidence.consumer].title)} <span class=faint>seed {evidence.seed}</span></h3>"
    if evidence.error:
        return f"<article>{title}<p class=figures>{escape(evidence.error)}</p></article>"
    # Of the counts those that are not 0, and all times.
    figures = ", ".join(
        f"<b>{escape(each.head)} {escape(each.text(verdict))}</b>"
        if each.bad
        else escape(f"{each.head} {each.text(verdict)}")
        for each in COLUMNS
        if not each.bad or each.stands_out(verdict)
    )
    done = " · ".join(
        f"{number}: {mark.at:.1f} s {escape(mark.label)}" for number, mark in enumerate(evidence.marks, 1)
    )
    return f"<article>{title}<p class=figures>{figures}</p>{_plot(verdict, until)}<p class=done>{done}</p></article>"


def _plot(verdict: Verdict, until: float) -> str:
    began, width = -_BEFORE_S, until + _BEFORE_S

    def x(at: float) -> float:
        return round(min(max((at - began) / width, 0.0), 1.0) * _WIDTH, 1)

    names, drawn, top = [], [], 0
    for row in timeline.rows(verdict):
        if row.name == "0":
            names.append("<i class=gap></i>")
            top += _GAP
        names.append(f"<i>{escape(row.name)}</i>")
        drawn.append(f'<rect class="lane" x="0" y="{top}" width="{_WIDTH}" height="{_BAR}"/>')
        for each in row.pieces:
            if each.ended > began and each.began < until:
                kind = " ".join(part for part in (each.member, each.kind) if part)
                left = x(each.began)
                size = f'width="{max(x(each.ended) - left, 2):.1f}" height="{_BAR}"'
                drawn.append(f'<rect class="{escape(kind)}" x="{left}" y="{top}" {size}/>')
        top += _ROW
    marks = verdict.evidence.marks
    drawn += [f'<line class="mark" x1="{x(each.at)}" x2="{x(each.at)}" y1="0" y2="{top}"/>' for each in marks]
    numbers = "".join(f'<b style="left:{x(each.at) / 10:.1f}%">{number}</b>' for number, each in enumerate(marks, 1))
    axis = "".join(f'<b style="left:{x(at) / 10:.1f}%">{at}</b>' for at in range(0, int(until) + 1, _AXIS_S))
    return (
        f"<div class=plot><div class=names>{''.join(names)}</div><div><div class=numbers>{numbers}</div>"
        f'<svg viewBox="0 0 {_WIDTH} {top}" height="{top}" preserveAspectRatio="none" role="img" aria-label="timeline">'
        f"{''.join(drawn)}</svg><div class=axis>{axis}</div></div></div>"
    )


def _swatch(kind: str) -> str:
    return f'<svg viewBox="0 0 26 10"><rect class="{kind}" width="26" height="10"/></svg>'
