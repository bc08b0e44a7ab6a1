"""KafkaConsumer in a bare loop, on a real broker and a real Redis: what the client does, and what it does not."""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Producer, TopicPartition

from holdfast import RedisClaims, Settings
from holdfast.adapters.kafka import KafkaConsumer
from holdfast.errors import KeyMissing
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from confluent_kafka import Message

    from tests.harness.servers.kafka import KafkaServer

_PATIENCE_S = 30.0


class Loops:
    """One topic, one group, and the consumers of a test."""

    def __init__(self, kafka: KafkaServer, redis_url: str, partitions: int = 4) -> None:
        self.kafka, self.redis_url = kafka, redis_url
        name = uuid.uuid4().hex[:8]
        self.topic, self.group, self.partitions = f"loop-{name}", f"group-{name}", partitions
        kafka.create_topic(self.topic, partitions)
        self.consumers: list[KafkaConsumer] = []

    def produce(self, values: Iterable[str], partition: int | None = None, key: str | None = None) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap})
        for number, value in enumerate(values):
            to = number % self.partitions if partition is None else partition
            producer.produce(self.topic, value.encode(), key.encode() if key else None, partition=to)
        assert producer.flush(_PATIENCE_S) == 0

    def consumer(self, conf: dict[str, Any] | None = None, **how: Any) -> KafkaConsumer:
        base = {
            "bootstrap.servers": self.kafka.bootstrap,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "group.protocol": "consumer",
        }
        claims = RedisClaims.from_url(self.redis_url, namespace=self.group, lease_s=30.0)
        made = KafkaConsumer(base | (conf or {}), **({"claims": claims} | how))
        self.consumers.append(made)
        return made

    def joined(self, conf: dict[str, Any] | None = None, **how: Any) -> KafkaConsumer:
        made = self.consumer(conf, **how)
        made.subscribe([self.topic])
        return made

    def close(self) -> None:
        for consumer in self.consumers:
            consumer.close()


@pytest.fixture
def loops(kafka: KafkaServer, redis_url: str) -> Iterator[Loops]:
    made = Loops(kafka, redis_url)
    yield made
    made.close()


def values(messages: Iterable[Message]) -> list[str]:
    for message in messages:
        assert message.error() is None, message.error()
    return [(message.value() or b"").decode() for message in messages]


def read(consumer: KafkaConsumer, count: int) -> list[str]:
    """That many, by polls."""
    got: list[Message] = []
    until(lambda: _more(consumer, got) >= count)
    return values(got)


def _more(consumer: KafkaConsumer, got: list[Message]) -> int:
    message = consumer.poll(0.1)
    if message is not None:
        got.append(message)
    return len(got)


def assigned(consumer: KafkaConsumer) -> set[int]:
    """The numbers of its partitions."""
    return {each.partition for each in consumer.assignment()}


def poll_both(one: KafkaConsumer, other: KafkaConsumer) -> None:
    for each in (one, other):
        each.poll(0.1)


def static_ids(loops: Loops) -> list[str]:
    """Those in the group, as the broker sees it."""
    found = loops.kafka.admin.describe_consumer_groups([loops.group])[loops.group].result(_PATIENCE_S)
    return sorted(member.group_instance_id for member in found.members)


def nothing_comes(consumer: KafkaConsumer, polls: int = 5) -> bool:
    return all(consumer.poll(0.1) is None for _ in range(polls))


def test_every_record_is_returned_once_and_a_successor_goes_on_behind_it(loops: Loops) -> None:
    loops.produce(str(n) for n in range(40))
    first = loops.joined()
    assert sorted(map(int, read(first, 40))) == list(range(40))
    assert first.poll(0.1) is None  # with it, the last one counts as done
    first.close()
    loops.produce(str(n) for n in range(40, 60))
    second = loops.joined()
    assert sorted(map(int, read(second, 20))) == list(range(40, 60))


