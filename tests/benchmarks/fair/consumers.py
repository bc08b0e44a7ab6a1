"""What is compared, each in a process of its own: an app, a loop around a KafkaConsumer, a loop of the bare client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer

from holdfast import Holdfast, RedisClaims, Settings
from holdfast.adapters.kafka import KafkaConsumer, KafkaSource
from tests.benchmarks.fair.fresh import Fresh

if TYPE_CHECKING:
    from tests.benchmarks.fair.fresh import Plan, Waits


def client(plan: Plan) -> dict[str, Any]:
    """A consumer's configuration, with the client's own fetch sizes."""
    return {
        "bootstrap.servers": plan.bootstrap,
        "group.id": plan.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "group.protocol": "consumer",
        "log_level": 0,
    }


def app(plan: Plan, redis_url: str) -> Waits:
    """The whole app, with position dedup and the default ramp."""
    claims = RedisClaims.from_url(redis_url, namespace=plan.group)
    holdfast = Holdfast(
        KafkaSource(client(plan), assignment="keep"), claims=claims, settings=Settings(workers=plan.workers)
    )
    fresh = Fresh(plan, lambda _: holdfast.stop())
    holdfast.handler(plan.topic, name="bench")(lambda record: fresh.handle(record.value))
    holdfast.run()
    return fresh.waits


def own_loop(plan: Plan, redis_url: str, messages: int) -> Waits:
    """A loop around a KafkaConsumer that handles each message: of poll(), or of consume(messages) if it is not 1."""
    claims = RedisClaims.from_url(redis_url, namespace=plan.group)
    consumer = KafkaConsumer(client(plan), claims=claims, done_when="next_poll")
    return _loop(consumer, plan, messages)


def bare(plan: Plan, messages: int, more: dict[str, Any]) -> Waits:
    """The same around the bare client. Args: more: of its configuration."""
    return _loop(Consumer(client(plan) | more), plan, messages)


def _loop(consumer: Consumer | KafkaConsumer, plan: Plan, messages: int) -> Waits:
    fresh = Fresh(plan, lambda _: None)
    consumer.subscribe([plan.topic])
    while not fresh.finished:
        fresh.polls += 1
        got = consumer.consume(messages, 0.1) if messages > 1 else [consumer.poll(0.1)]
        for message in got:
            if message is not None and message.error() is None and not fresh.finished:
                fresh.handle(message.value())
    consumer.close()
    return fresh.waits
