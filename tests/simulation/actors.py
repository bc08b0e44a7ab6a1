"""Members without an engine, in a simulated world: they poll, do what they are told, and write down what comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from holdfast.plugin.ports import Start
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from holdfast.testing.records import MadeFence
from holdfast.testing.scheduler import Scheduler
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.plugin.ports import CommitFate
    from holdfast.records import Partition
    from holdfast.testing.brokers.kafka_group import Rebalancing

POLL_S = 0.1


class Actor:
    """One member in one process, and its listener."""

    store_id = "store"

    def __init__(self, stage: Stage, name: str, options: Mapping[str, Any]) -> None:
        self.stage, self.name = stage, name
        self.process = stage.scheduler.process(name)
        self.source = MemoryPartitionedSource(stage.broker, name=name, runtime=self.process.runtime, **options)
        #: ("assigned" | "revoked" | "lost", partitions' numbers), and when.
        self.story: list[tuple[str, tuple[int, ...]]] = []
        self.times: list[float] = []
        self.read: list[tuple[int, int]] = []
        self.batches: list[int] = []
        self.fates: list[tuple[int, int, CommitFate]] = []
        self.errors: list[Exception] = []
        #: Called inside `revoked`.
        self.on_revoked: Callable[[Sequence[Partition]], None] = lambda _: None
        #: Called before each poll, in the member's own task.
        self.orders: list[Callable[[], None]] = []
        self.polls = True
        self.over: bool = False
        self.process.spawn(self._run, name)

    @property
    def has(self) -> list[int]:
        return sorted(partition.number for partition in self.source.readers)

    def _run(self) -> None:
        owners: Any = Everything()
        self.source.open(["orders"], self, owners, self.deadline())
        while True:
            orders, self.orders = self.orders, []
            for order in orders:
                order()
            if self._closed():
                return
            if not self.polls:
                self.process.runtime.sleep(POLL_S)
                continue
            try:
                batch = self.source.poll(10, POLL_S)
            except Exception as error:  # noqa: BLE001 - asked for by the test
                self.errors.append(error)
                self.process.runtime.sleep(POLL_S)
                continue
            self.batches.append(len(batch.records))
            self.read += [(record.partition.number, record.offset) for record in batch.records]

    def _closed(self) -> bool:
        return self.over

    def deadline(self, seconds: float = 3.0) -> Deadline:
        return Deadline(seconds, self.process.runtime)

    def order(self, call: Callable[[], None]) -> None:
        self.orders.append(call)

    def close(self, *, leave: bool = False) -> None:
        def stop() -> None:
            self.source.close(self.deadline(), leave=leave)
            self.over = True

        self.order(stop)

    # ---- the listener
    def _note(self, what: str, partitions: Sequence[Partition]) -> None:
        self.story.append((what, tuple(sorted(each.number for each in partitions))))
        self.times.append(self.stage.scheduler.now)

    def assigned(self, partitions: Sequence[Partition]) -> Mapping[Partition, Start]:
        self._note("assigned", partitions)
        return {partition: Start(None, hold=False) for partition in partitions}

    def revoked(self, partitions: Sequence[Partition]) -> None:
        self._note("revoked", partitions)
        self.on_revoked(partitions)

    def lost(self, partitions: Sequence[Partition]) -> None:
        self._note("lost", partitions)

    def torn(self, came: object, gone: object) -> None: ...

    def committed(self, offsets: Mapping[Partition, int], fates: Mapping[Partition, CommitFate]) -> None:
        self.fates += [(partition.number, offset, fates[partition]) for partition, offset in offsets.items()]

    def reset(self, partition: Partition, offset: int, *, cut: bool = False) -> None: ...

    def overwritten(self, partition: Partition, offset: int) -> None: ...


class Everything(dict[Any, Any]):
    """Each partition is somebody's."""

    def get(self, key: object, default: object = None) -> MadeFence:
        return MadeFence()


class Stage:
    """A broker, a group and its members."""

    def __init__(self, protocol: Rebalancing = "consumer", *, orders: int = 4) -> None:
        self.scheduler = Scheduler(1, jitter=False)
        self.broker = MemoryBroker(self.scheduler.process("kafka", preempted=False).runtime, orders=orders)
        self.group = self.broker.group("g", protocol=protocol)

    def member(self, name: str, **options: Any) -> Actor:
        """With a session of 6 s and beats each half second."""
        return Actor(self, name, {"session_timeout_s": 6.0, "heartbeat_s": 0.5, **options})

    def until(self, over: Callable[[], object], seconds: float = 60.0) -> float:
        """Returns: how long it took."""
        began = self.scheduler.now
        assert self.scheduler.run(lambda: bool(over()), began + seconds), "it never came true"
        return self.scheduler.now - began

    def pass_time(self, seconds: float) -> None:
        self.scheduler.run(lambda: False, self.scheduler.now + seconds)

    def settled(self, *actors: Actor) -> float:
        """Each has its share, and nobody two."""
        fair = len(self.broker.logs) // len(actors)
        return self.until(lambda: all(len(actor.has) >= fair for actor in actors) and self.owned_once(*actors))

    def owned_once(self, *actors: Actor) -> bool:
        return sorted(number for actor in actors for number in actor.has) == list(range(len(self.broker.logs)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        errors = list(self.scheduler.errors)
        self.scheduler.end()
        assert kind is not None or not errors, errors
