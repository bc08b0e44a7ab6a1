"""Metrics for prometheus_client: the one table, as a collector. The only place that imports that package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import MissingExtraError
from holdfast.plugin.observe.metrics import METRICS, Histogram, Kind
from holdfast.plugin.observe.snapshot import check_groups

try:
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    if error.name != "prometheus_client":
        raise
    raise MissingExtraError("prometheus-client", "prometheus") from error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client.metrics_core import Metric as Family

    from holdfast.plugin.observe.metrics import Metric, Value
    from holdfast.plugin.observe.snapshot import HasSnapshot

__all__ = ["HoldfastCollector"]


class HoldfastCollector(Collector):
    """The metrics of apps, for a registry: `REGISTRY.register(HoldfastCollector(app))`.

    Names and labels are those of `METRICS`, with the label `group` before them. Each scrape takes one snapshot of each
    app, which waits for the app's loop up to a second. Any thread but that of an event loop.

    Args:
        apps: of different groups, running or not.
        partitions: also what is told of each partition: eight series for each one. The sums are told in any case.

    Raises:
        SettingError: no app, or two of one group.
    """

    def __init__(self, *apps: HasSnapshot, partitions: bool = False) -> None:
        check_groups(apps)
        self._apps = apps
        self._metrics = [metric for metric in METRICS if partitions or not metric.of_partitions]

    def describe(self) -> Iterable[Family]:
        """All families without values, for the registry: nobody is asked."""
        return [_family(metric) for metric in self._metrics]

    def collect(self) -> Iterable[Family]:
        """All families with the values of now."""
        snapshots = [app.snapshot() for app in self._apps]
        for metric in self._metrics:
            family = _family(metric)
            for snapshot in snapshots:
                for labels, value in metric.read(snapshot):
                    _add(family, (snapshot.group, *labels), value)
            yield family


def exposition(collector: HoldfastCollector, accept: str) -> tuple[bytes, str]:
    """The metrics of now and their content type, in the format that the header `Accept` asks for."""
    registry = CollectorRegistry()
    registry.register(collector)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


_FAMILIES: dict[Kind, type[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]] = {
    Kind.COUNTER: CounterMetricFamily,
    Kind.GAUGE: GaugeMetricFamily,
    Kind.HISTOGRAM: HistogramMetricFamily,
}


def _family(metric: Metric) -> Family:
    return _FAMILIES[metric.kind](metric.name, metric.help, labels=("group", *metric.labels))


def _add(family: Family, labels: Sequence[str], value: Value) -> None:
    if isinstance(family, HistogramMetricFamily) and isinstance(value, Histogram):
        family.add_metric(labels, value.cumulative(), value.sum)
    elif isinstance(family, CounterMetricFamily | GaugeMetricFamily) and not isinstance(value, Histogram):
        family.add_metric(labels, float(value))
