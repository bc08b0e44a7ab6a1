"""Cluster: the broker of a scripted world, its one group, and who is meant to have which partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from holdfast.errors import DeadLetterError
from holdfast.plugin.ports import CommitFate
from holdfast.records import Partition
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.logs import Stored
from holdfast.testing.brokers.member import MemoryPartitionedSource

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from holdfast.plugin.dead_letter import Letter
    from holdfast.plugin.ports import DeadLetters, RebalanceListener, Start
    from holdfast.records import Fence, Record
    from holdfast.testing.process import Process
    from holdfast.testing.scheduler import Scheduler
    from holdfast.timing import Deadline

#: The name of the group that all members are in.
GROUP = "group"


class Say(Protocol):
    """Adds a line to the story."""

    def __call__(self, who: str, what: str, *, daily: bool = False) -> None:
        """That happened now."""
        ...


class Cluster:
    """Moves partitions as a broker does: evenly, and as few as may be, when members come and go; and as a test says."""

    def __init__(self, scheduler: Scheduler, say: Say, *, eager: bool, session_timeout_s: float) -> None:
        self._scheduler, self.say = scheduler, say
        self.session_timeout_s = session_timeout_s
        self.broker = MemoryBroker(scheduler.process("broker", preempted=False).runtime)
        self.group = self.broker.group(GROUP, protocol="eager" if eager else "consumer")
        self.letters: Callable[[str, Letter], None] = lambda _member, _letter: None
        self.letters_refused = False
        self._joined: list[ScriptedSource] = []
        #: Also who has gone.
        self._ever: list[ScriptedSource] = []
        self._plan: dict[Partition, ScriptedSource] = {}

    # ---- records and offsets
    def has(self, topic: str) -> bool:
        """Whether there is a topic of that name."""
        return self.partitions_of(topic) > 0

    def partitions_of(self, topic: str) -> int:
        """How many it has."""
        return sum(partition.topic == topic for partition in self.broker.logs)

    def produce(self, record: Record, number: int) -> None:
        """Store it at the end of that partition."""
        self.broker.store(Partition(record.topic, number), Stored(record.key, record.value, tuple(record.headers)))

    def refuse(self, partition: Partition, times: int) -> None:
        """The next commits of that partition are not taken, and may be sent again."""
        self.group.refuse(partition, *[CommitFate.AGAIN] * times)

    # ---- members
    def came(self, source: ScriptedSource) -> None:
        """It has joined."""
        self._ever.append(source)
        self._joined.append(source)
        self._balance()

    def went(self, source: ScriptedSource) -> None:
        """It has left."""
        if source in self._joined:
            self._joined.remove(source)
            self._balance()

    def silent(self, source: ScriptedSource) -> None:
        """Nothing is heard of it from now on: after its session others get its partitions. In the hub."""
        self._scheduler.at(self._scheduler.now + self.session_timeout_s, lambda: self._expel(source))

    # ---- what a test says
    def move(self, partition: Partition, to: ScriptedSource | None) -> None:
        """It is meant for that one, until members come or go; None = for nobody."""
        if to is None:
            self._plan.pop(partition, None)
        else:
            self._plan[partition] = to
        self._aim()

    def lose(self, source: ScriptedSource, partitions: Sequence[Partition], to: ScriptedSource | None) -> None:
        """These are taken away from it without a question, and are meant for another."""
        for partition in partitions:
            if to is not None:
                self._plan[partition] = to
        self.group.lose(source, *partitions)
        self._aim()

    def another(self, than: ScriptedSource) -> ScriptedSource | None:
        """Who has the fewest partitions of the others that are there."""
        able = [each for each in self._joined if each is not than and each.process.alive and not each.stalled]
        loads = {each: sum(meant is each for meant in self._plan.values()) for each in able}
        return min(able, key=loads.__getitem__) if able else None

    def of(self, source: ScriptedSource) -> list[Partition]:
        """What it has, as the broker sees it."""
        return self.group.of(source)

    def behind(self) -> list[str]:
        """Partitions of which not all is committed, as text."""
        return [
            f"{partition}: committed {self.group.offset(partition) or 0} of {log.end}"
            for partition, log in sorted(self.broker.logs.items())
            if log.end != (self.group.offset(partition) or 0)
            and any(each.wants(partition.topic) for each in self._ever)
        ]

    # ---- inside
    def _balance(self) -> None:
        wanted = sorted(each for each in self.broker.logs if any(one.wants(each.topic) for one in self._joined))
        loads = dict.fromkeys(self._joined, 0)
        fair = -(-len(wanted) // max(1, len(loads)))
        plan: dict[Partition, ScriptedSource] = {}
        for keep in (True, False):
            for partition in wanted:
                able = [each for each in loads if each.wants(partition.topic)]
                if keep:
                    able = [each for each in able if self._plan.get(partition) is each and loads[each] < fair]
                if able and partition not in plan:
                    plan[partition] = min(able, key=loads.__getitem__)
                    loads[plan[partition]] += 1
        self._plan = plan
        self._aim()

    def _aim(self) -> None:
        target: dict[MemoryPartitionedSource, list[Partition]] = {}
        for partition, source in self._plan.items():
            target.setdefault(source, []).append(partition)
        self.group.aim(target)

    def _expel(self, source: ScriptedSource) -> None:
        alive = source.process.alive
        if source not in self._joined or (alive and not source.stalled):
            return
        self.say("broker", f"{source.process.name} is silent: its partitions go to others")
        self.group.expel(source)
        if alive:
            self._scheduler.at(source.process.stalled_until, lambda: self._back(source))
        self.went(source)

    def _back(self, source: ScriptedSource) -> None:
        if source.process.alive and source not in self._joined:
            self.came(source)


class ScriptedSource(MemoryPartitionedSource):
    """What a user's app gets in the place of a source of Kafka's. It brings the machine of its process with it, and
    where dead letters go."""

    def __init__(self, cluster: Cluster, process: Process) -> None:
        super().__init__(cluster.broker, GROUP, name=process.name, runtime=process.runtime)
        self.process = process
        self.runtime = process.runtime
        self.session_timeout_s = cluster.session_timeout_s
        self._cluster, self._scheduler = cluster, cluster._scheduler  # noqa: SLF001 - of this file

    @property
    def stalled(self) -> bool:
        """Whether its process stands still."""
        return self.process.stalled_until > self._scheduler.now

    def dead_letters(self) -> DeadLetters:
        """The world's."""
        return _Letters(self._cluster, self.process)

    def open(
        self,
        topics: Collection[str],
        listener: RebalanceListener,
        owners: Mapping[Partition, Fence],
        deadline: Deadline,
    ) -> None:
        """As `PartitionedSource.open`."""
        super().open(topics, _Told(listener, self.process.name, self._cluster.say), owners, deadline)
        self._cluster.came(self)

    def close(self, deadline: Deadline, *, leave: bool = False) -> None:
        """As `PartitionedSource.close`."""
        super().close(deadline, leave=leave)
        self._cluster.went(self)

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """As `PartitionedSource.commit`."""
        said = ", ".join(f"{partition} up to {offset}" for partition, offset in sorted(offsets.items()))
        self._cluster.say(self.process.name, f"commits {said}", daily=True)
        super().commit(offsets)


