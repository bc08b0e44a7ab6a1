"""What OpenTelemetry is given: the whole table, by its own SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Sum

from holdfast.adapters.otel import export_metrics
from holdfast.errors import SettingError
from holdfast.plugin.observe.metrics import METRICS, Histogram, Kind
from tests.unit.test_metrics import numbered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast import Holdfast
    from holdfast.plugin.observe.snapshot import Snapshot


class Stands:
    """An app of which nothing is asked but snapshots."""

    def __init__(self) -> None:
        self.taken = 0

    def snapshot(self) -> Snapshot:
        self.taken += 1
        return numbered()


@pytest.fixture
def reader() -> Iterator[InMemoryMetricReader]:
    reader = InMemoryMetricReader()
    yield reader
    reader.shutdown()


def collected(reader: InMemoryMetricReader, app: Stands, **options: Any) -> dict[str, Any]:
    """Metrics by their names."""
    provider = MeterProvider([reader], shutdown_on_exit=False)
    export_metrics(cast("Holdfast", app), meter_provider=provider, **options)
    data = reader.get_metrics_data()
    assert data is not None
    [resource] = data.resource_metrics
    [scope] = resource.scope_metrics
    assert scope.scope.name == "holdfast"
    return {metric.name: metric for metric in scope.metrics}


def points(metric: Any) -> dict[frozenset[tuple[str, str]], float]:
    return {frozenset(point.attributes.items()): point.value for point in metric.data.data_points}


def test_every_value_of_the_table_is_observed_from_one_snapshot(reader: InMemoryMetricReader) -> None:
    app = Stands()
    found = collected(reader, app, partitions=True)
    assert app.taken == 2  # one for its group
    for metric in METRICS:
        for labels, value in metric.read(numbered()):
            named = {"group": "g", **dict(zip(metric.labels, labels, strict=True))}
            if isinstance(value, Histogram):
                assert points(found[f"{metric.name}_count"])[frozenset(named.items())] == value.count
                assert points(found[f"{metric.name}_sum"])[frozenset(named.items())] == value.sum
                buckets = points(found[f"{metric.name}_bucket"])
                assert buckets[frozenset({**named, "le": "0.005"}.items())] == sum(value.counts[:2])
                assert buckets[frozenset({**named, "le": "+Inf"}.items())] == value.count
            else:
                one = found[metric.name.removesuffix("_total")]
                assert points(one)[frozenset(named.items())] == value
                assert isinstance(one.data, Sum) is (metric.kind is Kind.COUNTER)
                assert not isinstance(one.data, Sum) or one.data.is_monotonic
                assert one.description == metric.help


def test_nothing_is_told_of_each_partition_unless_that_is_asked_for(reader: InMemoryMetricReader) -> None:
    found = collected(reader, Stands())
    assert [name for name in found if "partition_" in name] == []
    assert "holdfast_lag_records" not in found  # it is not known of each partition
    assert points(found["holdfast_partitions_lag_unknown"]) == {frozenset({("group", "g")}): 1}
    assert (found["holdfast_uptime_seconds"].unit, found["holdfast_in_flight_bytes"].unit) == ("s", "By")


def test_apps_of_one_group_are_refused() -> None:
    for apps in ((), (Stands(), Stands())):
        with pytest.raises(SettingError, match="each with a group of its own"):
            export_metrics(*cast("tuple[Holdfast, ...]", apps))
