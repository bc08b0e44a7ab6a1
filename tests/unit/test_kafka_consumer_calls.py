"""KafkaConsumer's calls, and those of its asyncio kind, over a broker in memory."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition

from holdfast import MemoryClaims
from holdfast.adapters.kafka import AIOKafkaConsumer, KafkaConsumer, consumer
from holdfast.testing.brokers.kafka import MemoryBroker
from tests.harness.engine import partition
from tests.harness.message_source import MemoryMessageSource
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Callable

CONF = {"group.id": "g"}
#: Never this member's.
ELSEWHERE = TopicPartition("orders", 7)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> MemoryBroker:
    made = MemoryBroker(orders=2)
    monkeypatch.setattr(consumer, "MessageSource", functools.partial(MemoryMessageSource, made))
    return made


def polled(loop: KafkaConsumer, got: list[str], count: int) -> bool:
    message = loop.poll(0.05)
    got += [(message.value() or b"").decode()] if message is not None else []
    return len(got) >= count


def test_pause_and_resume_pass_over_what_is_not_assigned(broker: MemoryBroker) -> None:
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    got: list[str] = []
    with KafkaConsumer(CONF, claims=MemoryClaims()) as loop:
        loop.subscribe(["orders"])
        until(lambda: loop.poll(0.05) is None and len(loop.assignment()) == 2)
        loop.pause([ELSEWHERE, first])
        broker.produce("orders", 0, "held")
        broker.produce("orders", 1, "free")
        until(lambda: polled(loop, got, 1))
        assert got == ["free"]
        loop.pause([second])
        loop.resume([ELSEWHERE, first])
        broker.produce("orders", 1, "held now")
        until(lambda: polled(loop, got, 2))
        assert got == ["free", "held"]


def test_a_partition_that_is_resumed_while_it_is_elsewhere_is_not_held_when_it_comes_back(broker: MemoryBroker) -> None:
    first = TopicPartition("orders", 0)
    got: list[str] = []
    with KafkaConsumer(CONF, claims=MemoryClaims()) as loop:
        loop.subscribe(["orders"])
        until(lambda: loop.poll(0.05) is None and len(loop.assignment()) == 2)
        loop.pause([first])
        source: Any = loop._source
        broker.group("g").aim({source: []})
        until(lambda: loop.poll(0.05) is None and not loop.assignment())
        loop.resume([first])
        broker.group("g").aim({source: [partition(0), partition(1)]})
        broker.produce("orders", 0, "a")
        until(lambda: polled(loop, got, 1))


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("call", [lambda loop: loop.poll(), lambda loop: loop.consume(5), lambda loop: loop.commit()])
def test_a_call_that_is_cancelled_before_it_began_is_not_made(call: Callable[[Any], Any]) -> None:
    """Else they stand in line, each to be begun and ended, and whatever is called next behind them."""

    async def run() -> list[str]:
        loop = AIOKafkaConsumer(CONF, claims=MemoryClaims())
        made: list[str] = []
        inner: Any = loop._consumer
        for name in ("poll", "consume", "commit"):
            setattr(inner, name, lambda *_, name=name, **__: made.append(name))
        busy, goes_on = threading.Event(), threading.Event()

        def stand() -> None:
            busy.set()
            goes_on.wait(PATIENCE_S)

        loop._owner.submit(stand)
        busy.wait(PATIENCE_S)
        calls = [asyncio.create_task(call(loop)) for _ in range(100)]
        await asyncio.sleep(0)
        for each in calls:
            each.cancel()
        assert all(
            isinstance(each, asyncio.CancelledError) for each in await asyncio.gather(*calls, return_exceptions=True)
        )
        goes_on.set()
        await loop.close()
        return made

    assert asyncio.run(run()) == []
