"""Kafka in memory: topics, and groups that move towards their target as the consumer protocol does.

Who has a partition that is meant for another gives it up inside its next poll, and only then does the other get it.
With `eager`, everybody gives up everything first.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, NamedTuple

from holdfast.plugin.ports import CommitFate
from holdfast.runtime import MACHINE
from holdfast.testing.brokers.logs import Topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.records import Partition
    from holdfast.runtime import Runtime
    from holdfast.testing.brokers.member import MemoryPartitionedSource


class Attempt(NamedTuple):
    """A commit that reached the broker."""

    member: MemoryPartitionedSource
    partition: Partition
    offset: int
    fate: CommitFate


class MemoryBroker(Topics):
    """One broker: so many partitions of each topic, and groups. Any thread.

    Args:
        runtime: the machine that it runs on.
        topics: by name, how many partitions each has.
    """

    def __init__(self, runtime: Runtime = MACHINE, /, **topics: int) -> None:
        super().__init__(runtime)
        self._groups: dict[str, MemoryGroup] = {}
        for topic, partitions in topics.items():
            self.create(topic, partitions)

    def group(self, name: str = "g", *, eager: bool = False) -> MemoryGroup:
        """The group of that name; the first who asks says how it rebalances."""
        with self.changed:
            return self._groups.setdefault(name, MemoryGroup(self, eager=eager))

    def _topics_changed(self) -> None:
        for group in self._groups.values():
            group.balance()
        self.changed.notify_all()


class MemoryGroup:
    """Who has what, who is meant to have it, and what is committed. Guarded by the broker's lock."""

    def __init__(self, broker: MemoryBroker, *, eager: bool) -> None:
        self.broker, self.eager = broker, eager
        self.members: list[MemoryPartitionedSource] = []
        #: Partition -> member and the generation in which it came.
        self.owners: dict[Partition, tuple[MemoryPartitionedSource, int]] = {}
        self.target: dict[Partition, MemoryPartitionedSource] = {}
        self.generation = 0
        #: Partition -> offset, and whether it carries our mark.
        self.committed: dict[Partition, tuple[int, bool]] = {}
        self.attempts: list[Attempt] = []
        self._scripted = False
        self._refusals: dict[Partition, deque[CommitFate]] = defaultdict(deque)

    # ---- for tests
    def aim(self, target: Mapping[MemoryPartitionedSource, Iterable[Partition]]) -> None:
        """From now on this is who is meant to have what; joins and leaves change nothing about it."""
        with self.broker.changed:
            self._scripted = True
            self._retarget({partition: member for member, own in target.items() for partition in own})

    def lose(self, member: MemoryPartitionedSource, *partitions: Partition) -> None:
        """The broker takes these (all, if none is named) from a member, which learns of it in its next poll."""
        with self.broker.changed:
            for partition in partitions or self.of(member):
                self.owners.pop(partition)
                member.lost.append(partition)
            self.broker.changed.notify_all()

    def set_offset(self, partition: Partition, offset: int | None, *, ours: bool = False) -> None:
        """By hand (a reset), or as a commit of ours that came late; None = it expired."""
        with self.broker.changed:
            if offset is None:
                self.committed.pop(partition, None)
            else:
                self.committed[partition] = (offset, ours)

    def refuse(self, partition: Partition, *fates: CommitFate) -> None:
        """The next commits of that partition end so."""
        with self.broker.changed:
            self._refusals[partition].extend(fates)

    def of(self, member: MemoryPartitionedSource) -> list[Partition]:
        """What a member has."""
        with self.broker.changed:
            return sorted(partition for partition, (owner, _) in self.owners.items() if owner is member)

    def offset(self, partition: Partition) -> int | None:
        """What is committed; None = nothing."""
        with self.broker.changed:
            found = self.committed.get(partition)
            return found and found[0]

    # ---- for members
    def balance(self, *, without: MemoryPartitionedSource | None = None) -> None:
        """As even as may be, moving as little as may be."""
        if self._scripted:
            self._retarget({partition: member for partition, member in self.target.items() if member is not without})
            return
        target: dict[Partition, MemoryPartitionedSource] = {}
        loads = dict.fromkeys(self.members, 0)
        wanted = sorted(p for p in self.broker.logs if any(member.wants(p.topic) for member in self.members))
        fair = -(-len(wanted) // max(1, len(self.members)))
        for keep in (True, False):
            for partition in wanted:
                able = [member for member in self.members if member.wants(partition.topic)]
                if keep:
                    able = [member for member in able if self.target.get(partition) is member and loads[member] < fair]
                if able and partition not in target:
                    target[partition] = min(able, key=loads.__getitem__)
                    loads[target[partition]] += 1
        self._retarget(target)

    def _retarget(self, target: dict[Partition, MemoryPartitionedSource]) -> None:
        if target != self.target:
            self.target = target
            self.generation += 1
        self.broker.changed.notify_all()

    def leaving(self, member: MemoryPartitionedSource) -> list[Partition]:
        """What the member has to give up now."""
        stale = self.generation if self.eager else None
        return sorted(
            partition
            for partition, (owner, generation) in self.owners.items()
            if owner is member and (self.target.get(partition) is not member or stale not in (None, generation))
        )

    def coming(self, member: MemoryPartitionedSource) -> list[Partition]:
        """What the member gets now."""
        if self.eager and any(generation != self.generation for _, generation in self.owners.values()):
            return []
        mine = sorted(p for p, meant in self.target.items() if meant is member and p not in self.owners)
        self.owners.update(dict.fromkeys(mine, (member, self.generation)))
        return mine

    def left(self, member: MemoryPartitionedSource, partitions: Iterable[Partition]) -> None:
        """A member has given these up."""
        for partition in partitions:
            if partition in self.owners and self.owners[partition][0] is member:
                del self.owners[partition]
        self.broker.changed.notify_all()

    def commit(self, member: MemoryPartitionedSource, partition: Partition, offset: int) -> CommitFate:
        """One partition's commit, as far as this group takes it."""
        fate = CommitFate.DONE
        if self._refusals[partition]:
            fate = self._refusals[partition].popleft()
        elif partition not in self.owners or self.owners[partition][0] is not member:
            fate = CommitFate.DISCARD
        else:
            self.committed[partition] = (offset, True)
        self.attempts.append(Attempt(member, partition, offset, fate))
        self.broker.changed.notify_all()
        return fate
