"""The real engine on brokers that behave as the real ones: a member is killed, one stands still, nothing is lost."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, Settings
from holdfast.records import Partition
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from holdfast.testing.scheduler import Scheduler
from holdfast.testing.store import SimulatedStore
from tests.simulation.brokers.rocketmq import RocketBroker
from tests.simulation.brokers.rocketmq_member import RocketSource

if TYPE_CHECKING:
    from holdfast.plugin.ports import PartitionedSource
    from holdfast.records import Record
    from holdfast.testing.process import Process

RECORDS = 60
SESSION_S = 3.0


class Play:
    """A group of apps on one of the brokers."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind, self.scheduler = kind, Scheduler(seed)
        server = self.scheduler.process("broker", preempted=False).runtime
        self.broker = (RocketBroker if kind == "rocketmq" else MemoryBroker)(server, orders=4)
        self.store = SimulatedStore(self.scheduler, lease_s=SESSION_S, timeout_s=1.0)
        self.handled: Counter[tuple[int, int]] = Counter()
        self.apps: list[Holdfast] = []
        if isinstance(self.broker, RocketBroker):
            return
        self.group = self.broker.group("g", protocol=kind)  # type: ignore[arg-type]

    def source(self, name: str, process: Process) -> PartitionedSource:
        named: dict[str, Any] = {"name": name, "runtime": process.runtime}
        if isinstance(self.broker, RocketBroker):
            return RocketSource(self.broker, coordinator=self.store.coordinator(process), lease_s=SESSION_S, **named)
        return MemoryPartitionedSource(self.broker, session_timeout_s=SESSION_S, heartbeat_s=0.5, **named)

    def join(self, name: str) -> Process:
        process = self.scheduler.process(name)
        app = Holdfast(
            self.source(name, process),
            claims=self.store.claims(process),
            settings=Settings(workers=2, commit_interval_s=0.2, drain_timeout_s=1.0),
            runtime=process.runtime,
        )

        @app.handler("orders", name="handle")
        def handle(record: Record) -> None:
            process.runtime.sleep(0.05)
            self.handled[record.partition.number, record.offset] += 1

        self.apps.append(app)
        process.spawn(lambda: app.run(install_signal_handlers=False), name)
        return process

    def committed(self) -> bool:
        for number in range(4):
            partition = Partition("orders", number)
            found = (
                self.broker.offsets.get(("g", partition))
                if isinstance(self.broker, RocketBroker)
                else self.group.offset(partition)
            )
            if found != RECORDS:
                return False
        return True


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["eager", "cooperative", "consumer", "rocketmq"])
def test_a_kill_and_a_stall_lose_nothing_and_repeat_what_was_in_hand_at_most(kind: str, seed: int) -> None:
    play = Play(kind, seed)
    try:
        for number in range(4):
            play.broker.produce("orders", number, *[str(offset) for offset in range(RECORDS)])
        killed, stalls, _ = play.join("a"), play.join("b"), play.join("c")
        began = play.scheduler.now
        play.scheduler.at(began + 2.0, killed.crash)
        play.scheduler.at(began + 3.0, lambda: stalls.stall(8.0))
        assert play.scheduler.run(play.committed, began + 120.0), (play.scheduler.errors, len(play.handled))
        assert len(play.handled) == 4 * RECORDS
        assert sum(play.handled.values()) - 4 * RECORDS <= 2 * 2  # two members, two workers each
    finally:
        play.scheduler.end()
