"""PushSource without the client: what it refuses, and how callbacks wait."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, Settings
from holdfast.adapters.rocketmq import PushSource, packages
from holdfast.adapters.rocketmq.push.client import read
from holdfast.adapters.rocketmq.push.inbox import Inbox
from holdfast.adapters.rocketmq.unique_keys import identity_of
from holdfast.errors import MissingExtraError, SettingError
from holdfast.records import Partition, Record
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

_PATIENCE_S = 60.0
QUEUE = Partition("orders", 0)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.adapters.rocketmq.push.source.load_classic", lambda: ModuleType("client"))


def test_without_the_package_one_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_folders", list)
    monkeypatch.setattr(packages, "_has_wheel", lambda: True)
    with pytest.raises(MissingExtraError, match=r"holdfast-mq\[rocketmq\]"):
        PushSource(namesrv="127.0.0.1:9876", group="billing")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    "wrong",
    [
        {"namesrv": ""},
        {"group": "a b"},
        {"threads": 0},
        {"queue_lease_wait_s": -1.0},
        {"consume_from_where": "timestamp"},
    ],
    ids=str,
)
def test_a_value_that_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(wrong))):
        PushSource(**{"namesrv": "127.0.0.1:9876", "group": "billing"} | wrong)


@pytest.mark.usefixtures("installed")
def test_an_order_that_it_cannot_keep_is_refused() -> None:
    with pytest.raises(SettingError, match="RocketMQSource"):
        Holdfast(
            PushSource(namesrv="127.0.0.1:9876", group="billing"), claims=None, settings=Settings(ordering="partition")
        )


class Message:
    """As the client gives it in a callback."""

    topic, queue_id, queue_offset, id, body = "orders", 3, 7, "ID", b"value"
    reconsume_times, born_timestamp = 0, 1_000

    def __init__(self, **properties: bytes) -> None:
        self._properties = properties

    def get_property(self, name: str) -> bytes:
        return self._properties.get(name, b"")


def test_a_message_is_read_with_the_properties_that_were_named() -> None:
    arrived = read(Message(KEYS=b"k", TAGS=b"t", color=b"blue", other=b"x"), ["color"])
    assert arrived == (
        Partition("orders", 3), 7, identity_of("ID", b"value"), b"k", b"value",
        (("KEYS", b"k"), ("TAGS", b"t"), ("color", b"blue")), 1_000,
    )  # fmt: skip


def test_one_of_the_retry_topic_is_in_no_queue_of_its_topic() -> None:
    message = Message(RETRY_TOPIC=b"orders")
    message.reconsume_times = 2
    arrived = read(message, [])
    assert arrived.partition == Partition("orders", 3, "retry")
    assert arrived.headers == (("RETRY_TOPIC", b"orders"), ("RECONSUME_TIMES", b"2"))


class Callbacks:
    """Native threads, each with one message."""

    def __init__(self) -> None:
        self.inbox = Inbox()
        self.answers: list[bool] = []
        self._threads: list[threading.Thread] = []

    def call(self, offset: int, identity: str = "id") -> None:
        record = Record(QUEUE, offset, None, b"", (), -1, None)  # type: ignore[arg-type]
        before = self.inbox.waiting
        thread = threading.Thread(target=lambda: self.answers.append(self.inbox.hand_over(record, identity)))
        thread.start()
        self._threads.append(thread)
        self.wait(lambda: self.inbox.waiting > before)

    def wait(self, over: Callable[[], bool]) -> None:
        until(over, lambda: self.answers)

    def all(self) -> list[bool]:
        for thread in self._threads:
            thread.join(_PATIENCE_S)
            assert not thread.is_alive()
        return self.answers


class TestInbox:
    def test_a_callback_waits_until_its_record_is_acknowledged(self) -> None:
        callbacks = Callbacks()
        callbacks.call(1)
        (record,) = callbacks.inbox.take(10, 0.0)
        assert callbacks.answers == []
        assert callbacks.inbox.acknowledge([record]) == []
        assert callbacks.all() == [True]

    def test_what_comes_twice_at_once_is_handled_once_and_both_get_the_answer(self) -> None:
        callbacks = Callbacks()
        callbacks.call(1)
        callbacks.call(1)
        records = callbacks.inbox.take(10, 0.0)
        assert len(records) == 1
        callbacks.inbox.acknowledge(records)
        assert callbacks.all() == [True, True]

    def test_another_message_of_the_same_place_waits_for_its_turn(self) -> None:
        callbacks = Callbacks()
        callbacks.call(1, "of one broker")
        callbacks.call(1, "of another")
        (record,) = callbacks.inbox.take(10, 0.0)
        assert callbacks.inbox.identity(record) == "of one broker"
        callbacks.inbox.acknowledge([record])
        (record,) = callbacks.inbox.take(10, _PATIENCE_S)
        assert callbacks.inbox.identity(record) == "of another"
        callbacks.inbox.acknowledge([record])
        assert callbacks.all() == [True, True]

    def test_what_is_given_back_is_taken_again_and_its_callback_waits_on(self) -> None:
        callbacks = Callbacks()
        callbacks.call(1)
        records = callbacks.inbox.take(10, 0.0)
        callbacks.inbox.give_again(records)
        assert callbacks.inbox.take(10, 0.0) == records
        assert callbacks.answers == []
        callbacks.inbox.close()
        callbacks.all()

    def test_closed_it_answers_all_and_takes_no_more(self) -> None:
        callbacks = Callbacks()
        callbacks.call(1)
        callbacks.call(2)
        (record,) = callbacks.inbox.take(1, 0.0)
        callbacks.inbox.close()
        assert callbacks.all() == [False, False]
        assert not callbacks.inbox.hand_over(record, "later")
        assert callbacks.inbox.acknowledge([record]) == [record]
