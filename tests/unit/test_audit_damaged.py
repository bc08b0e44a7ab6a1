"""Events damaged at random, as files and as a stream: what was done is not lost, and what is lost is not well."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.tools.audit_report.judge.live import LiveGroup
from holdfast.tools.audit_report.judge.reading import judged_files
from holdfast.tools.audit_report.judge.settings import AuditSettings
from holdfast.tools.audit_report.judge.unread import sorted_out
from tests.spark.audit.damaged import HOW, damaged
from tests.spark.audit.streamed import gaps
from tests.spark.audit.synthetic import MIXES, Group, played

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    Row = dict[str, Any]

_LATE_MS = 10**13
_DOUBTS = ("unknown", "missing", "dropped", "unheard", "unreported", "lost")


def by_table(rows: Iterable[tuple[str, Row]]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for table, row in rows:
        found.setdefault(table, []).append(row)
    return found


def of_files(lines: Sequence[str], folder: Path) -> dict[str, list[Row]]:
    (folder / "events.jsonl").write_text("\n".join(lines))
    return by_table(judged_files([str(folder)], AuditSettings()))


def of_a_stream(group: Group, lines: Sequence[str]) -> dict[str, list[Row]]:
    live, rows = LiveGroup(group.name), list[tuple[str, dict[str, Any]]]()
    for first in range(0, len(lines), 40):
        read = sorted_out(lines[first : first + 40], _LATE_MS)
        live.feed(read.events)
        live.unreadable(read.unreadable)
        rows += live.settle()
    return by_table(rows + live.silence())


def wrong(group: Group, how: str, tables: dict[str, list[Row]]) -> list[str]:
    """What is said and is not so. Of a run that is not there at all nothing can be known, but for the epochs."""
    truth, said = group.truth, {verdict: set(gaps(tables, group, verdict)) for verdict in ("lost", "unknown")}
    found = []
    # A killed run's records are "unknown" there though nobody has had some of them in hand.
    if invented := said["lost"] - truth.lost - truth.unknown:
        found.append(f"{len(invented)} are said to be lost and are not: {sorted(invented)[:5]}")
    doubts = {name for name in _DOUBTS if any(row.get(name) for row in tables["summary"])}
    if truth.lost and not doubts and how != "all":
        found.append(f"all is said to be well, and {len(truth.lost)} are lost")
    return found


@pytest.mark.parametrize("how", HOW)
def test_what_was_done_is_not_lost_and_what_is_lost_is_not_well(how: str, tmp_path: Path) -> None:
    for seed in range(6):
        random = Random(f"{how}-{seed}")
        mix = random.choice(sorted(MIXES))
        group = played(f"{mix}-{seed}", seed, mix, random.choice(("done", "left", "alive")))
        lines = damaged(group.lines, how, random)
        assert wrong(group, how, of_files(lines, tmp_path)) == [], (mix, seed, "files")
        assert wrong(group, how, of_a_stream(group, lines)) == [], (mix, seed, "stream")