def test_consume_returns_as_many_as_asked_for(loops: Loops) -> None:
    loops.produce(str(n) for n in range(100))
    consumer = loops.joined()
    got: list[str] = []
    got += values(consumer.consume(70, _PATIENCE_S))
    assert len(got) == 70
    got += values(consumer.consume(30, _PATIENCE_S))
    assert sorted(map(int, got)) == list(range(100))


def test_what_the_last_poll_returned_is_not_done_by_close(loops: Loops) -> None:
    loops.produce(["a", "b", "c"], partition=0)
    first = loops.joined()
    assert read(first, 2) == ["a", "b"]
    first.close()
    assert read(loops.joined(), 2) == ["b", "c"]


def test_a_block_that_ends_well_has_handled_what_it_got(loops: Loops) -> None:
    loops.produce(["a", "b", "c"], partition=0)
    with loops.joined() as first:
        assert read(first, 2) == ["a", "b"]

    def fail_in_the_block() -> None:
        with loops.joined() as second:
            assert read(second, 1) == ["c"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_the_block()
    assert read(loops.joined(), 1) == ["c"]


def test_a_commit_says_what_is_done_and_tells_the_broker(loops: Loops) -> None:
    loops.produce(["a", "b", "c"], partition=0)
    first = loops.joined({"enable.auto.commit": False})
    got: list[Message] = []
    until(lambda: _more(first, got) >= 3)
    committed = first.commit(message=got[1], asynchronous=False)
    assert [(one.partition, one.offset) for one in committed] == [(0, 2)]
    first.close()
    assert read(loops.joined(), 1) == ["c"]


def test_what_is_not_committed_is_not_done_where_the_loop_commits(loops: Loops) -> None:
    loops.produce(["a", "b"], partition=0)
    first = loops.joined({"enable.auto.commit": False})
    assert read(first, 2) == ["a", "b"]
    assert nothing_comes(first)
    first.close()
    assert read(loops.joined({"enable.auto.commit": False}), 2) == ["a", "b"]


def test_processing_ends_a_record_or_brings_it_again(loops: Loops) -> None:
    loops.produce(["a", "b"], partition=0)
    consumer = loops.joined(done_when="explicit")
    got: list[Message] = []
    until(lambda: _more(consumer, got) >= 2)
    with consumer.processing(got[0]):
        pass
    with pytest.raises(ZeroDivisionError), consumer.processing(got[1]):
        raise ZeroDivisionError
    assert read(consumer, 1) == ["b"]
    consumer.done()
    consumer.close()
    loops.produce(["c"], partition=0)
    assert read(loops.joined(), 1) == ["c"]


def test_a_record_that_another_thread_has_in_hand_is_waited_for_by_the_next_owner(loops: Loops) -> None:
    loops.produce([str(n) for n in range(4)])
    first = loops.joined(done_when="explicit", settings=Settings(drain_timeout_s=0.2, missing_key="position"))
    got: list[Message] = []
    until(lambda: _more(first, got) >= 4)
    threading.Thread(target=first.done, args=(got[0],)).start()
    until(lambda: first.poll(0.05) is None and not first._driven._reports)
    second = loops.joined()
    came: list[Message] = []

    def both() -> bool:
        first.poll(0.02)
        _more(second, came)
        return len(second.assignment()) == 2

    until(both)
    for _ in range(10):
        both()
    assert values(came) == []
    for message in got[1:]:
        first.done(message)
    for _ in range(10):
        both()
    assert values(came) == []


def test_a_business_key_is_returned_once_also_to_another_member(loops: Loops) -> None:
    loops.produce(['{"id": 1}', '{"id": 2}', '{"id": 1}'], partition=0)
    loops.produce(['{"id": 2}', '{"id": 3}'], partition=1)
    consumer = loops.joined(key="id")
    assert sorted(read(consumer, 3)) == ['{"id": 1}', '{"id": 2}', '{"id": 3}']
    assert nothing_comes(consumer)


def test_a_record_without_its_key_is_raised_in_its_turn_where_that_is_asked_for(loops: Loops) -> None:
    loops.produce(['{"id": 1}', "no key", '{"id": 2}', "none either"], partition=0)
    consumer = loops.joined(key="id", settings=Settings(missing_key="error"))
    got: list[Message] = []
    missed = 0
    while len(got) < 2 or missed < 2:
        try:
            got += consumer.consume(10, 1.0)
        except KeyMissing:
            missed += 1
    assert values(got) == ['{"id": 1}', '{"id": 2}']
    assert consumer.consume(10, 0.2) == []
    assert loops.joined(key="id").poll(0.5) is None


def test_a_rebalance_calls_the_loops_own_callbacks_and_repeats_nothing(loops: Loops) -> None:
    told: list[tuple[str, int, int]] = []
    loops.produce(str(n) for n in range(40))

    def note(name: str, number: int) -> Callable[[Any, list[TopicPartition]], None]:
        def call(consumer: Any, partitions: list[TopicPartition]) -> None:
            assert consumer is loops.consumers[number]
            told.append((name, number, len(partitions)))

        return call

    first, second = loops.consumer(), loops.consumer()
    first.subscribe([loops.topic], on_assign=note("assign", 0), on_revoke=note("revoke", 0))
    got = read(first, 20)
    second.subscribe([loops.topic], on_assign=note("assign", 1))
    messages: list[Message] = []

    def both() -> bool:
        _more(first, messages)
        _more(second, messages)
        return len(messages) >= 20 and len(second.assignment()) == 2

    until(both)
    assert sorted(map(int, got + values(messages))) == list(range(40))
    assert ("assign", 0, 4) in told
    assert ("revoke", 0, 2) in told
    assert ("assign", 1, 2) in told


def test_what_on_revoke_commits_is_done(loops: Loops) -> None:
    loops.produce([str(n) for n in range(8)])
    first, second = loops.consumer({"enable.auto.commit": False}), loops.consumer({"enable.auto.commit": False})

    def commit(consumer: KafkaConsumer, _: list[TopicPartition]) -> None:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:  # as the client where all is committed
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise

    first.subscribe([loops.topic], on_revoke=commit)
    read(first, 8)
    second.subscribe([loops.topic])
    came: list[Message] = []

    def both() -> bool:
        first.poll(0.05)
        _more(second, came)
        return len(second.assignment()) == 2

    until(both)
    for _ in range(10):
        both()
    assert values(came) == []


def test_what_on_revoke_commits_counts_when_the_loop_leaves(loops: Loops) -> None:
    loops.produce(["a", "b"], partition=0)
    first = loops.consumer({"enable.auto.commit": False})
    committed: list[tuple[int, int]] = []

    def commit(consumer: KafkaConsumer, _: list[TopicPartition]) -> None:
        committed.extend((one.partition, one.offset) for one in consumer.commit(asynchronous=False))

    first.subscribe([loops.topic], on_revoke=commit)
    assert read(first, 2) == ["a", "b"]
    first.close()
    assert (0, 2) in committed
    loops.produce(["c"], partition=0)
    assert read(loops.joined(), 1) == ["c"]


def test_what_a_callback_raises_is_raised_by_the_poll_and_nothing_is_lost(loops: Loops) -> None:
    loops.produce([str(n) for n in range(8)])
    consumer = loops.consumer()

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    consumer.subscribe([loops.topic], on_assign=fail)
    with pytest.raises(ZeroDivisionError):
        until(lambda: consumer.poll(0.1) is not None)
    assert sorted(map(int, read(consumer, 8))) == list(range(8))


def test_seek_reads_again_and_a_successor_agrees(loops: Loops) -> None:
    loops.produce(["a", "b", "c", "d"], partition=0)
    consumer = loops.joined()
    assert read(consumer, 4) == ["a", "b", "c", "d"]
    assert nothing_comes(consumer, 1)
    consumer.seek(TopicPartition(loops.topic, 0, 1))
    assert read(consumer, 2) == ["b", "c"]
    assert consumer.position([TopicPartition(loops.topic, 0)])[0].offset == 3
    consumer.close()
    assert read(loops.joined(), 2) == ["c", "d"]


def test_on_assign_may_begin_elsewhere(loops: Loops) -> None:
    loops.produce(["a", "b", "c"], partition=0)
    with loops.joined() as first:
        assert read(first, 3) == ["a", "b", "c"]

    def from_the_start(consumer: Any, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            one.offset = OFFSET_BEGINNING
        consumer.assign(partitions)

    second = loops.consumer()
    second.subscribe([loops.topic], on_assign=from_the_start)
    assert read(second, 3) == ["a", "b", "c"]


@pytest.mark.parametrize("to", [1, 3], ids=["back", "to its own position"])
def test_a_seek_commits_nothing_of_what_the_loop_has(loops: Loops, to: int) -> None:
    loops.produce(["a", "b", "c", "d"], partition=0)
    where = TopicPartition(loops.topic, 0)
    with loops.joined({"enable.auto.commit": False}) as first:
        assert read(first, 3) == ["a", "b", "c"]
        first.seek(TopicPartition(loops.topic, 0, to))
        assert read(first, 1) == [["a", "b", "c", "d"][to]]
        assert first.committed([where], _PATIENCE_S)[0].offset < 1
        first.commit(offsets=[TopicPartition(loops.topic, 0, 1)], asynchronous=False)
    assert read(loops.joined({"enable.auto.commit": False}), 3) == ["b", "c", "d"]


def test_in_on_assign_the_last_word_on_where_to_begin_counts(loops: Loops) -> None:
    loops.produce(["a", "b", "c"], partition=0)

    def on_assign(consumer: Any, partitions: list[TopicPartition]) -> None:
        consumer.assign([TopicPartition(one.topic, one.partition, 0) for one in partitions])
        consumer.seek(TopicPartition(loops.topic, 0, 2))

    consumer = loops.consumer()
    consumer.subscribe([loops.topic], on_assign=on_assign)
    assert read(consumer, 1) == ["c"]


def test_offsets_of_a_transaction_are_what_is_done_and_are_never_overwritten(loops: Loops) -> None:
    out = loops.topic + "-out"
    loops.kafka.create_topic(out, 1)
    loops.produce([str(number) for number in range(20)], partition=0)
    producer = Producer({"bootstrap.servers": loops.kafka.bootstrap, "transactional.id": loops.group})
    producer.init_transactions(_PATIENCE_S)
    where = TopicPartition(loops.topic, 0)
    settings = Settings(missing_key="position", commit_interval_s=0.05, commit_refresh_s=0.1)
    consumer = loops.joined({"enable.auto.commit": False}, settings=settings)
    assert read(consumer, 20) == [str(number) for number in range(20)]
    in_hand = consumer._driven.user.handed_out
    for end in (5, 12):
        producer.begin_transaction()
        producer.produce(out, str(end))
        offsets = [TopicPartition(loops.topic, 0, end)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
        producer.commit_transaction()
        until(lambda end=end: consumer.poll(0.1) is None and in_hand.records == 20 - end)  # type: ignore[misc]
        assert nothing_comes(consumer)
        assert consumer.committed([where], _PATIENCE_S)[0].offset == end
    consumer.close()
    assert read(loops.joined({"enable.auto.commit": False}), 8) == [str(number) for number in range(12, 20)]


@pytest.mark.parametrize("says", [True, False])
def test_where_no_offset_may_be_chosen_on_assign_says_where_to_begin_or_the_loop_is_told(
    loops: Loops, says: bool
) -> None:
    loops.produce(["a", "b"], partition=0)
    consumer = loops.consumer({"auto.offset.reset": "error"})

    def on_assign(_: object, partitions: list[TopicPartition]) -> None:
        if says:
            consumer.assign([TopicPartition(one.topic, one.partition, 0) for one in partitions])

    consumer.subscribe([loops.topic], on_assign=on_assign)
    if says:
        assert read(consumer, 2) == ["a", "b"]
        return
    told: list[int | None] = []

    def all_told() -> bool:
        message = consumer.poll(0.1)
        if message is not None and (error := message.error()) is not None:
            assert error.code() == KafkaError._AUTO_OFFSET_RESET
            told.append(message.partition())
        return len(told) == loops.partitions

    until(all_told)
    assert sorted(told, key=str) == [0, 1, 2, 3]
    consumer.seek(TopicPartition(loops.topic, 0, 1))
    assert read(consumer, 1) == ["b"]


def test_pause_holds_a_partition_until_resume(loops: Loops) -> None:
    consumer = loops.joined()
    until(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 4)
    consumer.pause([TopicPartition(loops.topic, 0)])
    loops.produce(["held"], partition=0)
    loops.produce(["free"], partition=1)
    assert read(consumer, 1) == ["free"]
    assert nothing_comes(consumer)
    consumer.resume([TopicPartition(loops.topic, 0)])
    assert read(consumer, 1) == ["held"]


def test_the_ends_of_partitions_are_told_to_who_asks(loops: Loops) -> None:
    consumer = loops.joined({"enable.partition.eof": True})
    ends: set[int | None] = set()

    def all_ends() -> bool:
        message = consumer.poll(0.1)
        if message is not None:
            error = message.error()
            assert error is not None
            assert error.code() == KafkaError._PARTITION_EOF
            ends.add(message.partition())
        return len(ends) == 4

    until(all_ends)


def test_the_end_of_a_partition_comes_behind_its_records(loops: Loops) -> None:
    """Also where the loop takes its time, so that they do not go in one run: who reads up to an end misses none."""
    wanted = [str(number) for number in range(100)]
    loops.produce(wanted, partition=0)
    consumer = loops.joined({"enable.partition.eof": True})
    got: list[Message] = []

    def at_its_end() -> bool:
        message = consumer.poll(0.1)
        if message is None or message.partition() != 0:
            return False
        if message.error() is not None:
            return True
        got.append(message)
        consumer.commit(asynchronous=False)
        return False

    until(at_its_end)
    assert values(got) == wanted


def test_a_static_member_comes_back_to_its_partitions_and_leaves_for_good_where_it_says_so(loops: Loops) -> None:
    loops.kafka.set_session(loops.group, 60_000)  # it does not end here
    loops.produce(["a"], partition=0)
    first = loops.joined(static_id="one")
    assert read(first, 1) == ["a"]
    first.done()
    other = loops.joined(static_id="two")
    until(lambda: len(assigned(first)) == len(assigned(other)) == 2, meanwhile=lambda: poll_both(first, other))
    had, others = assigned(first), assigned(other)
    first.close()
    assert static_ids(loops) == ["one", "two"]
    again = loops.joined(static_id=lambda: "one", leave=True)
    until(lambda: assigned(again), meanwhile=lambda: poll_both(again, other))
    assert (assigned(again), assigned(other)) == (had, others)
    again.close()
    assert static_ids(loops) == ["two"]
    until(lambda: len(assigned(other)) == 4, meanwhile=lambda: other.poll(0.1))


def test_what_is_not_ours_is_refused_as_the_client_does_it(loops: Loops) -> None:
    consumer = loops.joined()
    with pytest.raises(KafkaException):
        consumer.seek(TopicPartition(loops.topic, 99, 0))
    consumer.close()
    consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(0)


def test_a_slow_loop_marks_in_time_and_a_killed_one_repeats_only_what_it_has_in_hand(loops: Loops) -> None:
    loops.produce(["a", "b", "c"], partition=0)
    first = loops.joined()
    assert read(first, 2) == ["a", "b"]
    until(lambda: first.snapshot().records.handled == 1 and first._driven.parts.settling.waiting == 0)  # by no poll
    assert len(list(first._driven.user.handed_out)) == 1
