"""Calls of several threads at one KafkaConsumer: one at a time, and each has its turn."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from holdfast import MemoryClaims
from holdfast.adapters.kafka import KafkaConsumer
from holdfast.adapters.kafka.messages import MessageSource
from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    import pytest


def test_who_asks_while_a_loop_polls_has_its_turn_before_the_loops_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = KafkaConsumer(
        {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}, claims=MemoryClaims(), assignment="keep"
    )
    consumer.subscribe(["orders"])
    calls = list[str]()

    def client(source: Any) -> Any:
        calls.append(threading.current_thread().name)
        return source._client_or_raise()

    monkeypatch.setattr(MessageSource, "client", property(client))
    other = threading.Timer(0.05, consumer.memberid)
    other.name = "other"
    other.start()
    consumer.poll(0.6)
    consumer.memberid()
    other.join(PATIENCE_S)
    consumer.close()
    assert calls == ["other", "MainThread"]
