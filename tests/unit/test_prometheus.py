"""What Prometheus is given: the whole table, by its own client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as plain_families

from holdfast.adapters.prometheus import HoldfastCollector, exposition
from holdfast.errors import SettingError
from holdfast.plugin.observe.metrics import METRICS, Histogram
from holdfast.plugin.observe.snapshot import PartitionFigures, Snapshot
from holdfast.records import Partition
from tests.unit.test_metrics import numbered

if TYPE_CHECKING:
    from holdfast import Holdfast

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


def app(snapshot: Snapshot) -> Holdfast:
    """An app of which nothing is asked but a snapshot."""

    class Stands:
        def snapshot(self) -> Snapshot:
            return snapshot

    return cast("Holdfast", Stands())


def key(name: str, labels: dict[str, str]) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def samples(*apps: Holdfast, accept: str = OPEN_METRICS, **options: Any) -> dict[object, float]:
    """Values by `key`."""
    written, content_type = exposition(HoldfastCollector(*apps, **options), accept)
    parse = text_string_to_metric_families if "openmetrics" in content_type else plain_families
    return {
        key(sample.name, sample.labels): sample.value for family in parse(written.decode()) for sample in family.samples
    }


@pytest.mark.parametrize("accept", [OPEN_METRICS, "text/plain"])
def test_every_value_of_the_table_is_told_in_both_formats(accept: str) -> None:
    snapshot = numbered()
    found = samples(app(snapshot), accept=accept, partitions=True)
    for metric in METRICS:
        for labels, value in metric.read(snapshot):
            named = {"group": "g", **dict(zip(metric.labels, labels, strict=True))}
            if isinstance(value, Histogram):
                assert found[key(f"{metric.name}_count", named)] == value.count
                assert found[key(f"{metric.name}_sum", named)] == value.sum
                assert found[key(f"{metric.name}_bucket", {**named, "le": "0.005"})] == sum(value.counts[:2])
                assert found[key(f"{metric.name}_bucket", {**named, "le": "+Inf"})] == value.count
            else:
                assert found[key(metric.name, named)] == value


def test_the_number_of_series_does_not_grow_with_the_partitions_unless_that_is_asked_for() -> None:
    def series(count: int, **options: Any) -> int:
        several = tuple(
            PartitionFigures(partition=Partition("orders", number), phase="owned", watermark=1, log_end=2)
            for number in range(count)
        )
        return len(samples(app(Snapshot(state="running", group="g", at_ms=1, partitions=several)), **options))

    assert series(1) == series(500) < 100
    assert series(500, partitions=True) > 500


def test_several_apps_share_the_names_and_differ_in_the_group() -> None:
    other = Snapshot(state="stopped", group="other", at_ms=1, uptime_s=0.5)
    found = samples(app(numbered()), app(other))
    assert found[key("holdfast_uptime_seconds", {"group": "other"})] == 0.5
    assert found[key("holdfast_uptime_seconds", {"group": "g"})] == numbered().uptime_s
    for wrong in ((), (app(other), app(other))):
        with pytest.raises(SettingError, match="each with a group of its own"):
            HoldfastCollector(*wrong)


def test_a_registry_takes_it_without_a_look_at_the_app_and_refuses_it_twice() -> None:
    class Once:
        asked = 0

        def snapshot(self) -> Snapshot:
            self.asked += 1
            return numbered()

    registry, once = CollectorRegistry(auto_describe=True), Once()
    registry.register(HoldfastCollector(cast("Holdfast", once)))
    assert once.asked == 1  # for its group
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(HoldfastCollector(app(numbered())))
