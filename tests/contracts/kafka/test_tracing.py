"""The trace of a producer goes on in the handler, by way of a real Kafka."""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from opentelemetry import propagate
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from holdfast import BatchOf, Holdfast, RedisClaims, Settings
from holdfast.adapters.kafka import KafkaSource
from holdfast.adapters.otel import Tracing
from tests.harness.running import Running
from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    from holdfast import Record
    from tests.harness.servers.kafka import KafkaServer

RECORDS = 4


@pytest.mark.parametrize("kind", ["plain", "coroutine", "batch"])
def test_a_handlers_span_is_in_the_trace_of_its_producer(kafka: KafkaServer, redis_url: str, kind: str) -> None:
    name = uuid.uuid4().hex[:8]
    topic, group = f"orders-{name}", f"group-{name}"
    kafka.create_topic(topic, 1)
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer, sent = provider.get_tracer("shop"), []
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(RECORDS):
        with tracer.start_as_current_span("send", kind=SpanKind.PRODUCER) as span:
            headers: dict[str, str] = {}
            propagate.inject(headers)
            producer.produce(topic, b"%d" % number, key=b"key", headers=list(headers.items()))
            sent.append(span.get_span_context())
    assert producer.flush(PATIENCE_S) == 0

    handled: list[Record] = []
    all_handled = threading.Event()

    def plain(given: Any) -> None:
        with tracer.start_as_current_span("inside"):
            handled.extend(given if isinstance(given, list) else [given])
        if len(handled) == RECORDS:
            all_handled.set()

    async def coroutine(record: Record) -> None:
        plain(record)

    claims = RedisClaims.from_url(redis_url, namespace=group)
    conf = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    member, tracing = Running(threading.Condition()), Tracing(tracer_provider=provider)
    app = member.app = Holdfast(
        KafkaSource(conf, assignment="sticky"), claims=claims, settings=Settings(ramp=None), observers=[tracing]
    )
    app.use(tracing)
    batch = BatchOf(records=RECORDS, wait_s=PATIENCE_S) if kind == "batch" else None
    app.handler(topic, batch=batch)(coroutine if kind == "coroutine" else plain)
    member.start()
    assert all_handled.wait(PATIENCE_S)
    member.stop()  # drains, commits, and tells its rebalances
    claims.close()

    spans = exporter.get_finished_spans()
    calls = [span for span in spans if span.kind is SpanKind.CONSUMER]
    if batch is not None:
        [call] = calls
        assert [link.context.span_id for link in call.links] == [each.span_id for each in sent]
    else:
        by_offset = {(call.attributes or {})["messaging.kafka.offset"]: call for call in calls}
        parents = [by_offset[offset].parent for offset in range(RECORDS)]
        assert [parent and (parent.trace_id, parent.span_id) for parent in parents] == [
            (each.trace_id, each.span_id) for each in sent
        ]
    inside = [span.parent.span_id for span in spans if span.name == "inside" and span.parent is not None]
    assert sorted(inside) == sorted(call.context.span_id for call in calls)
    rebalances = [(span.attributes or {}) for span in spans if span.name == "rebalance"]
    assert {each["holdfast.rebalance.trigger"] for each in rebalances} >= {"assigned"}
    assert {each["messaging.consumer.group.name"] for each in rebalances} == {group}
