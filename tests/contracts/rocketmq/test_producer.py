"""RocketMQProducer on the real broker: what is acknowledged is there, once or under one identity."""

from __future__ import annotations

import re
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.rocketmq.delivery import NotAcknowledged, by_key, to_write
from holdfast.adapters.rocketmq.outgoing import Message
from holdfast.adapters.rocketmq.producer import RocketMQProducer
from holdfast.adapters.rocketmq.remoting import Admin, BrokerRefused
from holdfast.errors import SettingError, SourceUnavailable, UnknownTopic
from holdfast.records import Partition
from holdfast.timing import Deadline
from tests.harness.rocketmq_topics import all_of, client_of, make_topic, messages_of
from tests.harness.servers.rocketmq import RocketMQServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def producer(rocketmq: RocketMQServer) -> Iterator[RocketMQProducer]:
    with RocketMQProducer(rocketmq.namesrv) as made:
        yield made


@pytest.fixture(scope="module")
def two_brokers() -> Iterator[RocketMQServer]:
    with RocketMQServer(brokers=2) as server:
        topic = make_topic(server.namesrv, 1)
        with RocketMQProducer(server.namesrv, timeout_s=60, attempt_timeout_s=30) as producer:
            for _ in range(2):  # a broker's first answer takes its time
                producer.send(topic, b"warm")
        yield server


def test_a_message_is_where_send_says_with_all_that_was_said_of_it(
    rocketmq: RocketMQServer, producer: RocketMQProducer
) -> None:
    topic = make_topic(rocketmq.namesrv)
    stored = producer.send(topic, b"\x00body\xff", keys=["4711", "k2"], tag="new", properties={"trace": "ä b"})
    queues = all_of(rocketmq.namesrv, topic, 1)
    [message] = queues[stored.partition]
    assert sum(map(len, queues.values())) == 1
    assert (message.offset, message.body) == (stored.offset, b"\x00body\xff")
    assert (message.keys, message.tags, message.unique_key) == ("4711 k2", "new", stored.unique_key)
    assert message.properties["trace"] == "ä b"
    assert stored.safe
    assert re.fullmatch(r"[0-9A-F]{32}", stored.message_id)


def test_messages_are_spread_over_all_queues(rocketmq: RocketMQServer, producer: RocketMQProducer) -> None:
    topic = make_topic(rocketmq.namesrv)
    assert Counter(producer.send(topic, b"x").partition.number for _ in range(8)) == dict.fromkeys(range(4), 2)


def test_equal_sharding_keys_stay_in_the_order_in_which_they_were_sent(
    rocketmq: RocketMQServer, producer: RocketMQProducer
) -> None:
    topic = make_topic(rocketmq.namesrv)
    for number in range(60):
        producer.send(topic, str(number).encode(), sharding_key=f"customer-{number % 12}")
    queues = [[int(message.body) for message in queue] for queue in all_of(rocketmq.namesrv, topic, 60).values()]
    assert all(queue == sorted(queue) for queue in queues)
    assert sum(len({number % 12 for number in queue}) for queue in queues) == 12, "each key in one queue"
    assert sum(map(bool, queues)) > 1


def test_a_batch_is_stored_whole_in_one_queue_and_each_message_has_its_place(
    rocketmq: RocketMQServer, producer: RocketMQProducer
) -> None:
    topic = make_topic(rocketmq.namesrv)
    batch = [Message(value=str(number).encode(), keys=str(number), tag="t") for number in range(50)]
    stored = producer.send_batch(topic, batch)
    assert producer.send_batch(topic, []) == []
    [queue] = {each.partition for each in stored}
    found = all_of(rocketmq.namesrv, topic, 50)[queue]
    assert [(each.offset, each.unique_key, each.body) for each in found] == [
        (place.offset, place.unique_key, message.value) for place, message in zip(stored, batch, strict=True)
    ]
    assert [(each.keys, each.tags) for each in found] == [(str(number), "t") for number in range(50)]
    assert len({each.message_id for each in stored}) == 50


