"""One script for two brokers, a model and the server that it stands for: what both have in common."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import SourceError
from holdfast.plugin.ports import Committed, Start
from holdfast.records import Partition
from holdfast.testing.records import MadeFence
from holdfast.testing.scheduler import Scheduler
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.plugin.ports import CommitFate, PartitionedSource
    from holdfast.runtime import Runtime

S = TypeVar("S")
#: What a script has seen.
Seen = list[object]

_ANSWER_S = 10.0
_POLL_S = 0.02


class Everything(dict[Any, Any]):
    """Each partition is its member's: what is delivered is seen."""

    def get(self, key: object, default: object = None) -> MadeFence:
        return MadeFence()


class Witness:
    """A member without an engine. It begins where the group has committed, else at the log's start, as an engine does,
    and writes down what it is told."""

    store_id = "store"

    def __init__(self, source: PartitionedSource, topic: str, runtime: Runtime, *, broker: str = "") -> None:
        self.source, self.topic, self._runtime, self._broker = source, topic, runtime, broker
        self.polls, self._leaves = True, False
        #: What is told of assignments, by how many partitions; which of them is the assignor's matter.
        self.story: list[str] = []
        self.has: set[int] = set()
        #: Partition -> where it began, at its last assignment.
        self.began: dict[int, int] = {}
        self.read: dict[int, list[int]] = {}
        #: Partition -> up to where it was read.
        self.at: dict[int, int] = {}
        self.fates: list[str] = []
        self.errors: list[str] = []
        #: Called inside `revoked`, first.
        self.on_revoked: Callable[[Sequence[Partition]], None] = lambda _: None
        owners: Any = Everything()
        source.open([topic], self, owners, self.deadline())

    def deadline(self) -> Deadline:
        return Deadline(_ANSWER_S, self._runtime)

    def partition(self, number: int) -> Partition:
        """As its source calls it."""
        return Partition(self.topic, number, self._broker)

    def poll(self) -> None:
        try:
            batch = self.source.poll(100, _POLL_S)
        except SourceError as error:
            self.errors.append(type(error).__name__)
            return
        for record in batch.records:
            self.read.setdefault(record.partition.number, []).append(record.offset)
            self.at[record.partition.number] = record.offset + 1
        for end in batch.ends:
            self.at[end.partition.number] = end.offset

    def commit(self, offsets: Mapping[int, int]) -> None:
        self.source.commit({self.partition(number): offset for number, offset in offsets.items()})

    def known(self, number: int) -> Committed | SourceError | None:
        """What the group has committed, as an engine reads it at a takeover."""
        partition = self.partition(number)
        self.source.position_names([partition], self.deadline())
        return self.source.committed([partition], self.deadline())[partition]

    def close(self, **how: bool) -> None:
        """Leave the group."""
        self._leaves = True
        self.source.close(self.deadline(), **how)

    # ---- the listener
    def assigned(self, partitions: Sequence[Partition]) -> Mapping[Partition, Start]:
        self._note("+", partitions)
        if self._leaves:  # a client that closes may be told of one more assignment; an engine that stops takes nothing
            return dict.fromkeys(partitions, Start(None, hold=True))
        if not partitions:
            return {}
        self.source.position_names(partitions, self.deadline())
        committed = self.source.committed(partitions, self.deadline())
        first = self.source.first_offsets(partitions, self.deadline())
        starts = {}
        for each in partitions:
            found = committed[each]
            start = found.offset if isinstance(found, Committed) else first[each]
            assert isinstance(start, int), start
            starts[each] = Start(start, hold=False)
            if each.topic == self.topic:
                self.began[each.number] = start
                self.has.add(each.number)
        return starts

    def revoked(self, partitions: Sequence[Partition]) -> None:
        self._note("-", partitions)
        self.on_revoked(partitions)
        self.has -= self._ours(partitions)

    def lost(self, partitions: Sequence[Partition]) -> None:
        self._note("lost ", partitions)
        self.has -= self._ours(partitions)

    def torn(self, came: object, gone: object) -> None:
        raise AssertionError(came, gone)

    def committed(self, offsets: Mapping[Partition, int], fate: Mapping[Partition, CommitFate]) -> None:
        self.fates += [f"{each.number}@{offset} {fate[each].value}" for each, offset in offsets.items()]

    def reset(self, partition: Partition, offset: int, *, cut: bool = False) -> None:
        self.story.append(f"{'cut' if cut else 'reset'} {partition.number}@{offset}")

    def overwritten(self, partition: Partition, offset: int) -> None:
        self.story.append(f"overwritten {partition.number}@{offset}")

    def _note(self, what: str, partitions: Sequence[Partition]) -> None:
        if ours := self._ours(partitions):  # of none, nothing is told
            self.story.append(f"{what}{len(ours)}")

    def _ours(self, partitions: Sequence[Partition]) -> set[int]:
        """Without those of a group's retry topic, which the model does not make."""
        return {each.number for each in partitions if each.topic == self.topic}


class Clock:
    """Polls all members in turn, in one thread, until something is so."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.members: list[Witness] = []

    def until(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        ends = self.runtime.now() + seconds
        while not condition():
            assert self.runtime.now() < ends, [(each.story, each.fates, each.at, each.errors) for each in self.members]
            self.poll()

    def until_shared(self, total: int, *members: Witness) -> None:
        """Each of them has its share."""
        self.until(lambda: all(len(each.has) == total // len(members) for each in members))

    def go_on(self, seconds: float = 1.0) -> None:
        """What is still to come, comes."""
        ends = self.runtime.now() + seconds
        while self.runtime.now() < ends:
            self.poll()

    def poll(self) -> None:
        polling = [each for each in self.members if each.polls]
        for each in polling:
            each.poll()
        if not polling:
            self.runtime.sleep(_POLL_S)


def in_no_time(stage: Callable[[Scheduler], S], script: Callable[[S], Seen]) -> Seen:
    """What a script sees on a model, in virtual time."""
    scheduler = Scheduler(1, jitter=False)
    ground, seen = stage(scheduler), Seen()
    task = scheduler.process("reader").spawn(lambda: seen.extend(deepcopy(script(ground))), "script")
    scheduler.run(lambda: not task.is_alive(), 3600.0)
    errors = list(scheduler.errors)
    scheduler.end()
    assert not errors, errors
    return seen
