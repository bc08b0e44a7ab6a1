"""The start of RocketMQ's C++ client: its own errors end the client, others' come out as they are."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.rocketmq.push import client
from holdfast.adapters.rocketmq.push.client import PushClient
from holdfast.errors import SourceFatal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class SoftTimeLimit(Exception):
    """As Celery's."""


class SilentForTooLong(TimeoutError):
    """As many handlers of SIGALRM raise."""


class RocketMQException(Exception):
    __module__ = "rocketmq.exceptions"


class Consumer:
    """As the package has it; what it does at `raises` is a test's."""

    at = "start"
    shut = 0

    @staticmethod
    def raises() -> None: ...

    def __init__(self, group: str) -> None: ...

    def __getattr__(self, name: str) -> Any:
        def call(*_: object) -> None:
            if name == Consumer.at:
                Consumer.raises()

        return call

    def shutdown(self) -> None:
        Consumer.shut += 1


@pytest.fixture
def _package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    statuses = SimpleNamespace(CONSUME_SUCCESS=0, RECONSUME_LATER=1)
    monkeypatch.setattr(client, "load_classic", lambda: SimpleNamespace(ConsumeStatus=statuses, PushConsumer=Consumer))
    monkeypatch.setattr(Consumer, "shut", 0)
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


def start() -> PushClient:
    return PushClient(
        namesrv="a:1",
        group="g",
        instance="i",
        threads=1,
        credentials=None,
        subscriptions={"orders": "*"},
        take=lambda message: True,
    )


def struck_by(error: BaseException) -> Callable[[], object]:
    def handle(*_: object) -> None:
        raise error

    signal.signal(signal.SIGUSR1, handle)
    return lambda: signal.raise_signal(signal.SIGUSR1)


@pytest.mark.usefixtures("_package")
@pytest.mark.parametrize("at", ["set_thread_count", "subscribe", "start"])
@pytest.mark.parametrize("error", [SoftTimeLimit(), SilentForTooLong(), TimeoutError(), KeyboardInterrupt()], ids=type)
def test_what_a_handler_of_signals_raises_comes_out_and_the_client_does_not_stay(
    monkeypatch: pytest.MonkeyPatch, at: str, error: BaseException
) -> None:
    monkeypatch.setattr(Consumer, "at", at)
    monkeypatch.setattr(Consumer, "raises", struck_by(error))
    monkeypatch.setattr(PushClient, "shut_down", PushClient._shut_down)  # in this thread
    with pytest.raises(type(error)) as told:
        start()
    assert told.value is error
    assert Consumer.shut == (at == "start")


@pytest.mark.usefixtures("_package")
@pytest.mark.parametrize("error", [RocketMQException("no route"), OSError("no library"), TypeError("str")], ids=type)
def test_an_error_of_the_client_ends_it(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(Consumer, "raises", fail)
    with pytest.raises(SourceFatal, match="client did not start"):
        start()


@pytest.mark.usefixtures("_package")
def test_a_foreign_error_that_no_handler_has_raised_comes_out_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """RQ's death penalty by a timer's thread has no frame of its own."""

    def fail() -> None:
        raise SoftTimeLimit

    monkeypatch.setattr(Consumer, "raises", fail)
    with pytest.raises(SoftTimeLimit):
        start()