class _Told:
    """Hands on what the broker says, and puts it into the story."""

    def __init__(self, listener: RebalanceListener, name: str, say: Say) -> None:
        self._listener, self._name, self._say = listener, name, say
        self.torn, self.committed = listener.torn, listener.committed
        self.reset, self.overwritten = listener.reset, listener.overwritten

    @property
    def store_id(self) -> str:
        return self._listener.store_id

    def assigned(self, partitions: Sequence[Partition]) -> Mapping[Partition, Start]:
        self._say(self._name, f"gets {_names(partitions)}")
        return self._listener.assigned(partitions)

    def revoked(self, partitions: Sequence[Partition]) -> None:
        self._say(self._name, f"is to give up {_names(partitions)}")
        self._listener.revoked(partitions)
        self._say(self._name, f"has given up {_names(partitions)}")

    def lost(self, partitions: Sequence[Partition]) -> None:
        self._say(self._name, f"learns that it has lost {_names(partitions)}")
        self._listener.lost(partitions)


class _Letters:
    """Where dead letters of a member go. Any thread."""

    def __init__(self, cluster: Cluster, process: Process) -> None:
        self._cluster, self._process = cluster, process

    def check(self, topics: Collection[str], deadline: Deadline) -> None:
        """There is nothing to check."""

    def send(self, letter: Letter, deadline: Deadline) -> None:  # noqa: ARG002 - as of DeadLetters
        """As `DeadLetters.send`."""
        self._process.runtime.sleep(0.001)
        if self._cluster.letters_refused:
            raise DeadLetterError("the broker does not take dead letters now: the test says so")
        self._cluster.letters(self._process.name, letter)

    def close(self, deadline: Deadline) -> None:
        """There is nothing to give back."""


def _names(partitions: Sequence[Partition]) -> str:
    return ", ".join(map(str, sorted(partitions)))
