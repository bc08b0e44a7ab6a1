"""What becomes of polls at RocketMQ's proxy when a member stops."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from holdfast.adapters.rocketmq.grpc import receiving
from holdfast.adapters.rocketmq.grpc.by_message import ByMessage
from holdfast.adapters.rocketmq.grpc.config import Wanted
from holdfast.adapters.rocketmq.grpc.delivery import Delivery, PollTarget, Verdict
from holdfast.errors import SourceUnavailable
from holdfast.runtime import MACHINE
from holdfast.timing import Deadline
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest


class Proxy:
    """Holds each poll until a message comes or the poll is ended."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.waits = self.ended = False
        self._messages: list[Delivery] = []
        self.given_back: list[str] = []

    def send(self, name: str) -> None:
        with self._changed:
            self._messages.append(Delivery("orders", name, name, None, b"", None, (), 0, 1, packed=False))
            self._changed.notify_all()

    def open(self, deadline: Deadline) -> None: ...

    def renew(self) -> None: ...

    def close(self) -> None: ...

    def places(self) -> Sequence[PollTarget]:
        return [PollTarget("orders", "broker-a")]

    def receive(self, place: PollTarget, at_most: int) -> Sequence[Delivery]:
        with self._changed:
            self.waits = True
            assert self._changed.wait_for(lambda: self.ended or self._messages, PATIENCE_S)
            self.waits = False
            if self.ended:
                raise SourceUnavailable("the poll was ended")
            some, self._messages = self._messages, []
            return some

    def end_poll(self, place: PollTarget) -> None:
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def begin_acknowledge(self, deliveries: Sequence[Delivery], answer: Callable[[Any], None]) -> None: ...

    def begin_change(self, delivery: Delivery, hidden_s: int, answer: Callable[[Any, str], None]) -> None:
        assert hidden_s == 0
        self.given_back.append(delivery.message_id)
        answer(Verdict.DONE, "")


def opened(proxy: Proxy) -> ByMessage:
    source = ByMessage(Wanted(group="billing"), lambda _: proxy, MACHINE)
    fence: Any = object()
    source.open(["orders"], fence, Deadline(PATIENCE_S))
    source.poll(0, 0.0)
    until(lambda: proxy.waits)
    return source


def test_a_poll_that_waits_is_ended_at_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "_WAITS_S", 0.0)
    proxy = Proxy()
    source = opened(proxy)
    source.drain()
    until(lambda: source._receiving.over)
    source.close(Deadline(PATIENCE_S))
    assert proxy.ended


def test_a_poll_that_waits_later_is_ended_while_handlers_run(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Proxy()
    source = opened(proxy)
    monkeypatch.setattr(receiving, "_WAITS_S", PATIENCE_S)
    source.drain()
    assert not proxy.ended
    monkeypatch.setattr(receiving, "_WAITS_S", 0.0)
    source.extend([])
    until(lambda: source._receiving.over)
    source.close(Deadline(PATIENCE_S))


def test_a_poll_that_may_be_getting_messages_brings_them_and_they_are_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receiving, "_WAITS_S", PATIENCE_S)
    proxy = Proxy()
    source = opened(proxy)
    source.drain()
    proxy.send("m1")
    source.close(Deadline(PATIENCE_S))
    assert not proxy.ended
    assert proxy.given_back == ["m1"]
