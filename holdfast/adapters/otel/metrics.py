"""Metrics for OpenTelemetry: the one table, as observable instruments."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.errors import MissingExtraError
from holdfast.plugin.observe.metrics import METRICS, Histogram, Kind, Value
from holdfast.plugin.observe.snapshot import check_groups
from holdfast.timing import SYSTEM_CLOCK

try:
    from opentelemetry.metrics import Observation, get_meter
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "opentelemetry":
        raise
    raise MissingExtraError("opentelemetry-api", "otel") from error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from opentelemetry.metrics import CallbackOptions, MeterProvider

    from holdfast.plugin.observe.metrics import Metric
    from holdfast.plugin.observe.snapshot import HasSnapshot, Snapshot

#: Units as UCUM has them. A plain number has none: with "1" exporters for Prometheus append "_ratio".
_UNITS = {"seconds": "s", "bytes": "By", "records": "{record}", "events": "{event}", "records per second": "{record}/s"}
#: One collection asks all instruments one after the other: they are read from one snapshot.
_SAME_S = 1.0


def export_metrics(*apps: HasSnapshot, partitions: bool = False, meter_provider: MeterProvider | None = None) -> None:
    """Make an observable instrument for each metric of `METRICS`, for the life of the meter provider. Call it once.

    Names are those of the table, counters without `_total`; the attributes are its labels, and `group`. OpenTelemetry
    has no observable histogram: a histogram is told as three counters, `..._count`, `..._sum`, and `..._bucket` with
    the attribute `le`. Each collection takes one snapshot of each app, which waits for the app's loop up to a second,
    in the thread that collects.

    Args:
        apps: of different groups, running or not.
        partitions: also what is told of each partition: eight series for each one. The sums are told in any case.
        meter_provider: None: the global one.

    Raises:
        SettingError: no app, or two of one group.
    """
    check_groups(apps)
    meter = get_meter("holdfast", meter_provider=meter_provider)
    snapshots = _Snapshots(apps)
    for metric in METRICS:
        if metric.of_partitions and not partitions:
            continue
        parts = _PARTS if metric.kind is Kind.HISTOGRAM else {"": _number}
        for suffix, observe in parts.items():
            create = meter.create_observable_gauge if metric.kind is Kind.GAUGE else meter.create_observable_counter
            create(
                metric.name.removesuffix("_total") + suffix,
                callbacks=[_callback(metric, observe, snapshots)],
                unit=_UNITS.get(metric.unit, "") if suffix in ("", "_sum") else "",
                description=metric.help,
            )


class _Snapshots:
    """One of each app; the same for all who ask within a second. Any thread."""

    def __init__(self, apps: Sequence[HasSnapshot]) -> None:
        self._apps, self._lock = apps, threading.Lock()
        self._taken: list[Snapshot] = []
        self._until_s = 0.0

    def __call__(self) -> Sequence[Snapshot]:
        with self._lock:
            if not self._taken or SYSTEM_CLOCK.now() >= self._until_s:
                self._taken = [app.snapshot() for app in self._apps]
                self._until_s = SYSTEM_CLOCK.now() + _SAME_S
            return self._taken


#: What is observed of one value of the table.
Observe = Callable[[Value, dict[str, str]], "Iterable[Observation]"]


def _callback(
    metric: Metric, observe: Observe, snapshots: _Snapshots
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observed(_: CallbackOptions) -> Iterable[Observation]:
        for snapshot in snapshots():
            for labels, value in metric.read(snapshot):
                yield from observe(value, {"group": snapshot.group, **dict(zip(metric.labels, labels, strict=True))})

    return observed


def _number(value: Value, attributes: dict[str, str]) -> Iterable[Observation]:
    if not isinstance(value, Histogram):
        yield Observation(float(value), attributes)


def _count(value: Value, attributes: dict[str, str]) -> Iterable[Observation]:
    if isinstance(value, Histogram):
        yield Observation(value.count, attributes)


def _sum(value: Value, attributes: dict[str, str]) -> Iterable[Observation]:
    if isinstance(value, Histogram):
        yield Observation(value.sum, attributes)


def _buckets(value: Value, attributes: dict[str, str]) -> Iterable[Observation]:
    if isinstance(value, Histogram):
        for bound, count in value.cumulative():
            yield Observation(count, {**attributes, "le": bound})


#: By what is appended to the name of a histogram.
_PARTS: dict[str, Observe] = {"_count": _count, "_sum": _sum, "_bucket": _buckets}
