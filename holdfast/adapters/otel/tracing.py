"""Traces for OpenTelemetry: a span for each call of a handler, and for each rebalance.

Names are those of the semantic conventions for messaging, which are in development there; `holdfast.*` for what they do
not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import MissingExtraError
from holdfast.plugin.event_line import ranges_of
from holdfast.plugin.events import RebalanceReport
from holdfast.plugin.retrying.failures import kind_of

try:
    from opentelemetry import context, propagate
    from opentelemetry.propagators.textmap import Getter
    from opentelemetry.trace import (
        Link,
        SpanKind,
        Status,
        StatusCode,
        get_current_span,
        get_tracer,
        set_span_in_context,
    )
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "opentelemetry":
        raise
    raise MissingExtraError("opentelemetry-api", "otel") from error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.trace import Span, TracerProvider
    from opentelemetry.util.types import AttributeValue

    from holdfast.plugin.events import Event
    from holdfast.plugin.handling.handler_call import HandlerCall
    from holdfast.records import Record


class Tracing:
    """A middleware and an observer: `app.use(tracing)`, and `Holdfast(..., observers=[tracing])` for rebalances.

    Each call of a handler is a span of kind CONSUMER, "process <topic>". For one record it continues the trace of the
    producer, whose context the application's propagator finds in the record's headers (by default W3C's `traceparent`,
    `tracestate` and `baggage`); for a batch it begins a trace of its own, with a link to each record's. An error that
    leaves the handler is recorded, and what handlers do inside is traced below. So a record that is tried three times
    has three spans.

    Each rebalance is a span "rebalance", with one inside for each phase (fence, drain, settle, commit, let_go;
    take_over). It is told when its `RebalanceReport` is, at the times at which it was.

    What the headers say decides to which trace a span belongs, and nothing else.

    Args:
        system: what the broker is; "rocketmq" for RocketMQ.
        tracer_provider: None: the global one.
    """

    def __init__(self, *, system: str = "kafka", tracer_provider: TracerProvider | None = None) -> None:
        self._system = system
        self._tracer = get_tracer("holdfast", tracer_provider=tracer_provider)

    def __call__(self, call: HandlerCall) -> Iterator[None]:
        """Be the middleware."""
        sent = [propagate.extract(record, context.Context(), _HEADERS) for record in call.records]
        parent = context.Context() if call.is_batch else sent[0]
        token = context.attach(parent)  # with the producer's baggage
        try:
            with self._tracer.start_as_current_span(
                f"process {call.record.topic}",
                kind=SpanKind.CONSUMER,
                attributes=self._attributes(call),
                links=[Link(found) for each in sent if (found := get_current_span(each).get_span_context()).is_valid],
                record_exception=False,
                set_status_on_exception=False,
            ) as span:
                try:
                    yield
                except BaseException as error:
                    _failed(span, error)
                    raise
        finally:
            context.detach(token)

    def on_event(self, event: Event) -> None:
        """Be the observer."""
        if not isinstance(event, RebalanceReport):
            return
        at_ns = event.began_ms * 1_000_000
        span = self._tracer.start_span(
            "rebalance", context.Context(), SpanKind.INTERNAL, self._of_rebalance(event), start_time=at_ns
        )
        inside = set_span_in_context(span, context.Context())
        for phase, seconds in event.phases_s.items():
            part = self._tracer.start_span(phase, inside, start_time=at_ns)
            at_ns += round(seconds * 1e9)
            part.end(at_ns)
        span.end(at_ns)

    # ---- inside
    def _attributes(self, call: HandlerCall) -> dict[str, AttributeValue]:
        attributes: dict[str, AttributeValue] = {
            "messaging.system": self._system,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": call.record.topic,
            "messaging.destination.partition.id": str(call.fields["partition"]),
            "messaging.consumer.group.name": call.group,
            "holdfast.handler": call.handler,
            "holdfast.attempt": call.attempt,
        }
        if call.is_batch:
            return {**attributes, "messaging.batch.message_count": len(call.records)}
        kafka = self._system == "kafka"
        attributes["messaging.kafka.offset" if kafka else "holdfast.offset"] = call.record.offset
        if kafka and (key := _text(call.record.key)) is not None:
            attributes["messaging.kafka.message.key"] = key
        if kafka and call.record.value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        return attributes

    def _of_rebalance(self, report: RebalanceReport) -> dict[str, AttributeValue]:
        found: dict[str, AttributeValue | None] = {
            "messaging.system": self._system,
            "messaging.consumer.group.name": report.group,
            "holdfast.rebalance.trigger": report.trigger,
            "holdfast.rebalance.protocol": report.protocol,
            "holdfast.rebalance.gained": ranges_of(report.gained) or None,
            "holdfast.rebalance.given": ranges_of(report.given) or None,
            "holdfast.rebalance.drained": report.drained,
            "holdfast.rebalance.abandoned": report.abandoned,
            "holdfast.rebalance.handed_back": report.handed_back,
            "holdfast.rebalance.duplicates_suppressed": report.duplicates_suppressed,
            "holdfast.rebalance.pause_s": report.pause_s,
            "holdfast.rebalance.recovered_s": report.recovered_s,
        }
        return {name: value for name, value in found.items() if value is not None}


class _Headers(Getter["Record"]):
    """Headers as a propagator reads them: the last of a name, where it is text."""

    def get(self, carrier: Record, key: str) -> list[str] | None:
        found = _text(carrier.header(key))
        return None if found is None else [found]

    def keys(self, carrier: Record) -> list[str]:
        return [name for name, _ in carrier.headers]


_HEADERS = _Headers()


def _text(value: bytes | None) -> str | None:
    """None: there is none, or it is no text."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _failed(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", kind_of(error))
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
