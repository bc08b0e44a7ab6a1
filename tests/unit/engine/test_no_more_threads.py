"""A process that can start no more threads: by a limit or, from Python 3.12 on, as its main thread is over."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, MemoryClaims, Settings, Unretriable
from holdfast.runtime import Machine
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.engine import Letters, numbered, partition
from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.records import Record
    from holdfast.runtime import Thread

ROOT = Path(__file__).parents[3]
#: Who waits for what never comes is found out.
NEVER_OVER: dict[str, Any] = {"linger_timeout_s": 10 * PATIENCE_S, "drain_timeout_s": 10 * PATIENCE_S}


class Limited(Machine):
    """A machine with a limit of threads for handlers."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.left = limit

    def spawn(self, target: Callable[[], None], name: str) -> Thread:
        if not name.startswith("holdfast-lease-"):
            if not self.left:
                raise RuntimeError("can't start new thread")
            self.left -= 1
        return super().spawn(target, name)


def make(
    limit: int, handler: Callable[..., Any], *, dead_letter: str | None = None, **settings: Any
) -> tuple[MemoryBroker, Holdfast]:
    broker = MemoryBroker(orders=1)
    broker.produce("orders", 0, *numbered("r", range(20)))
    values = {"ramp": None, "ordering": "none", "workers": 4, **settings}
    app = Holdfast(
        MemoryPartitionedSource(broker),
        claims=MemoryClaims(),
        settings=Settings(**values),
        runtime=Limited(limit),
        dead_letters=Letters(threading.Condition()),
    )
    app.handler("orders", name="handle", dead_letter=dead_letter)(handler)
    return broker, app


def test_those_threads_that_run_handle_everything() -> None:
    seen: list[int] = []

    def handle(record: Record) -> None:
        threading.Event().wait(0.002)  # long enough for another worker to be wanted
        seen.append(record.offset)
        if len(seen) == 20:
            app.stop()

    broker, app = make(1, handle)
    app.run()
    assert sorted(seen) == list(range(20))
    assert broker.group("g").offset(partition()) == 20


def test_without_any_thread_the_app_ends_at_once_and_nothing_has_started() -> None:
    def handle(record: Record) -> None:
        raise AssertionError(record)

    broker, app = make(0, handle, **NEVER_OVER)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        app.run()
    assert broker.group("g").offset(partition()) in (None, 0)
    assert app.snapshot().records.failed_attempts == 0


def test_without_a_thread_for_the_event_loop_too() -> None:
    async def handle(record: Record) -> None:
        raise AssertionError(record)

    broker, app = make(0, handle, **NEVER_OVER)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        app.run()
    assert broker.group("g").offset(partition()) in (None, 0)


def test_without_a_thread_for_a_dead_letter_its_record_is_not_done() -> None:
    def handle(record: Record) -> None:
        raise ValueError(record)

    broker, app = make(0, handle, dead_letter="orders.dlq", workers=0, **NEVER_OVER)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        app.run()
    assert broker.group("g").offset(partition()) in (None, 0)


def test_without_a_thread_for_what_is_told_of_letters_they_are_there_all_the_same() -> None:
    def handle(record: Record) -> None:
        if record.offset == 19:
            app.stop()
        raise Unretriable(record)

    broker, app = make(1, handle, dead_letter="orders.dlq", workers=0, ordering="partition")  # for the letters
    told: list[Any] = []
    app.on_dead_letter(told.append)
    app.run()
    assert told == []
    assert broker.group("g").offset(partition()) == app.snapshot().records.dead_lettered > 0


#: The handlers still run when the main thread ends.
PROGRAM = textwrap.dedent("""
    import atexit, threading, time
    from holdfast import Holdfast, MemoryClaims, Settings
    from holdfast.testing.brokers.kafka import MemoryBroker
    from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
    from holdfast.records import Partition

    broker = MemoryBroker(orders=1)
    broker.produce("orders", 0, *"abcdefgh")
    app = Holdfast(
        MemoryPartitionedSource(broker), claims=MemoryClaims(), settings=Settings(workers=8, ordering="none", ramp=None)
    )
    begun, seen = threading.Event(), []

    @app.handler("orders")
    def handle(record):
        begun.set()
        time.sleep(0.2)
        seen.append(record.offset)

    def tell():
        print(sorted(seen) == list(range(len(seen))), broker.group("g").offset(Partition("orders", 0)) == len(seen))

    atexit.register(tell)
    atexit.register(app.stop, wait=True)
    app.start()
    begun.wait()
""")


def test_a_main_thread_that_ends_before_the_app_drains_what_runs() -> None:
    """Python 3.12 and later start no thread from then on."""
    command = [sys.executable, "-W", "error", "-c", PROGRAM]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert ran.stdout == "True True\n"
    assert "Traceback" not in ran.stderr
