"""The audit of a stream without Spark: groups with planted faults, fed bit by bit."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from holdfast.errors import SettingError
from holdfast.tools.audit_report.judge.kept import LiveSettings
from holdfast.tools.audit_report.judge.live import LiveGroup
from tests.spark.audit.endless import AT_MS, Endless
from tests.spark.audit.synthetic import MIXES, Group, played, stood_still

_ENDS = ("done", "left", "alive")
_SETTINGS = LiveSettings()


def followed(group: Group, at_once: int = 11) -> list[tuple[str, dict[str, Any]]]:
    """All rows, the state having been written and read between any two steps."""
    live, rows = LiveGroup(group.name, _SETTINGS), []
    events = [json.loads(line) for line in group.lines]
    for first in range(0, len(events), at_once):
        live.feed(events[max(first - 3, 0) : first + at_once])  # some come twice
        rows += live.settle()
        live = LiveGroup.restored(json.loads(json.dumps(live.state())), _SETTINGS)
    return rows + live.silence()


def records(row: dict[str, Any], group: Group) -> list[tuple[str, int]]:
    log = group.logs[int(row["partition"])]
    return [(row["partition"], offset) for offset in log if row["first"] <= offset < row["next"]]


@pytest.mark.parametrize("mix", MIXES)
def test_a_stream_tells_each_fault_once_and_invents_none(mix: str) -> None:
    for seed in range(2):
        group = played(f"{mix}-{seed}", seed, mix, _ENDS[seed])
        rows = followed(group)
        for verdict in ("lost", "unknown"):
            gaps = [row for table, row in rows if table == "gaps" and row["verdict"] == verdict]
            assert Counter(record for row in gaps for record in records(row, group)) == Counter(
                getattr(group.truth, verdict)
            ), (group.name, verdict)
        repeated: dict[tuple[str, int], Counter[str | None]] = {}
        for row in [row for table, row in rows if table == "duplicates"]:
            for record in records(row, group):
                repeated.setdefault(record, Counter())[row["cause"]] += row["repeats"]
        assert repeated == {record: causes for record, (_, causes) in group.truth.repeated().items()}, group.name


def test_a_stream_tells_of_a_standstill_and_of_the_spike_after_it() -> None:
    group, at_ms = stood_still("still")
    rows = followed(group)
    row = next(row for table, row in rows if table == "rebalances" and row["began_ms"] == at_ms)
    assert 3000 <= row["stop_ms"] <= 3300
    assert 2.4 < row["peak_ratio"] < 3.6
    taken_in = sum(row["records"] for table, row in rows if table == "intake")
    assert abs(taken_in - sum(len(each) for each in group.truth.executed.values())) < 0.1 * taken_in


def test_the_state_stays_flat_while_events_go_on_and_runs_come_and_go() -> None:
    endless = Endless()
    live, sizes, rows = LiveGroup("endless", LiveSettings(remember_s=180)), [], []
    for _ in range(24):
        live.feed(map(json.loads, endless.lines(50)))
        rows += live.settle()
        sizes.append(len(json.dumps(live.state())))
    assert max(sizes[-8:]) < 1.1 * max(sizes[4:12])
    rows += live.silence()
    assert sum(row["offsets"] for table, row in rows if table == "gaps" and row["verdict"] == "lost") == endless.lost
    assert sum(row["repeated"] for table, row in rows if table == "coverage") == endless.repeated


def test_who_is_slow_to_tell_is_waited_for() -> None:
    """By more than `lateness_s`: what it has not told yet is not thought unknown."""
    group = played("losses-0", 0, "losses")
    live, rows = LiveGroup(group.name, _SETTINGS), []
    events = [json.loads(line) for line in group.lines]
    slow = {events[0]["run"]}
    waiting: list[dict[str, Any]] = []
    for each in events:
        if each["run"] in slow:
            waiting.append(each)
        else:
            live.feed([each])
        while waiting and waiting[0]["at_ms"] < each["at_ms"] - 20_000:
            live.feed([waiting.pop(0)])
        rows += live.settle()
    live.feed(waiting)
    rows += live.silence()
    assert not group.truth.unknown
    assert [row for table, row in rows if table == "gaps" and row["verdict"] == "unknown"] == []


def test_what_is_no_event_of_its_kind_does_no_harm_later() -> None:
    endless = Endless()
    lines = [json.loads(line) for line in endless.lines(3)]
    span = next(each for each in lines if each["kind"] == "span")
    place = next(each for each in lines if each["kind"] == "assigned")
    for broken in (
        {"spans": None},
        {"spans": [span["spans"][0] | {"first": "0"}]},
        {"spans": [span["spans"][0] | {"next": -1}]},
        {"spans": [span["spans"][0] | {"outcome": []}]},
        {"spans": [span["spans"][0] | {"began_ms": None}]},
        {"partition": 0},
        {"partitions": [{"topic": "t"}], "kind": "progress"},
        {"partitions": [place["partitions"][0] | {"position": "0"}], "kind": "assigned", "trigger": "assigned"},
        {"records": [], "kind": "stopped"},
    ):
        live = LiveGroup("endless")
        live.feed(span | broken if each is span else each for each in lines)
        live = LiveGroup.restored(json.loads(json.dumps(live.state())), _SETTINGS)
        assert live.silence(), broken


def test_a_span_that_claims_to_have_taken_for_ever_is_not_spread_over_it() -> None:
    span = {"first": 0, "next": 10, "outcome": "handled", "records": 10, "began_ms": 0, "ended_ms": AT_MS}
    stamp = {"v": 1, "kind": "span", "group": "g", "member": "m", "run": "r", "seq": 0, "at_ms": AT_MS, "dropped": 0}
    live = LiveGroup("g")
    live.feed([stamp | {"topic": "t", "partition": "0", "epoch": None, "spans": [span]}])
    rows = [row for table, row in live.silence() if table == "intake"]
    assert len(rows) <= 3601
    assert abs(sum(row["records"] for row in rows) - 10) < 0.01


def test_a_state_of_another_version_is_refused() -> None:
    with pytest.raises(SettingError, match="start with a new checkpoint"):
        LiveGroup.restored(LiveGroup("g").state() | {"version": 0}, _SETTINGS)


def test_times_that_cannot_work_are_said() -> None:
    with pytest.raises(SettingError, match="give a time of more than 0"):
        LiveSettings(lateness_s=0)
    with pytest.raises(SettingError, match="give more than lateness_s"):
        LiveSettings(remember_s=20)
