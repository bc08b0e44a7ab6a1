"""The table of metrics holds what an exporter relies on."""

from __future__ import annotations

import json
import re
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from holdfast.plugin.observe.metrics import METRICS, Histogram, Kind, Metric
from holdfast.plugin.observe.snapshot import (
    BUCKETS_S,
    CallFigures,
    HandlerFigures,
    LoadFigures,
    OpenRecord,
    PartitionFigures,
    RebalanceFigures,
    RecordFigures,
    Snapshot,
    StoreFigures,
)
from holdfast.records import Partition


def numbered() -> Snapshot:
    """Each figure another number, so that a row that reads the wrong one shows."""
    left = iter(range(10, 1_000))

    def filled(kind: type[Any], **given: Any) -> Any:
        rest = {f.name: next(left) for f in fields(kind) if f.name not in given and f.type in ("int", "float")}
        return kind(**rest, **given)

    return Snapshot(
        state="running",
        group="g",
        at_ms=1,
        uptime_s=next(left),
        records=filled(RecordFigures),
        load=filled(LoadFigures, ramp_per_s=9_100.5),
        handlers={"h": filled(HandlerFigures, buckets=tuple(next(left) for _ in range(len(BUCKETS_S) + 1)))},
        store=StoreFigures(up=False, session="s", sessions_lost=next(left), calls={"mark": filled(CallFigures)}),
        rebalances=filled(RebalanceFigures, by_trigger={"assigned": next(left)}),
        partitions=(
            PartitionFigures(
                partition=Partition("orders", 3),
                phase="owned",
                watermark=9_010,
                next=9_020,
                committed=9_009,
                log_end=9_532,
                in_flight=2_001,
                waiting_for_claims=2_002,
                lowest=OpenRecord(offset=9_010, handler="h", for_s=2_003.5, waits_for="its handler h"),
            ),
            PartitionFigures(
                partition=Partition("payments", 0),
                phase="owned",
                watermark=9_110,
                next=9_120,
                committed=9_109,
                log_end=9_634,
                in_flight=2_004,
                waiting_for_claims=2_005,
                lowest=OpenRecord(offset=9_110, handler="h", for_s=2_000.5, waits_for="its handler h"),
            ),
            PartitionFigures(partition=Partition("orders", 4, "broker-a"), phase="assigned"),
        ),
    )


def numbers(value: object) -> list[float]:
    """All figures somewhere in a snapshot."""
    if is_dataclass(value):
        return [found for field in fields(value) for found in numbers(getattr(value, field.name))]
    if isinstance(value, dict):
        return [found for each in value.values() for found in numbers(each)]
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


def values_of(name: str) -> list[Any]:
    [metric] = [each for each in METRICS if each.name == name]
    return [value for _, value in metric.read(numbered())]


def test_names_are_unique_and_as_prometheus_wants_them() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"holdfast_[a-z]+(_[a-z]+)*", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
        assert metric.help.endswith(".")
        assert all(re.fullmatch(r"[a-z]+", label) for label in metric.labels)
        if metric.unit in ("seconds", "bytes"):
            assert metric.unit in metric.name


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
@pytest.mark.parametrize("snapshot", [numbered(), Snapshot(state="new", group="g", at_ms=1)], ids=["numbered", "new"])
def test_each_is_read_from_any_snapshot_with_all_its_labels(metric: Metric, snapshot: Snapshot) -> None:
    for labels, value in metric.read(snapshot):
        assert len(labels) == len(metric.labels)
        assert all(isinstance(label, str) for label in labels)
        assert isinstance(value, Histogram) == (metric.kind is Kind.HISTOGRAM)


def test_every_figure_is_in_one_row_of_the_table_and_none_in_two() -> None:
    snapshot = numbered()
    read = [value for metric in METRICS for _, value in metric.read(snapshot)]
    plain = [value for value in read if not isinstance(value, (Histogram, bool)) and value > 1]
    histograms = [value for value in read if isinstance(value, Histogram)]
    # The count of a handler's calls is that of its histogram.
    [handler] = snapshot.handlers.values()
    assert [(one.bounds, one.counts, one.sum) for one in histograms] == [(BUCKETS_S, handler.buckets, handler.seconds)]
    shown = {*plain, handler.seconds, handler.calls}
    assert shown >= set(numbers(snapshot)) - {0, 1}
    plain.remove(2_003.5)  # the oldest record of all is one partition's
    assert len(plain) == len(set(plain))
    assert values_of("holdfast_partitions_assigned") == [3]
    assert values_of("holdfast_partitions_owned") == [2]


def test_lag_is_what_is_not_done_yet_and_unknown_is_not_zero() -> None:
    snapshot = numbered()
    assert [each.lag for each in snapshot.partitions] == [522, 524, None]
    assert snapshot.lag is None
    assert (snapshot.lag_known, snapshot.lag_unknown_in) == (1_046, 1)
    known = replace(snapshot, partitions=snapshot.partitions[:2])
    assert known.lag == 1_046
    assert Snapshot(state="new", group="g", at_ms=1).lag is None


def test_a_snapshot_goes_into_json() -> None:
    read = json.loads(json.dumps(numbered().as_dict()))
    assert (read["lag"], read["lag_known"], read["lag_unknown_in"]) == (None, 1_046, 1)
    assert [(each["partition"], each["lag"]) for each in read["partitions"]] == [
        ("orders-3", 522),
        ("payments-0", 524),
        ("orders-broker-a-4", None),
    ]
    assert read["store"]["calls"]["mark"]["calls"] > 0


def test_rebalances_are_told_from_the_start_so_that_the_first_of_each_kind_is_an_increase() -> None:
    [metric] = [each for each in METRICS if each.name == "holdfast_rebalances_total"]
    told = dict(metric.read(Snapshot(state="new", group="g", at_ms=1)))
    assert {labels[0] for labels in told} == {"assigned", "revoked", "lost", "leave", "session lost"}
    assert set(told.values()) == {0.0}
