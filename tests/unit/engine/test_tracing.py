"""Traces: a span for each call of a handler, in the trace of its producer, and one for each rebalance."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, format_trace_id

from holdfast import BatchOf, Settings
from holdfast.adapters.otel import Tracing
from holdfast.plugin.events import RebalanceReport, SourceTrouble
from holdfast.records import Partition
from tests.harness.engine import Bench, Letters

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

    from holdfast import Record

#: Of producers, by number: their trace and their span.
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4{:03d}", "00f067aa0ba90{:03d}"


def parent(number: int) -> tuple[tuple[str, bytes], ...]:
    return (("traceparent", f"00-{TRACE.format(number)}-{SPAN.format(number)}-01".encode()),)


class Traced:
    """An app with `Tracing` on records with headers, until they are done."""

    def __init__(self, *headers: tuple[tuple[str, bytes], ...], value: str | None = "value") -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.headers, self.value = headers, value

    def run(self, handler: Callable[[Any], Any], system: str = "kafka", **handling: Any) -> Sequence[ReadableSpan]:
        tracing = Tracing(system=system, tracer_provider=self.provider)
        with Bench() as bench:
            for number, headers in enumerate(self.headers):
                bench.broker.produce("orders", 0, self.value, key=f"key {number}", headers=headers)
            member = bench.member(
                handler=handler,
                observers=[tracing],
                dead_letters=Letters(bench.changed),
                dead_letter="dlq",
                settings=Settings(workers=2, commit_interval_s=0.01),
                start=False,
                **handling,
            )
            member.app.use(tracing)
            member.start()
            bench.wait_committed(len(self.headers))
            member.stop()
        return self.exporter.get_finished_spans()

    def calls(self, handler: Callable[[Any], Any], **more: Any) -> list[ReadableSpan]:
        return [span for span in self.run(handler, **more) if span.kind is SpanKind.CONSUMER]


def trace_of(span: ReadableSpan) -> str:
    return format_trace_id(span.context.trace_id)


def test_a_record_continues_the_trace_of_its_producer() -> None:
    [span] = Traced(parent(1)).calls(lambda record: None)
    assert trace_of(span) == TRACE.format(1)
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == SPAN.format(1)
    assert [f"{link.context.span_id:016x}" for link in span.links] == [SPAN.format(1)]
    assert span.name == "process orders"
    assert span.status.status_code is StatusCode.UNSET
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.consumer.group.name": "g",
        "messaging.kafka.offset": 0,
        "messaging.kafka.message.key": "key 0",
        "holdfast.handler": "handle",
        "holdfast.attempt": 1,
    }


@pytest.mark.parametrize("is_async", [False, True])
def test_what_the_handler_traces_is_below_and_the_producers_baggage_is_there(*, is_async: bool) -> None:
    traced = Traced((*parent(1), ("baggage", b"tenant=blue")), (*parent(2), ("baggage", b"tenant=red")))
    tracer = traced.provider.get_tracer("shop")
    tenants = {}

    def plain(record: Record) -> None:
        tenants[record.offset] = baggage.get_baggage("tenant")
        tracer.start_span("inside").end()

    async def coroutine(record: Record) -> None:
        await asyncio.sleep(0)
        plain(record)
        await asyncio.sleep(0)

    spans = traced.run(coroutine if is_async else plain)
    calls = {span.context.span_id: span for span in spans if span.kind is SpanKind.CONSUMER}
    inside = [span for span in spans if span.name == "inside"]
    assert sorted(map(trace_of, inside)) == [TRACE.format(1), TRACE.format(2)]
    assert all(span.parent and trace_of(calls[span.parent.span_id]) == trace_of(span) for span in inside)
    assert tenants == {0: "blue", 1: "red"}


def test_each_attempt_is_a_span_with_its_error() -> None:
    errors = [ValueError("once"), ValueError("twice")]

    def handle(record: Record) -> None:
        if errors:
            raise errors.pop(0)

    spans = Traced(parent(1)).calls(handle)
    assert [(span.attributes or {})["holdfast.attempt"] for span in spans] == [1, 2, 3]
    assert [(span.attributes or {}).get("error.type") for span in spans] == ["ValueError", "ValueError", None]
    assert [span.status.status_code for span in spans] == [StatusCode.ERROR, StatusCode.ERROR, StatusCode.UNSET]
    assert [[event.name for event in span.events] for span in spans] == [["exception"], ["exception"], []]
    assert {trace_of(span) for span in spans} == {TRACE.format(1)}


def test_a_batch_is_one_span_of_its_own_trace_with_a_link_to_each_record() -> None:
    [span] = Traced(parent(1), (), parent(2)).calls(lambda records: None, batch=BatchOf(records=3, wait_s=60.0))
    assert span.parent is None
    assert [format_trace_id(link.context.trace_id) for link in span.links] == [TRACE.format(1), TRACE.format(2)]
    attributes = span.attributes or {}
    assert attributes["messaging.batch.message_count"] == 3
    assert "messaging.kafka.offset" not in attributes


@pytest.mark.parametrize("headers", [(), (("traceparent", b"\xff\xfe"),), (("traceparent", b"nonsense"),)])
def test_without_a_context_that_can_be_read_it_is_a_trace_of_its_own(headers: Any) -> None:
    [span] = Traced(headers).calls(lambda record: None)
    assert span.parent is None
    assert span.links == ()


def test_a_tombstone_and_another_broker_are_told() -> None:
    [span] = Traced((), value=None).calls(lambda record: None)
    assert (span.attributes or {})["messaging.kafka.message.tombstone"] is True
    [span] = Traced(()).calls(lambda record: None, system="rocketmq")
    attributes = span.attributes or {}
    assert (attributes["messaging.system"], attributes["holdfast.offset"]) == ("rocketmq", 0)
    assert not any("kafka" in name for name in attributes)


def test_a_cancelled_coroutine_ends_its_span_as_an_error() -> None:
    async def handle(record: Record) -> None:
        raise asyncio.CancelledError

    spans = Traced(()).calls(handle)
    assert {span.status.status_code for span in spans} == {StatusCode.ERROR}


def test_a_rebalance_is_a_span_with_its_phases_at_their_times() -> None:
    traced = Traced()
    tracing = Tracing(tracer_provider=traced.provider)
    tracing.on_event(SourceTrouble(error="not a rebalance"))
    tracing.on_event(
        RebalanceReport(
            trigger="revoked",
            protocol="consumer",
            group="g",
            began_ms=1_790_000_000_000,
            given=(Partition("orders", 0), Partition("orders", 1)),
            drained=2,
            phases_s={"fence": 0.0, "drain": 0.25, "commit": 0.5},
        )
    )
    fence, drain, commit, whole = traced.exporter.get_finished_spans()
    at = 1_790_000_000_000_000_000
    assert [(each.name, each.start_time, each.end_time) for each in (fence, drain, commit, whole)] == [
        ("fence", at, at),
        ("drain", at, at + 250_000_000),
        ("commit", at + 250_000_000, at + 750_000_000),
        ("rebalance", at, at + 750_000_000),
    ]
    assert {each.parent.span_id for each in (fence, drain, commit) if each.parent} == {whole.context.span_id}
    attributes = whole.attributes or {}
    assert attributes["holdfast.rebalance.given"] == "orders-[0-1]"
    assert attributes["holdfast.rebalance.trigger"] == "revoked"
    assert attributes["holdfast.rebalance.drained"] == 2
    assert "holdfast.rebalance.gained" not in attributes
    assert "holdfast.rebalance.pause_s" not in attributes


def test_the_rebalances_of_an_app_are_spans_beside_its_calls() -> None:
    before = trace.get_current_span()
    spans = Traced(parent(1)).run(lambda record: None)
    whole = {span.context.span_id: span for span in spans if span.name == "rebalance"}
    triggers = [(span.attributes or {})["holdfast.rebalance.trigger"] for span in whole.values()]
    assert sorted(map(str, triggers)) == ["assigned", "leave"]
    phases = [span for span in spans if span.parent is not None and span.parent.span_id in whole]
    assert {"take_over", "fence", "drain", "settle", "let_go"} <= {span.name for span in phases}
    calls = [span for span in spans if span.kind is SpanKind.CONSUMER]
    starts = sorted(span.start_time or 0 for span in whole.values())
    assert starts[0] <= (calls[0].start_time or 0) <= starts[1]
    assert trace.get_current_span() is before
