"""KafkaConsumer's two relatives, the deserialising and the asyncio one, on a real broker and a real Redis."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.error import ConsumeError, ValueDeserializationError
from confluent_kafka.serialization import StringDeserializer

from holdfast import RedisClaims
from holdfast.adapters.kafka import AIOKafkaConsumer, DeserializingKafkaConsumer
from holdfast.errors import SettingError
from tests.contracts.kafka.test_consumer import Loops, read, static_ids
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.harness.servers.kafka import KafkaServer

    InLoop = Callable[..., Any]

_PATIENCE_S = 30.0


@pytest.fixture
def loops(kafka: KafkaServer, redis_url: str) -> Iterator[Loops]:
    made = Loops(kafka, redis_url)
    yield made
    made.close()


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def in_loop(request: pytest.FixtureRequest) -> InLoop:
    """Runs a coroutine in an event loop of each kind."""
    run: InLoop = request.param
    return run


def conf_of(loops: Loops, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": loops.kafka.bootstrap,
        "group.id": loops.group,
        "auto.offset.reset": "earliest",
        "group.protocol": "consumer",
    } | more


def claims_of(loops: Loops) -> RedisClaims:
    return RedisClaims.from_url(loops.redis_url, namespace=loops.group, lease_s=30.0)


async def values(consumer: AIOKafkaConsumer, count: int) -> list[str]:
    """What it polls, as text."""
    got: list[str] = []
    while len(got) < count:
        message = await consumer.poll(0.1)
        if message is not None:
            got.append((message.value() or b"").decode())
    return got


def deserialising(loops: Loops, **how: Any) -> DeserializingKafkaConsumer:
    conf = conf_of(loops) | {"key.deserializer": StringDeserializer(), "value.deserializer": lambda raw, _: int(raw)}
    made = DeserializingKafkaConsumer(conf, claims=claims_of(loops), **how)
    loops.consumers.append(made)
    made.subscribe([loops.topic])
    return made


def test_keys_and_values_are_deserialised_and_a_key_function_sees_them(loops: Loops) -> None:
    loops.produce(["7", "8", "7"], partition=0, key="k")
    consumer = deserialising(loops, key=lambda record: record.value % 5)
    got: list[Any] = []

    def more() -> bool:
        message = consumer.poll(0.1)
        if message is not None:
            got.append((message.key(), message.value()))
        return len(got) >= 2

    until(more)
    assert got == [("k", 7), ("k", 8)]
    assert consumer.poll(0.2) is None  # the third is a duplicate by its key


def test_what_cannot_be_deserialised_is_raised_in_its_turn_and_does_not_stop_the_rest(loops: Loops) -> None:
    loops.produce(["1", "poison", "3"], partition=0)
    consumer = deserialising(loops)
    got: list[Any] = []

    def more() -> bool:
        try:
            message = consumer.poll(0.1)
        except ValueDeserializationError as error:
            got.append(error.kafka_message.value() if error.kafka_message else None)
        else:
            if message is not None:
                got.append(message.value())
        return len(got) >= 3

    until(more)
    assert got == [1, b"poison", 3]


def test_errors_are_raised_as_the_client_does_it(loops: Loops) -> None:
    conf = conf_of(loops) | {"enable.partition.eof": True}
    consumer = DeserializingKafkaConsumer(conf, claims=claims_of(loops))
    loops.consumers.append(consumer)
    consumer.subscribe([loops.topic])
    with pytest.raises(ConsumeError) as caught:
        until(lambda: consumer.poll(0.1) is not None)
    assert caught.value.code == KafkaError._PARTITION_EOF
    with pytest.raises(NotImplementedError):
        consumer.consume(1, 0)


def test_a_builder_is_refused_with_what_to_do() -> None:
    with pytest.raises(SettingError, match=r"make the deserialiser and pass it as value\.deserializer"):
        DeserializingKafkaConsumer(
            {"bootstrap.servers": "x", "group.id": "g", "value.deserializer.builder": object()}, claims=None
        )


def test_an_asyncio_loop_reads_every_record_once(loops: Loops, in_loop: InLoop) -> None:
    loops.produce(str(number) for number in range(20))

    async def run(count: int) -> list[int]:
        got: list[int] = []
        async with AIOKafkaConsumer(conf_of(loops), claims=claims_of(loops)) as consumer:
            await consumer.subscribe([loops.topic])
            while len(got) < count:
                for message in await consumer.consume(5, 0.2):
                    assert message.error() is None
                    got.append(int(message.value() or b""))
        return got

    first = in_loop(asyncio.wait_for(run(20), _PATIENCE_S))
    loops.produce(str(number) for number in range(20, 24))
    second = in_loop(asyncio.wait_for(run(4), _PATIENCE_S))
    assert sorted(first + second) == list(range(24))


def test_callbacks_of_an_asyncio_loop_may_call_the_consumer(loops: Loops, in_loop: InLoop) -> None:
    loops.produce(["a", "b", "c"], partition=0)
    told: list[str] = []

    async def run() -> list[str]:
        consumer = AIOKafkaConsumer(conf_of(loops), claims=claims_of(loops))

        async def on_assign(came_to: AIOKafkaConsumer, partitions: list[TopicPartition]) -> None:
            assert came_to is consumer
            assert {one.partition for one in await consumer.assignment()} == {one.partition for one in partitions}
            await consumer.assign([TopicPartition(loops.topic, 0, 1)])
            told.append("assign")

        async def on_revoke(_: AIOKafkaConsumer, __: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            told.append("revoke")

        await consumer.subscribe([loops.topic], on_assign=on_assign, on_revoke=on_revoke)
        got = await values(consumer, 2)
        await consumer.close()
        return got

    assert in_loop(asyncio.wait_for(run(), _PATIENCE_S)) == ["b", "c"]
    assert told == ["assign", "revoke"]


def test_what_on_revoke_commits_while_a_consumer_is_closed_does_not_come_again(loops: Loops, in_loop: InLoop) -> None:
    loops.produce(["a", "b"], partition=0)

    async def commit(consumer: AIOKafkaConsumer, _: list[TopicPartition]) -> None:
        await consumer.commit(asynchronous=False)

    async def run() -> list[str]:
        consumer = AIOKafkaConsumer(conf_of(loops) | {"enable.auto.commit": False}, claims=claims_of(loops))
        await consumer.subscribe([loops.topic], on_revoke=commit)
        got = await values(consumer, 2)
        await consumer.close()
        return got

    assert in_loop(asyncio.wait_for(run(), _PATIENCE_S)) == ["a", "b"]
    loops.produce(["c"], partition=0)
    assert read(loops.joined(), 1) == ["c"]


def test_a_callback_may_give_up_a_call_and_make_another(loops: Loops, in_loop: InLoop) -> None:
    told: list[int] = []

    async def run() -> None:
        consumer = AIOKafkaConsumer(conf_of(loops), claims=claims_of(loops))

        async def on_assign(_: AIOKafkaConsumer, partitions: list[TopicPartition]) -> None:
            asking = asyncio.create_task(consumer.get_watermark_offsets(partitions[0], _PATIENCE_S))
            await asyncio.sleep(0)  # it waits for the broker's answer
            asking.cancel()
            told.append(len(await consumer.assignment()))

        await consumer.subscribe([loops.topic], on_assign=on_assign)
        while not told:
            await consumer.poll(0.1)
        await consumer.close()

    in_loop(asyncio.wait_for(run(), _PATIENCE_S))
    assert told == [loops.partitions]


def test_a_poll_that_is_cancelled_loses_nothing(loops: Loops, in_loop: InLoop) -> None:
    async def run() -> list[str]:
        async with AIOKafkaConsumer(conf_of(loops), claims=claims_of(loops)) as consumer:
            await consumer.subscribe([loops.topic])
            while len(await consumer.assignment()) < loops.partitions:
                await consumer.poll(0.1)
            polls = asyncio.create_task(consumer.poll())
            await asyncio.sleep(0)
            loops.produce(["a", "b"], partition=0)
            polls.cancel()
            with pytest.raises(asyncio.CancelledError):
                await polls
            return await values(consumer, 2)

    assert in_loop(asyncio.wait_for(run(), _PATIENCE_S)) == ["a", "b"]
    loops.produce(["c"], partition=0)
    assert read(loops.joined(), 1) == ["c"]


def test_a_close_that_is_cancelled_closes_all_the_same(loops: Loops, in_loop: InLoop) -> None:
    """Of which nobody waits for the end any more, while the client is busy with a callback: else the member would stay,
    with its partitions, for max.poll.interval.ms."""

    async def go() -> None:
        consumer = AIOKafkaConsumer(conf_of(loops), claims=claims_of(loops))
        called, may_end = asyncio.Event(), asyncio.Event()

        async def on_assign(_: object, __: object) -> None:
            called.set()
            await may_end.wait()

        await consumer.subscribe([loops.topic], on_assign=on_assign)
        poll = asyncio.create_task(consumer.poll())
        await called.wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.close(), 0.1)
        may_end.set()
        with pytest.raises(RuntimeError, match="closed"):
            await poll
        await asyncio.to_thread(until, lambda: not static_ids(loops))

    in_loop(go())


def test_other_calls_do_not_wait_for_a_poll_that_waits(loops: Loops, in_loop: InLoop) -> None:
    async def run() -> None:
        conf = conf_of(loops)
        consumer = AIOKafkaConsumer(conf, claims=claims_of(loops), done_when="explicit")
        await consumer.subscribe([loops.topic])
        while len(await consumer.assignment()) < loops.partitions:
            await consumer.poll(0.1)
        loops.produce(["a", "b"], partition=0)
        first, second = await consumer.poll(), await consumer.poll()
        assert first is not None
        assert second is not None
        polls = asyncio.create_task(consumer.poll())  # of a topic where nothing comes any more
        await asyncio.sleep(0)
        await consumer.done(first)
        await consumer.done(second)
        await asyncio.to_thread(until, lambda: consumer.snapshot().records.handled == 2)
        await consumer.commit(asynchronous=False)
        assert {each.offset for each in await consumer.committed([TopicPartition(loops.topic, 0)])} == {2}
        assert not polls.done()
        loops.produce(["c"], partition=0)
        third = await polls
        assert third is not None
        assert third.value() == b"c"
        await consumer.done(third)
        polls = asyncio.create_task(consumer.poll())
        await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises(RuntimeError, match="closed"):
            await polls

    in_loop(asyncio.wait_for(run(), _PATIENCE_S))


def test_a_poll_that_is_cancelled_loses_no_error(loops: Loops, in_loop: InLoop) -> None:
    read_by_client = threading.Event()

    def number(raw: bytes, _: object) -> int:
        read_by_client.set()
        return int(raw)

    async def run() -> list[Any]:
        got: list[Any] = []
        conf = conf_of(loops) | {"value.deserializer": number}
        async with AIOKafkaConsumer(conf, claims=claims_of(loops)) as consumer:
            await consumer.subscribe([loops.topic])
            while len(await consumer.assignment()) < loops.partitions:
                await consumer.poll(0.1)
            polls = asyncio.create_task(consumer.poll())
            await asyncio.sleep(0)
            loops.produce(["poison", "2"], partition=0)
            # The event loop stands still meanwhile: what the poll comes back with finds it cancelled.
            assert read_by_client.wait(_PATIENCE_S)
            polls.cancel()
            with pytest.raises(asyncio.CancelledError):
                await polls
            while len(got) < 2:
                try:
                    message = await consumer.poll(0.1)
                except ValueDeserializationError as error:
                    got.append(error.kafka_message.value() if error.kafka_message else None)
                else:
                    got += [message.value()] if message is not None else []
        return got

    assert in_loop(asyncio.wait_for(run(), _PATIENCE_S)) == [b"poison", 2]
