"""What cannot be sent is said before it is sent, with what helps."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from holdfast.adapters.rocketmq.delivery import Rotation, by_key, ordered
from holdfast.adapters.rocketmq.outgoing import ZLIB, Message, check_size, check_topic, packed
from holdfast.adapters.rocketmq.remoting.routes import QueueData, Route
from holdfast.errors import SettingError
from holdfast.plugin.assign.java import java_hash
from holdfast.records import Partition
from tests.harness.clocks import HandClock


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ({"value": "text"}, "encode it"),
        ({"value": b""}, "take no empty message"),
        ({"delay_level": 19}, "1 to 18 = 1s to 2h"),
        ({"delay_level": -1}, "0 = at once"),
        ({"keys": ["a b"]}, "blanks separate keys"),
        ({"keys": ["a", ""]}, "not empty"),
        ({"keys": "a\x01"}, "a key is not empty"),
        ({"tag": "a||b"}, "one tag"),
        ({"tag": "*"}, "one tag"),
        ({"tag": ""}, "one tag"),
        ({"unique_key": ""}, "the one that an error told"),
        ({"properties": {"KEYS": "1"}}, "give keys="),
        ({"properties": {"TAGS": "1"}}, "give tag="),
        ({"properties": {"DELAY": "1"}}, "give delay_level="),
        ({"properties": {"PGROUP": "1"}}, "take another"),
        ({"properties": {"a": 1}}, "are text"),
        ({"properties": {"a": ""}}, "neither is empty"),
        ({"properties": {"a": "b\x02"}}, "separate them"),
    ],
)
def test_a_message_that_rocketmq_could_not_deal_with_is_refused(wrong: dict[str, Any], remedy: str) -> None:
    with pytest.raises(SettingError, match=remedy.replace("*", r"\*").replace("|", r"\|")):
        Message(**{"value": b"x", **wrong})


def test_a_message_has_its_properties() -> None:
    message = Message(value=b"x", keys=["a", "b"], tag="new", properties={"trace": "7"}, delay_level=3)
    assert message.told("made") == {"trace": "7", "UNIQ_KEY": "made", "KEYS": "a b", "TAGS": "new", "DELAY": "3"}
    assert Message(value=b"x", keys="a", unique_key="mine").told("made") == {"UNIQ_KEY": "mine", "KEYS": "a"}


def test_properties_that_are_too_long_and_values_that_are_too_large_are_told_by_their_size() -> None:
    with pytest.raises(SettingError, match="put more into the value"):
        Message(value=b"x", properties={"a": "b" * 33_000}).told("made")
    with pytest.raises(SettingError, match=r"'5,000,000 bytes': brokers take 4,194,304 at most.*max_message_bytes"):
        check_size(5_000_000, 4 << 20, "value")


@pytest.mark.parametrize("topic", ["", "a" * 128, "a b", "a.b", "a/b", "ä"])
def test_a_name_that_no_topic_can_have_is_refused(topic: str) -> None:
    with pytest.raises(SettingError, match="1 to 127 characters"):
        check_topic(topic)


def test_only_what_gets_smaller_is_compressed() -> None:
    large, random_like = b"x" * 5_000, bytes((each * each * 7919 >> 3) & 0xFF for each in range(5_000))
    body, sys_flag = packed(large, 4096)
    assert (zlib.decompress(body), sys_flag) == (large, ZLIB)
    assert packed(large, None) == (large, 0)
    assert packed(large[:4096], 4096) == (large[:4096], 0)
    assert packed(zlib.compress(random_like), 16)[1] == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("customer-1", -1_581_185_534), ("polygenelubricants", -(2**31)), ("😀", 1_772_899)],
)
def test_a_key_hashes_as_in_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_a_key_leads_to_one_queue_whatever_its_hash() -> None:
    queues = [Partition("t", number, "a") for number in range(7)]
    assert by_key(queues, "polygenelubricants") == queues[2**31 % 7]
    assert len({by_key(queues, f"customer-{number}") for number in range(200)}) == 7


@pytest.mark.parametrize("said", ["b:2;a:1", "b:2;a:1;"])
def test_an_order_configuration_names_the_queues_as_java_reads_it(said: str) -> None:
    route = Route(topic="t", queue_datas=(QueueData("a", 4, 4, 6),), brokers={"a": {0: "x:1"}}, ordered=said)
    assert ordered(route) == [Partition("t", 0, "b"), Partition("t", 1, "b"), Partition("t", 0, "a")]


def test_queues_take_turns_and_a_broker_that_does_not_answer_comes_last() -> None:
    clock = HandClock()
    rotation = Rotation(clock)
    queues = [Partition("t", number, broker) for broker in "abc" for number in range(2)]
    assert {rotation.pick(queues) for _ in queues} == set(queues)
    rotation.silent("a")
    assert {rotation.pick(queues).broker for _ in range(12)} == {"b", "c"}
    clock.sleep(1.0)
    rotation.silent("b")
    rotation.silent("c")
    assert {rotation.pick(queues).broker for _ in range(12)} == {"a"}, "the one that was asked longest ago"
    rotation.answered("c")
    assert {rotation.pick(queues).broker for _ in range(12)} == {"c"}
    clock.sleep(29.0)
    assert {rotation.pick(queues).broker for _ in range(12)} == {"a", "b", "c"}
