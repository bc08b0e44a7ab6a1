"""Whole members in simulated processes: `python -m tests.simulation.members SEED ...` prints the outcome of each
seed."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from holdfast import BatchOf, Holdfast, Retry, Settings
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from holdfast.testing.scheduler import Scheduler
from holdfast.testing.store import SimulatedStore
from tests.simulation.lua.lua_store import LuaStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.records import Record
    from holdfast.testing.process import Process
    from holdfast.testing.store import StoreServer
    from holdfast.testing.tasks import Crash

RECORDS = 120


class Played(NamedTuple):
    digest: int
    switches: int
    handled: int
    left: bool
    errors: list[Crash]


class World:
    """Three members with handlers of three kinds, which come one after the other; one stands still past its lease, and
    the store loses calls and fails over."""

    def __init__(self, seed: int, store: type[StoreServer]) -> None:
        self.scheduler = Scheduler(seed, yield_odds=0.03)
        self.store = store(self.scheduler, timeout_s=0.5)
        self.broker = MemoryBroker(self.scheduler.process("broker", preempted=False).runtime, t0=3, t1=3, t2=3)
        for n in range(RECORDS):
            self.broker.produce(f"t{n % 3}", n // 3 % 3, str(n), key=str(n % 17))
        self.handled: set[tuple[str, int, int]] = set()
        self.apps: list[Holdfast] = []
        self.processes: list[Process] = []

    def start(self, name: str) -> None:
        process = self.scheduler.process(name)
        runtime = process.runtime
        settings = Settings(workers=2, ordering="key", status_interval_s=0.0)
        source = MemoryPartitionedSource(self.broker)
        app = Holdfast(source, claims=self.store.claims(process), settings=settings, runtime=runtime)

        def note(*records: Record) -> None:
            if runtime.random.random() < 0.05:
                raise ValueError(f"{name} does not like it")
            self.handled |= {(each.partition.topic, each.partition.number, each.offset) for each in records}

        def plain(record: Record) -> None:
            runtime.sleep(runtime.random.random() * 0.05)
            note(record)

        async def coroutine(record: Record) -> None:
            await asyncio.sleep(runtime.random.random() * 0.05)
            note(record)

        def batch(records: Sequence[Record]) -> None:
            runtime.sleep(0.01)
            note(*records)

        retry = Retry(attempts=20, wait_initial_s=0.01, wait_max_s=0.05, jitter_s=0.01)
        app.handler(["t0"], name="plain", key=lambda record: (record.value or b"").decode(), retry=retry)(plain)
        app.handler(["t1"], name="coroutine", retry=retry)(coroutine)
        app.handler(["t2"], name="batch", batch=BatchOf(records=5, wait_s=0.02), retry=retry)(batch)
        self.apps.append(app)
        self.processes.append(process)
        process.spawn(partial(self._run, app, process), "main")

    @staticmethod
    def _run(app: Holdfast, process: Process) -> None:
        app.run(install_signal_handlers=False)
        process.crash()  # done: its threads end with it

    def play(self) -> Played:
        scheduler, network = self.scheduler, self.store.network
        began = scheduler.now
        for n, name in enumerate("abc"):
            scheduler.at(began + 0.2 * n, partial(self.start, name))
        scheduler.at(began + 0.5, lambda: self.processes[0].stall(5.0))
        scheduler.at(began + 0.6, partial(network.lose, calls=0.1, replies=0.1, late=0.1))
        scheduler.at(began + 0.7, partial(self.store.fail_over, 0.2))
        scheduler.at(began + 2.0, network.lose)
        scheduler.run(lambda: len(self.handled) == RECORDS and scheduler.now > began + 8, began + 120)
        for app in self.apps:
            app.stop()
        left = scheduler.run(lambda: not any(each.alive for each in self.processes), scheduler.now + 60)
        played = Played(scheduler.digest, scheduler.switches, len(self.handled), left, scheduler.errors)
        scheduler.end()
        return played


def main(seeds: Sequence[str]) -> None:
    for seed in seeds:
        for store in (SimulatedStore, LuaStore):
            print(seed, store.__name__, World(int(seed), store).play())


if __name__ == "__main__":
    main(sys.argv[1:])