def test_a_large_value_is_compressed_and_comes_back(rocketmq: RocketMQServer, producer: RocketMQProducer) -> None:
    topic = make_topic(rocketmq.namesrv, 1)
    values = [b"x" * 4_096, b"y" * 4_097, b"z" * (6 << 20)]
    for value in values:
        producer.send(topic, value)
    found = messages_of(rocketmq.namesrv, topic, 3)
    assert [message.body for message in found] == values
    assert [len(message.raw_body) < 10_000 for message in found] == [True, True, True]
    assert [message.sys_flag & 0x701 for message in found] == [0, 0x301, 0x301]


def test_a_delayed_message_comes_when_its_time_has_come(rocketmq: RocketMQServer, producer: RocketMQProducer) -> None:
    topic = make_topic(rocketmq.namesrv, 1)
    producer.send(topic, b"later", delay_level=1)
    producer.send(topic, b"now")
    found = {message.body: message for message in messages_of(rocketmq.namesrv, topic, 2)}
    assert set(found) == {b"now", b"later"}
    assert found[b"later"].stored_ms - found[b"later"].born_ms >= 900  # level 1 is a second


def test_what_is_too_large_is_refused_before_it_is_sent_and_by_the_broker(rocketmq: RocketMQServer) -> None:
    topic = make_topic(rocketmq.namesrv, 1)
    with RocketMQProducer(rocketmq.namesrv, compress_above_bytes=None) as careful:
        with pytest.raises(SettingError, match=r"4,194,305 bytes.*maxMessageSize"):
            careful.send(topic, b"x" * ((4 << 20) + 1))
        with pytest.raises(SettingError, match=r"messages=.*maxMessageSize"):
            careful.send_batch(topic, [Message(value=b"x" * (1 << 20))] * 4)
        assert careful.send(topic, b"x" * (4 << 20)).offset == 0
    with (
        RocketMQProducer(rocketmq.namesrv, compress_above_bytes=None, max_message_bytes=8 << 20) as careless,
        pytest.raises(Exception, match="code 13") as caught,
    ):
        careless.send(topic, b"x" * ((4 << 20) + 1))
    assert not isinstance(caught.value, SourceUnavailable)


def test_what_cannot_be_sent_is_said_in_a_sentence(rocketmq: RocketMQServer, producer: RocketMQProducer) -> None:
    closed = make_topic(rocketmq.namesrv, 1, perm=4)
    with pytest.raises(UnknownTopic, match="create the topic"):
        producer.send("no-such-topic", b"x")
    with pytest.raises(NotAcknowledged, match="perm 4"):
        producer.send(closed, b"x", timeout_s=0.3)
    with pytest.raises(SettingError, match="delay no batches"):
        producer.send_batch("t", [Message(value=b"x", delay_level=1)])
    with pytest.raises(SettingError, match="outbox"):
        producer.send_message_in_transaction(b"x")
    with pytest.raises(SettingError, match="timeout_s=0"):
        RocketMQProducer(rocketmq.namesrv, timeout_s=0)


def test_without_an_answer_the_error_tells_the_identity_to_send_again_with(rocketmq: RocketMQServer) -> None:
    with RocketMQProducer("127.0.0.1:1", timeout_s=0.5) as nowhere, pytest.raises(NotAcknowledged) as caught:
        nowhere.send("orders", b"x")
    [unique_key] = caught.value.unique_keys
    assert unique_key in str(caught.value)
    assert "127.0.0.1:1" in str(caught.value)
    assert caught.value.retriable
    topic = make_topic(rocketmq.namesrv)
    with RocketMQProducer(rocketmq.namesrv) as producer:
        assert producer.send(topic, b"x", unique_key=unique_key).unique_key == unique_key


def test_threads_share_a_producer(rocketmq: RocketMQServer, producer: RocketMQProducer) -> None:
    topic = make_topic(rocketmq.namesrv)
    with ThreadPoolExecutor(8) as threads:
        stored = list(threads.map(lambda number: producer.send(topic, str(number).encode()), range(400)))
    found = {
        (queue, message.offset): (message.unique_key, message.body)
        for queue, messages in all_of(rocketmq.namesrv, topic, 400).items()
        for message in messages
    }
    assert len(found) == 400
    assert {(each.partition, each.offset): each.unique_key for each in stored} == {
        place: unique_key for place, (unique_key, _) in found.items()
    }


