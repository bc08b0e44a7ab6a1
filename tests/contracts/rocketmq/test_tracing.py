"""The trace of a producer goes on in the handler, by way of a real RocketMQ: its context is in the properties."""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING

from opentelemetry import propagate
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from holdfast import Holdfast, RedisClaims, RedisCoordinator, Settings
from holdfast.adapters.otel import Tracing
from holdfast.adapters.rocketmq import RocketMQProducer, RocketMQSource
from tests.harness.rocketmq_topics import make_topic
from tests.harness.running import Running
from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    from holdfast import Record
    from tests.harness.servers.rocketmq import RocketMQServer

RECORDS = 4


def test_a_handlers_span_is_in_the_trace_of_its_producer(rocketmq: RocketMQServer, redis_url: str) -> None:
    topic, group = make_topic(rocketmq.namesrv, 1), f"group-{uuid.uuid4().hex[:8]}"
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer, sent = provider.get_tracer("shop"), []
    producer = RocketMQProducer(rocketmq.namesrv)
    for number in range(RECORDS):
        with tracer.start_as_current_span("send", kind=SpanKind.PRODUCER) as span:
            properties: dict[str, str] = {}
            propagate.inject(properties)
            producer.send(topic, b"%d" % number, properties=properties)
            sent.append(span.get_span_context())
    producer.close()

    handled: list[Record] = []
    all_handled = threading.Event()

    def handle(record: Record) -> None:
        with tracer.start_as_current_span("inside"):
            handled.append(record)
        if len(handled) == RECORDS:
            all_handled.set()

    claims = RedisClaims.from_url(redis_url, namespace=group)
    source = RocketMQSource(rocketmq.namesrv, group, coordinator=RedisCoordinator(claims))
    member, tracing = Running(threading.Condition()), Tracing(system="rocketmq", tracer_provider=provider)
    app = member.app = Holdfast(source, claims=claims, settings=Settings(ramp=None), observers=[tracing])
    app.use(tracing)
    app.handler(topic)(handle)
    member.start()
    assert all_handled.wait(PATIENCE_S)
    member.stop()
    claims.close()

    spans = exporter.get_finished_spans()
    calls = [span for span in spans if span.kind is SpanKind.CONSUMER]
    by_offset = {(call.attributes or {})["holdfast.offset"]: call for call in calls}
    parents = [by_offset[offset].parent for offset in range(RECORDS)]
    assert [parent and (parent.trace_id, parent.span_id) for parent in parents] == [
        (each.trace_id, each.span_id) for each in sent
    ]
    for call in calls:
        told = call.attributes or {}
        assert (told["messaging.system"], told["messaging.destination.name"]) == ("rocketmq", topic)
        assert told["messaging.consumer.group.name"] == group
        assert not [name for name in told if "kafka" in name]
    inside = [span.parent.span_id for span in spans if span.name == "inside" and span.parent is not None]
    assert sorted(inside) == sorted(call.context.span_id for call in calls)
    rebalances = [span.attributes or {} for span in spans if span.name == "rebalance"]
    assert {each["messaging.system"] for each in rebalances} == {"rocketmq"}
