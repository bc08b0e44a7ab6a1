"""The report as one HTML page that needs nothing else: no script, no font, no image from anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.tools.audit_report.pages import curves, tables
from holdfast.tools.audit_report.pages.frame import Times
from holdfast.tools.audit_report.pages.ownership import ownership
from holdfast.tools.audit_report.pages.strips import strips
from holdfast.tools.audit_report.pages.style import HATCH, PAGE, PICTURE
from holdfast.tools.audit_report.pages.words import (
    CAUSES,
    VERDICTS,
    clock,
    group_verdict,
    long,
    mood,
    number,
    remarks,
    verdict,
)
from holdfast.tools.svg import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.tools.audit_report.pages.frame import Picture
    from holdfast.tools.audit_report.pages.model import Audit, GroupAudit
    from holdfast.tools.audit_report.pages.tables import Cell, Table

#: Columns that fit on a phone.
_NARROW = 5
_MOODS = {"bad": "not as promised", "unsure": "not all is known", "good": "as promised"}


def page(audit: Audit) -> str:
    """The whole of it."""
    how = mood(audit)
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>{clean(verdict(audit))} - holdfast audit</title>",
        f"<style>{PICTURE}\n{PAGE}</style></head><body>",
        f'<svg class="audit" width="0" height="0" aria-hidden="true" style="position:absolute">{HATCH}</svg><main>',
        f'<header><span class="mood {how}">{_MOODS[how]}</span><h1>{clean(verdict(audit))}</h1>',
        _period(audit),
        "</header>",
    ]
    ranked = audit.worst_first
    drawn = [each for each in ranked if each.detailed]
    if len(audit.groups) > 1:
        parts.append(_table(tables.of_all(ranked), {each.group: f"group-{i}" for i, each in enumerate(drawn)}))
    if len(drawn) < len(ranked):
        parts.append(f'<p class="faint">Pictures and tables follow for the first {len(drawn)} of them.</p>')
    for i, group in enumerate(drawn):
        parts += _group(group, i, alone=len(ranked) == 1)
    parts += [_explained(), "</main></body></html>", ""]
    return "\n".join(parts)


def pictures(group: GroupAudit) -> Iterator[Picture]:
    """All of a group that can be drawn."""
    times = Times(from_ms=group.from_ms, to_ms=group.to_ms)
    for each in (ownership(group, times), curves.lag(group, times), curves.intake(group, times), strips(group)):
        if each is not None:
            yield each


def _period(audit: Audit) -> str:
    heard = [each for each in audit.groups if each.processes]
    if not heard:
        return ""
    first, last = min(each.from_ms for each in heard), max(each.to_ms for each in heard)
    over = f"{clock(first, date=True)} to {clock(last, date=True)} UTC ({long((last - first) / 1000)})"
    return f'<p class="faint">From the events that consumers wrote, {over}.</p>'


def _group(group: GroupAudit, place: int, *, alone: bool) -> Iterator[str]:
    yield f'<section id="group-{place}" aria-labelledby="group-{place}-name">'
    yield f'<h2 id="group-{place}-name">Group {clean(group.group)}</h2>'
    if not alone:
        yield f"<p>{clean(group_verdict(group))}.</p>"
    yield _figures(group)
    if notes := remarks(group):
        yield f"<ul>{''.join(f'<li>{clean(note)}</li>' for note in notes)}</ul>"
    drawn = {each.name: each for each in pictures(group)}
    findings = list(tables.wrong(group))
    if findings:
        yield "<h3>What is wrong</h3>"
        yield _figure(drawn.get("offsets"), place)
        for each in findings:
            yield _table(each)
    if "ownership" in drawn:
        yield "<h3>Who owned what</h3>"
        yield _figure(drawn["ownership"], place, _left_out(group))
    for heading, name, table in (
        ("Rebalances", "", tables.rebalances(group)),
        ("", "", tables.pauses(group)),
        ("Lag", "lag", tables.lagging(group)),
        ("Intake", "intake", tables.members(group)),
    ):
        if heading and (table is not None or name in drawn):
            yield f"<h3>{heading}</h3>"
        yield _figure(drawn.get(name), place)
        if table is not None:
            yield _table(table, heading=heading)
    yield "</section>"


def _figures(group: GroupAudit) -> str:
    figures = [
        ("lost", f"{group.lost:,}", "bad" if group.lost else ""),
        *([("deleted unread", f"{group.expired:,}", "bad")] if group.expired else []),
        ("unknown", f"{group.unknown:,}", "unsure" if group.unknown else ""),
        ("ran again", f"{group.repeated:,}", "bad" if group.repeated else ""),
        ("known, skipped", f"{group.suppressed:,}", ""),
        ("rebalances", f"{group.rebalances.total:,}", ""),
        ("group stopped for", long(group.stop_s), ""),
        ("longest pause", long(group.pause_s), ""),
        ("peak over steady", "-" if group.spike is None else f"{group.spike:.2f}", ""),
    ]
    cells = "".join(
        f"<div><dt>{name}</dt><dd{f' class={kind}' if kind else ''}>{value}</dd></div>" for name, value, kind in figures
    )
    return f'<dl class="figures">{cells}</dl>'


def _left_out(group: GroupAudit) -> str:
    if not group.owned.left_out:
        return ""
    return (
        f"{number(group.owned.left_out, 'partition')} more are not shown: those with findings come first, then those "
        "that moved most."
    )


def _figure(picture: Picture | None, place: int, note: str = "") -> str:
    if picture is None:
        return ""
    caption = f"{picture.title}. {picture.words} {note}".strip()
    return (
        f'<figure><div class="wide scrolls" tabindex="0" role="region" aria-label="{clean(picture.title)}">'
        f"{picture.inline(f'g{place}-')}</div><figcaption>{clean(caption)}</figcaption></figure>"
    )


def _table(table: Table, anchors: dict[str, str] | None = None, *, heading: str = "") -> str:
    right = [
        all(isinstance(row[i], int | float) or row[i] is None or _is_number(row[i]) for row in table.rows)
        for i in range(len(table.headings))
    ]
    head = "".join(
        f'<th scope="col"{" class=n" if right[i] else ""}>{clean(name)}</th>' for i, name in enumerate(table.headings)
    )
    rows = []
    for row in table.rows:
        first = clean(_said(row[0]))
        if anchors is not None and str(row[0]) in anchors:
            first = f'<a href="#{anchors[str(row[0])]}">{first}</a>'
        cells = "".join(
            f"<td{' class=n' if right[i] else ''}>{clean(_said(cell))}</td>" for i, cell in enumerate(row) if i
        )
        rows.append(f'<tr><th scope="row"{" class=n" if right[0] else ""}>{first}</th>{cells}</tr>')
    note = f'<p class="faint">{clean(table.note)}</p>' if table.note else ""
    wide = "wide scrolls" if len(table.headings) > _NARROW else "wide"
    return (
        f'<div class="{wide}" tabindex="0" role="region" aria-label="{clean(table.title)}"><table>'
        f"{_caption(table, heading)}"
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>{note}"
    )


def _caption(table: Table, heading: str) -> str:
    """The caption; hidden on the screen if a heading has the same words."""
    seen = "" if table.title != heading else ' class="unseen"'
    return f"<caption{seen}>{clean(table.title)}</caption>"


def _is_number(cell: Cell) -> bool:
    """Such as "12 %", "1.50", "3.2 s" and "-"."""
    return isinstance(cell, str) and (cell == "-" or cell[:1].isdigit()) and ":" not in cell and len(cell) <= 12


def _said(cell: Cell) -> str:
    if cell is None:
        return "-"
    return cell if isinstance(cell, str) else f"{cell:,}"


def _explained() -> str:
    def listed(entries: Sequence[tuple[str, str]]) -> str:
        return "".join(f"<li><b>{name}</b>: {clean(words)}.</li>" for name, words in entries)

    return (
        "<details><summary>What the words mean</summary>"
        f"<p>Records that no member is known to have handled:</p><ul>{listed([*VERDICTS.items()])}</ul>"
        f"<p>Why a record ran again:</p><ul>{listed([*CAUSES.items()])}</ul>"
        "<p>A group stops while no member finishes a record around a rebalance. A partition pauses from the last "
        "record that its old owner finished to the first one that its new owner finished. Peak over steady: the most "
        "records a second of the gained partitions after the rebalance, divided by their rate before. All times are "
        "UTC.</p></details>"
    )
