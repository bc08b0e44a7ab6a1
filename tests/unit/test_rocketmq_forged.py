"""Properties are anybody's who may write to the topic: each one that holdfast looks at, set by somebody else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import RedisClaims, RedisCoordinator
from holdfast.adapters.rocketmq.headers import sent_on
from holdfast.adapters.rocketmq.push.client import read as read_pushed
from holdfast.adapters.rocketmq.push.source import PushSource
from holdfast.adapters.rocketmq.source import RocketMQSource
from holdfast.errors import SourceError
from tests.properties.test_rocketmq_messages import Stored
from tests.unit.test_rocketmq_push import Message
from tests.unit.test_rocketmq_reading import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.records import Record

RETRY = "%RETRY%billing"


def one(properties: dict[str, str], *, topic: str = "clicks", times: int = 0, tags: str = "*") -> Record:
    [record], error = read(Stored(topic, b"x", properties, times=times), topic=topic, tags=tags)
    assert error is None
    return record


@pytest.fixture
def source() -> Iterator[RocketMQSource]:
    store = RedisClaims.from_url("redis://127.0.0.1:1/0")
    made = RocketMQSource("127.0.0.1:1", "billing", coordinator=RedisCoordinator(store), retry="broker")
    yield made
    store.close()


class TestWhereARecordWasBorn:
    @pytest.mark.parametrize(
        "forged",
        [
            {"RETRY_TOPIC": "orders"},
            {"holdfast-retry-of": "orders"},
            {"holdfast-base64-holdfast-retry-of": "b3JkZXJz"},
            {"RETRY_TOPIC": "orders", "holdfast-retry-of": "orders", "holdfast-base64-RETRY_TOPIC": "b3JkZXJz"},
        ],
    )
    @pytest.mark.parametrize("times", [0, 3])
    def test_is_its_own_topic_but_for_what_the_brokers_retry_topic_brings(
        self, forged: dict[str, str], times: int
    ) -> None:
        assert one(forged, times=times).header("holdfast-retry-of") is None

    @pytest.mark.parametrize(
        "forged",
        [
            {"holdfast-retry-of": "orders"},
            {"holdfast-base64-holdfast-retry-of": "b3JkZXJz"},
            {"holdfast-base64-RETRY_TOPIC": "b3JkZXJz"},
            {"RETRY_TOPIC": "payments"},  # which is not read: it would stop the app
        ],
    )
    def test_is_said_in_the_retry_topic_by_the_brokers_property_alone_and_only_of_topics_that_are_read(
        self, forged: dict[str, str]
    ) -> None:
        assert one(forged, topic=RETRY, times=1).header("holdfast-retry-of") is None
        assert one({**forged, "RETRY_TOPIC": "orders"}, topic=RETRY, times=1).header("holdfast-retry-of") == b"orders"

    def test_one_that_says_it_was_born_elsewhere_is_not_given_to_the_broker_which_would_believe_it(
        self, source: RocketMQSource
    ) -> None:
        assert source.retries is not None
        assert not source.retries(one({"RETRY_TOPIC": "orders"}))
        assert source.retries(one({"RETRY_TOPIC": "clicks"}))
        assert source.retries(one({}))
        assert source.retries(one({"RETRY_TOPIC": "orders"}, topic=RETRY, times=1))

    def test_a_pushed_one_of_a_topic_that_is_not_read_is_given_back_and_stops_nothing(self) -> None:
        pushed: Any = SimpleNamespace(_topics=frozenset({"orders"}))
        arrived = read_pushed(Message(RETRY_TOPIC=b"payments"), [])
        assert PushSource._born_here(pushed, arrived) is arrived
        elsewhere = arrived._replace(partition=arrived.partition._replace(topic="payments"))
        with pytest.raises(SourceError, match="payments"):
            PushSource._born_here(pushed, elsewhere)


class TestHowOftenItWasTried:
    @pytest.mark.parametrize("forged", ["99", "-1", "abc", "9" * 5000])
    def test_is_what_the_frame_says(self, source: RocketMQSource, forged: str) -> None:
        properties = {"RECONSUME_TIMES": forged, "holdfast-base64-RECONSUME_TIMES": "OTk="}
        assert one(properties).header("RECONSUME_TIMES") is None
        assert one(properties, times=2).header("RECONSUME_TIMES") == b"2"
        assert one(properties, tags="*").header("RECONSUME_TIMES") is None
        assert source.retries is not None
        assert source.retries(one(properties))


class TestWhichMessageItIs:
    def test_an_empty_identity_is_none_so_that_no_two_are_taken_for_one(self, source: RocketMQSource) -> None:
        assert source.identity is not None
        record = one({"UNIQ_KEY": ""})
        assert record.header("UNIQ_KEY") == b""
        assert source.identity(record) is None

    def test_two_that_are_no_text_are_two(self, source: RocketMQSource) -> None:
        assert source.identity is not None
        found = set()
        for byte in (b"\xfe", b"\xff"):
            body = Stored("orders", b"x", {"UNIQ_KEY": "?"}).encode()
            [record], _ = read(body.replace(b"\x01?\x02", b"\x01" + byte + b"\x02"))
            found.add(source.identity(record))
        assert len(found - {None}) == 2

    def test_the_first_counts_and_none_in_base64(self, source: RocketMQSource) -> None:
        assert source.identity is not None
        record = one({"UNIQ_KEY": "A", "holdfast-base64-UNIQ_KEY": "Qg=="})
        assert source.identity(record) == source.identity(one({"UNIQ_KEY": "A"}))
        assert source.identity(record) != source.identity(one({"UNIQ_KEY": "B"}))

    def test_of_one_name_and_different_bodies_there_are_two_and_packed_or_not_it_is_the_same(
        self, source: RocketMQSource
    ) -> None:
        assert source.identity is not None
        bodies = [
            Stored("orders", body, {"UNIQ_KEY": "A"}, zlib=zlib) for body in (b"x" * 99, b"y") for zlib in (False, True)
        ]
        records = [read(each.encode())[0][0] for each in bodies]
        plain, packed, *others = map(source.identity, records)
        assert plain == packed
        assert len({plain, *others}) == 2


def test_what_a_broker_would_take_for_its_own_is_not_sent_on_with_a_letter() -> None:
    names = ["RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "ORIGIN_MESSAGE_ID", "DELAY", "TRAN_MSG", "POP_CK", "INNER_NUM"]
    record = one({**dict.fromkeys(names, "1"), "shop": "2"})
    assert sent_on(record.headers) == {"shop": "2"}
