"""The audit of what retention deleted before it was read: nobody's loss, and not passed over in silence."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.sqlite.tables import SqliteTables
from holdfast.plugin.audit.schema import (
    Assigned,
    AuditPartition,
    Body,
    Event,
    Outcome,
    Revoked,
    Span,
    Spans,
    Stamp,
    Stopped,
    encode,
)
from holdfast.tools.audit_report.judge.kept import LiveSettings
from holdfast.tools.audit_report.judge.live import LiveGroup
from holdfast.tools.audit_report.judge.reading import judged_files
from holdfast.tools.audit_report.judge.settings import AuditSettings
from holdfast.tools.audit_report.pages.build import audit_of
from holdfast.tools.audit_report.pages.words import mood, remarks, verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_AT_MS = 1_700_000_000_000
_HANDLED, _EXPIRED = Outcome.HANDLED, Outcome.EXPIRED
#: What an owner tells, from its first offset on: up to where, and what became of that.
Told = tuple[int, Outcome]


def _owner(run: str, epoch: int, first: int, *told: Told, skipped: Sequence[int] = ()) -> list[str]:
    """One member's events: it comes, does that, and stops cleanly. `skipped`: what its client had gone past before."""
    place = AuditPartition(topic="t", partition="0", epoch=epoch, position=first, end=told[-1][0])
    spans, at = [], first
    for next_, outcome in told:
        records = 0 if outcome in (Outcome.ABSENT, _EXPIRED) else next_ - at
        spans.append(
            Span(
                first=at, next=next_, outcome=outcome, records=records, began_ms=_AT_MS + epoch, ended_ms=_AT_MS + epoch
            )
        )
        at = next_
    for offset in skipped:
        again = replace(spans[0], first=offset, next=offset + 1, outcome=Outcome.CLIENT_SKIPPED, records=1)
        spans.append(again)
    spans.sort(key=lambda each: (each.first or 0, each.next or 0))
    gone = AuditPartition(topic="t", partition="0", epoch=epoch, position=at, end=at, in_flight=0)
    bodies: Iterable[Body] = (
        Assigned(partitions=(place,), trigger="assigned"),
        Spans(topic="t", partition="0", epoch=epoch, spans=spans),
        Revoked(partitions=(gone,), trigger="leave"),
        Stopped(clean=True, records={"handled": sum(span.records for span in spans)}),
    )
    return [
        encode(
            Event(
                stamp=Stamp(group="g", member=run, run=run, seq=seq, at_ms=_AT_MS + 10_000 * epoch + seq, dropped=0),
                body=body,
            )
        )
        for seq, body in enumerate(bodies)
    ]


def _gaps(rows: Iterable[tuple[str, dict[str, Any]]]) -> list[tuple[int, int, str, str]]:
    return [(row["first"], row["next"], row["verdict"], row["reason"]) for table, row in rows if table == "gaps"]


def _live(lines: Iterable[str]) -> list[tuple[str, dict[str, Any]]]:
    live, rows = LiveGroup("g", LiveSettings()), []
    for line in lines:
        live.feed([json.loads(line)])
        rows += live.settle()
        live = LiveGroup.restored(json.loads(json.dumps(live.state())), LiveSettings())
    return rows + live.silence()


def _whole(folder: Path, lines: Iterable[str]) -> list[tuple[str, dict[str, Any]]]:
    (folder / "g.jsonl").write_text("\n".join(lines) + "\n")
    return list(judged_files([str(folder)], AuditSettings()))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("told", "gaps"),
    [
        pytest.param([(5, _HANDLED), (12, _EXPIRED), (20, _HANDLED)], [(5, 12, "expired", "retention")], id="between"),
        pytest.param([(5, _HANDLED), (20, _EXPIRED)], [(5, 20, "expired", "retention")], id="at the end"),
        pytest.param([(5, _EXPIRED), (20, _HANDLED)], [(0, 5, "expired", "retention")], id="at the beginning"),
        pytest.param([(5, _HANDLED), (12, Outcome.ABSENT), (20, _HANDLED)], [], id="a hole"),
    ],
)
def test_it_is_a_gap_of_its_own_kind(
    tmp_path: Path, told: list[Told], gaps: list[tuple[int, int, str, str]], *, stream: bool
) -> None:
    lines = _owner("a", 1, 0, *told)
    rows = _live(lines) if stream else _whole(tmp_path, lines)
    assert _gaps(rows) == gaps
    coverage = [row for table, row in rows if table == "coverage"]
    assert coverage[-1]["covered_to"] == 20
    assert sum(row["expired"] for row in coverage) == sum(next_ - first for first, next_, *_ in gaps)
    assert sum(row["lost"] for row in coverage) == 0


@pytest.mark.parametrize("stream", [False, True])
def test_what_somebody_has_handled_after_all_is_none(tmp_path: Path, *, stream: bool) -> None:
    """Of two owners: the second finds deleted what the first one could not commit any more."""
    lines = [*_owner("a", 1, 0, (8, _HANDLED)), *_owner("b", 2, 5, (12, _EXPIRED), (20, _HANDLED))]
    assert _gaps(_live(lines) if stream else _whole(tmp_path, lines)) == [(8, 12, "expired", "retention")]


def test_the_page_says_so_and_that_it_is_not_well(tmp_path: Path) -> None:
    _whole(tmp_path, _owner("a", 1, 0, (5, _HANDLED), (12, _EXPIRED), (20, _HANDLED)))
    with SqliteTables() as tables:
        tables.add(judged_files([str(tmp_path)], AuditSettings()))
        audit = audit_of(tables)
    assert verdict(audit) == (
        "Nothing lost, 7 deleted by retention before they were read, nothing repeated, of 13 records that ran"
    )
    assert mood(audit) == "bad"
    [group] = audit.groups
    assert [(gap.first, gap.next, gap.verdict) for gap in group.gap_rows.rows] == [(5, 12, "expired")]


@pytest.mark.parametrize("stream", [False, True])
def test_what_a_client_had_skipped_is_counted_and_lost_unless_it_was_handled(tmp_path: Path, *, stream: bool) -> None:
    """It covers nothing by itself."""
    found = []
    for run, told in (("a", [(20, _HANDLED)]), ("b", [(7, _HANDLED), (8, Outcome.FAILED), (20, _HANDLED)])):
        lines = _owner(run, 1, 0, *told, skipped=[7])
        folder = tmp_path / run
        folder.mkdir()
        rows = _live(lines) if stream else _whole(folder, lines)
        found.append(_gaps(rows))
        assert sum(row["client_skipped"] for table, row in rows if table == "coverage") == 1
        assert [row["client_skipped"] for table, row in rows if table == "members"] == [1]
    assert found == [[], [(7, 8, "lost", "passed")]]


def test_the_report_says_that_a_client_skips(tmp_path: Path) -> None:
    (tmp_path / "g.jsonl").write_text("\n".join(_owner("a", 1, 0, (20, _HANDLED), skipped=[7])) + "\n")
    with SqliteTables() as tables:
        tables.add(judged_files([str(tmp_path)], AuditSettings()))
        [group] = audit_of(tables).groups
    assert any("the Kafka client had gone past 1 record as if" in each for each in remarks(group))
