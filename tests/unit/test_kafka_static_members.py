"""Static members without a broker: names, what is said when a name is another's, and the bytes of a leave."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import NoReturn

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.kafka import KafkaSource
from holdfast.adapters.kafka.broker_features import NOT_ASKED
from holdfast.adapters.kafka.config import STATIC_ID, check, check_static_id, with_static_id
from holdfast.adapters.kafka.emission import emit
from holdfast.adapters.kafka.quirks.leave_static import (
    StaticMember,
    close,
    decode_coordinator,
    decode_heartbeat,
    decode_leave,
    encode_find,
    encode_heartbeat,
    encode_leave,
    why_unsendable,
)
from holdfast.adapters.kafka.renewal import Refusals
from holdfast.adapters.kafka.wire import Malformed
from holdfast.errors import SettingError, SourceFatal, StaticIdTaken
from holdfast.timing import Deadline

CONF = {"bootstrap.servers": "b:9092", "group.id": "g"}
FATAL = KafkaError(KafkaError._FATAL, "somebody else has it")


@pytest.mark.parametrize("name", ["pod-3", "a", "A.b_c-9", "x" * 249])
def test_names_that_kafka_takes_are_taken(name: str) -> None:
    assert check_static_id("static_id", name) == name
    assert check({**CONF, STATIC_ID: name}, "keep").conf[STATIC_ID] == name


@pytest.mark.parametrize("name", ["", " ", ".", "..", "a b", "é", "a/b", "x" * 250])
def test_names_that_it_does_not_are_refused_where_they_are_written(name: str) -> None:
    with pytest.raises(SettingError, match=r"^static_id="):
        with_static_id(CONF, name)
    with pytest.raises(SettingError, match=r"^group\.instance\.id="):
        check({**CONF, STATIC_ID: name}, "keep")


def test_the_same_name_said_twice_is_one_and_another_is_refused() -> None:
    assert with_static_id({**CONF, STATIC_ID: "a"}, "a")[STATIC_ID] == "a"
    with pytest.raises(SettingError, match=r"^static_id='b'.*group\.instance\.id='a'"):
        KafkaSource({**CONF, STATIC_ID: "a"}, assignment="keep", static_id="b")


def test_a_session_that_a_restart_outlasts_is_warned_of() -> None:
    def found(conf: dict[str, object]) -> list[str]:
        return [each.reason for each in check(CONF | conf, "keep").findings if "static member" in each.reason]

    assert found({STATIC_ID: "a", "session.timeout.ms": 9_000})
    assert found({STATIC_ID: "a"}) == []
    assert found({"session.timeout.ms": 9_000}) == []


def test_who_is_refused_says_so_once_waits_for_as_long_as_a_dead_ones_session_may_last_and_gives_up() -> None:
    now = [100.0]
    refusals = Refusals("pod-3", "g", lambda: now[0], waits=True)
    first = refusals.judge(FATAL)
    assert isinstance(first, SourceFatal)
    now[0] += 80
    assert refusals.judge(FATAL) is None
    now[0] += 11
    taken = refusals.judge(FATAL)
    assert isinstance(taken, StaticIdTaken)
    assert "group.instance.id=pod-3" in str(taken)
    assert not taken.retriable
    assert refusals.final


def test_who_was_let_in_meanwhile_begins_to_wait_anew() -> None:
    now = [0.0]
    refusals = Refusals("pod-3", "g", lambda: now[0], waits=True)
    refusals.judge(FATAL)
    now[0] = 60.0
    assert refusals.let_in() == 60.0
    now[0] = 100.0
    assert isinstance(refusals.judge(FATAL), SourceFatal)
    assert not refusals.final


def test_a_classic_member_that_is_fenced_does_not_come_back() -> None:
    refusals = Refusals("pod-3", "g", lambda: 0.0, waits=False)
    assert isinstance(refusals.judge(FATAL), StaticIdTaken)
    assert refusals.final


# As librdkafka 2.16.1 sends them, but for the epoch and the client's name.
def test_a_leave_is_a_heartbeat_with_the_epoch_that_ends_a_membership() -> None:
    for leave, epoch in ((True, -1), (False, -2)):
        assert encode_heartbeat(StaticMember("g", "m-1", "pod"), leave=leave) == (
            struct.pack(">i", 42)
            + struct.pack(">hhih", 68, 0, 1, 8) + b"holdfast" + b"\0"
            + b"\x02g" + b"\x04m-1" + struct.pack(">i", epoch) + b"\x04pod" + b"\0"
            + struct.pack(">i", -1) + b"\0\0\0" + b"\0"
        )  # fmt: skip


def test_one_of_a_classic_group_without_an_id_of_its_own_leaves_by_its_name() -> None:
    assert encode_leave(StaticMember("grp", "", "pod")) == (
        struct.pack(">i", 34)
        + struct.pack(">hhih", 13, 3, 1, 8) + b"holdfast"
        + struct.pack(">h", 3) + b"grp" + struct.pack(">i", 1)
        + struct.pack(">h", 0) + struct.pack(">h", 3) + b"pod"
    )  # fmt: skip


@pytest.mark.parametrize(("whole", "one"), [(0, 0), (0, 25), (15, None)])
def test_what_the_coordinator_says_of_all_or_of_the_one_member_is_read(whole: int, one: int | None) -> None:
    members = [] if one is None else [struct.pack(">h", 0) + struct.pack(">h", 3) + b"pod" + struct.pack(">h", one)]
    said = struct.pack(">iihi", 1, 0, whole, len(members)) + b"".join(members)
    assert decode_leave(said) == (one or whole)


def test_a_long_name_has_a_long_length() -> None:
    assert b"\xad\x02" + b"x" * 300 in encode_heartbeat(StaticMember("x" * 300, "m", "pod"), leave=True)


def test_the_coordinators_address_is_read() -> None:
    assert encode_find("grp").endswith(struct.pack(">h", 3) + b"grp")
    answer = struct.pack(">ihi", 1, 0, 7) + struct.pack(">h", 4) + b"host" + struct.pack(">i", 9092)
    assert decode_coordinator(answer) == ("host", 9092)
    with pytest.raises(Malformed, match="error 15"):
        decode_coordinator(struct.pack(">ihi", 1, 15, -1) + struct.pack(">hi", 0, -1))


@given(st.binary(max_size=60))
def test_any_bytes_are_an_answer_or_malformed(payload: bytes) -> None:
    for decode in (decode_coordinator, decode_heartbeat, decode_leave):
        with suppress(Malformed):
            decode(struct.pack(">i", 1) + payload)


def test_where_nothing_can_be_said_by_hand_it_says_why() -> None:
    assert why_unsendable(CONF) is None
    assert "SASL" in str(why_unsendable({**CONF, "security.protocol": "SASL_SSL"}))
    assert "ssl.keystore.location" in str(
        why_unsendable({**CONF, "security.protocol": "ssl", "ssl.keystore.location": "/k.p12"})
    )


@pytest.mark.parametrize(
    ("protocol", "leave", "said"),
    [
        ("classic", True, "pod-3 cannot leave g for good: 127.0.0.1:1"),
        ("classic", False, ""),
        ("consumer", True, "pod-3 cannot leave g for good: 127.0.0.1:1"),
        ("consumer", False, "pod-3 stops before g has let it in, and cannot say that it comes back: 127.0.0.1:1"),
    ],
)
def test_one_that_stops_before_it_is_let_in_says_what_could_not_be_said(
    protocol: str, leave: bool, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    conf = {**CONF, "bootstrap.servers": "127.0.0.1:1", "group.protocol": protocol, STATIC_ID: "pod-3"}
    client = emit(check(conf, "keep"), NOT_ASKED)
    consumer = Consumer({**client.conf, "log_level": 0})
    consumer.subscribe(["orders"])
    close(consumer, client, Deadline(5), leave=leave)
    assert said in caplog.text
    assert said or not caplog.text


def test_one_whose_last_poll_raises_is_closed_all_the_same() -> None:
    class Failing(Consumer):
        closed = False

        def memberid(self) -> str:
            return "m-1"

        def poll(self, *_: object) -> NoReturn:
            raise KafkaException(FATAL)

        def close(self) -> None:
            super().close()
            self.closed = True

    client = emit(check({**CONF, "bootstrap.servers": "127.0.0.1:1", STATIC_ID: "pod-3"}, "keep"), NOT_ASKED)
    consumer = Failing({**client.conf, "log_level": 0})
    with pytest.raises(KafkaException):
        close(consumer, client, Deadline(5), leave=True)
    assert consumer.closed
