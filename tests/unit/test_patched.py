"""gevent and eventlet make coroutines of threads: refused at the start, and not found out by a session that dies."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import Holdfast, MemoryClaims, idempotent
from holdfast.errors import SettingError
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource

PATCHES = pytest.mark.parametrize(
    ("module", "says", "patched"),
    [
        ("gevent.monkey", "is_module_patched", "threading"),
        ("gevent.monkey", "is_module_patched", "queue"),
        ("eventlet.patcher", "is_monkey_patched", "thread"),
    ],
)


@PATCHES
@pytest.mark.parametrize("store_down", ["raise", "open"])
def test_an_idempotent_function_whose_threads_are_patched_is_not_run(
    monkeypatch: pytest.MonkeyPatch, module: str, says: str, patched: str, store_down: Any
) -> None:
    """Nor is its import refused: a web process may be patched, and send the function to a worker that is not."""
    ran: list[int] = []

    def pay(order: int) -> None:
        ran.append(order)

    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{says: lambda name: name == patched}))
    charge = idempotent(MemoryClaims(), key="order", name="charge", store_down=store_down)(pay)
    with pytest.raises(SettingError, match=rf"{module.partition('.')[0]}.*in a process of their own"):
        charge(1)
    with pytest.raises(SettingError):
        charge(1)
    monkeypatch.delitem(sys.modules, module)
    assert not ran
    charge(1)
    assert ran == [1]


@PATCHES
def test_an_app_whose_threads_are_patched_does_not_start(
    monkeypatch: pytest.MonkeyPatch, module: str, says: str, patched: str
) -> None:
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{says: lambda name: name == patched}))
    app = Holdfast(MemoryPartitionedSource(MemoryBroker(orders=1)), claims=MemoryClaims())
    app.handler("orders")(lambda record: None)
    with pytest.raises(SettingError, match=rf"{module.partition('.')[0]}.*in a process of their own"):
        app.run()