class TestWhileABrokerIsAway:
    """Two brokers; one is frozen, so that it takes connections and answers nothing."""

    def test_messages_go_to_the_other_broker(self, two_brokers: RocketMQServer) -> None:
        topic = make_topic(two_brokers.namesrv, 2)
        with RocketMQProducer(two_brokers.namesrv, attempt_timeout_s=0.5) as producer:
            warm: list[str] = []
            # Also until neither is left out: on a busy machine one may not have answered in half a second.
            while set(warm) != {"broker-a", "broker-b"} or producer._delivery._rotation._until:
                warm.append(producer.send(topic, b"warm", timeout_s=30).partition.broker)
            two_brokers.pause_broker("broker-b")
            try:
                stored = [producer.send(topic, b"x") for _ in range(20)]
            finally:
                two_brokers.resume_broker("broker-b")
        sent = len(warm) + 20
        assert {each.partition.broker for each in stored} == {"broker-a"}
        # What the frozen one took without a word is a copy, under the identity that the acknowledged one has.
        found = all_of(two_brokers.namesrv, topic, sent + 1)
        known = Counter(message.unique_key for messages in found.values() for message in messages)
        assert {each.unique_key for each in stored} <= known.keys()
        assert len(known) == sent
        # The frozen one is asked now and then; and once more for each time that the other was too slow to be believed.
        on_a = sum(len(messages) for queue, messages in found.items() if queue.broker == "broker-a")
        slow = on_a - warm.count("broker-a") - 20
        assert 0 < known.total() - sent - slow <= 2 + slow

    def test_a_sharding_key_waits_for_its_own_broker(self, two_brokers: RocketMQServer) -> None:
        topic = make_topic(two_brokers.namesrv, 1)
        with RocketMQProducer(two_brokers.namesrv, attempt_timeout_s=0.5) as producer:
            key = next(
                key
                for key in map(str, range(100))
                if producer.send(topic, b"warm", sharding_key=key).partition.broker == "broker-b"
            )
            two_brokers.pause_broker("broker-b")
            try:
                with pytest.raises(NotAcknowledged, match="may be stored all the same"):
                    producer.send(topic, b"x", sharding_key=key, timeout_s=1.0)
                back = threading.Timer(1.0, two_brokers.resume_broker, ["broker-b"])
                back.start()
                stored = producer.send(topic, b"y", sharding_key=key)
                back.join()
            finally:
                two_brokers.resume_broker("broker-b")
        assert stored.partition.broker == "broker-b"

    def test_what_one_broker_refuses_goes_to_the_other(self, two_brokers: RocketMQServer) -> None:
        topic = make_topic(two_brokers.namesrv, 4)
        with RocketMQProducer(two_brokers.namesrv) as producer, client_of(two_brokers.namesrv) as client:
            producer.send(topic, b"warm")
            queues = to_write(client.route(topic, Deadline(10)))
            key = next(key for key in map(str, range(100)) if by_key(queues, key) == Partition(topic, 3, "broker-b"))
            Admin(client).create_topic(topic, Deadline(10), queues=1, brokers=["broker-b"])  # queues 1 to 3 are gone
            stored = [producer.send(topic, b"x").partition for _ in range(16)]
            assert {queue.number for queue in stored if queue.broker == "broker-b"} == {0}
            with pytest.raises(BrokerRefused, match=r"broker-b-3.*code 29"):
                producer.send(topic, b"x", sharding_key=key)

    def test_messages_go_on_without_name_servers(self, two_brokers: RocketMQServer) -> None:
        topic = make_topic(two_brokers.namesrv, 2)
        with RocketMQProducer(two_brokers.namesrv) as producer:
            producer.send(topic, b"warm")
            two_brokers.stop_name_server()
            try:
                assert len({producer.send(topic, b"x").partition for _ in range(4)}) == 4
            finally:
                two_brokers.start_name_server()
