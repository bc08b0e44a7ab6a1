"""gevent and eventlet make coroutines of threads: refused at the start, and not found out by a session that dies."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from holdfast import Holdfast, MemoryClaims
from holdfast.errors import SettingError
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource


@pytest.mark.parametrize(
    ("module", "says", "patched"),
    [
        ("gevent.monkey", "is_module_patched", "threading"),
        ("eventlet.patcher", "is_monkey_patched", "thread"),
    ],
)
def test_an_app_whose_threads_are_patched_does_not_start(
    monkeypatch: pytest.MonkeyPatch, module: str, says: str, patched: str
) -> None:
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{says: lambda name: name == patched}))
    app = Holdfast(MemoryPartitionedSource(MemoryBroker(orders=1)), claims=MemoryClaims())
    app.handler("orders")(lambda record: None)
    with pytest.raises(SettingError, match=rf"{module.partition('.')[0]}.*in a process of their own"):
        app.run()
