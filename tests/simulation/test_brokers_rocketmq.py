"""RocketMQ in memory does what the real one was seen to do. Each test names who saw it: contracts, on a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.dedup.memory_coordinator import MemoryCoordinator
from holdfast.plugin.ports import CommitFate, Start
from holdfast.records import Partition
from holdfast.testing.records import MadeFence
from holdfast.testing.scheduler import Scheduler
from holdfast.timing import Deadline
from tests.simulation.brokers.rocketmq import RocketBroker
from tests.simulation.brokers.rocketmq_member import RocketSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

Q0 = Partition("orders", 0)


class Everything(dict[Any, Any]):
    def get(self, key: object, default: object = None) -> MadeFence:
        return MadeFence()


class Actor:
    """A member without an engine: it polls, and does what it is told."""

    store_id = "store"

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.process = stage.scheduler.process(name)
        coordinator = stage.coordinator(self.process.runtime)
        self.source = RocketSource(
            stage.broker, coordinator=coordinator, runtime=self.process.runtime, name=name, lease_s=3.0
        )
        self.orders: list[Callable[[], None]] = []
        self.read: list[tuple[int, int]] = []
        self.story: list[tuple[str, int]] = []
        self.fates: list[tuple[int, CommitFate]] = []
        self.over: bool = False
        self.process.spawn(self._run, name)

    @property
    def has(self) -> list[int]:
        return sorted(queue.number for queue in self.source.readers)

    def _run(self) -> None:
        owners: Any = Everything()
        self.source.open(["orders"], self, owners, Deadline(3.0, self.process.runtime))
        while not self.over:
            orders, self.orders = self.orders, []
            for order in orders:
                order()
            if not self.stage.has_ended(self):
                batch = self.source.poll(10, 0.1)
                self.read += [(record.partition.number, record.offset) for record in batch.records]

    def close(self) -> None:
        def stop() -> None:
            self.source.close(Deadline(3.0, self.process.runtime))
            self.over = True

        self.orders.append(stop)

    def commit(self, queue: Partition, offset: int) -> None:
        self.orders.append(lambda: self.source.commit({queue: offset}))

    # ---- the listener
    def assigned(self, partitions: Sequence[Partition]) -> Mapping[Partition, Start]:
        offsets = self.stage.broker.offsets
        return {each: Start(offsets.get(("g", each), 0), hold=False) for each in partitions}

    def revoked(self, partitions: Sequence[Partition]) -> None: ...

    def lost(self, partitions: Sequence[Partition]) -> None:
        self.story.append(("lost", len(partitions)))

    def torn(self, came: object, gone: object) -> None: ...

    def committed(self, offsets: Mapping[Partition, int], fates: Mapping[Partition, CommitFate]) -> None:
        self.fates += [(offset, fates[each]) for each, offset in offsets.items()]

    def reset(self, partition: Partition, offset: int, *, cut: bool = False) -> None:
        self.story.append(("cut" if cut else "reset", offset))

    def overwritten(self, partition: Partition, offset: int) -> None:
        self.story.append(("overwritten", offset))


class Stage:
    def __init__(self, *, orders: int = 4) -> None:
        self.scheduler = Scheduler(1, jitter=False)
        server = self.scheduler.process("rocketmq", preempted=False).runtime
        self.broker = RocketBroker(server, orders=orders)
        self._groups = MemoryCoordinator(runtime=server)

    def coordinator(self, runtime: Any) -> MemoryCoordinator:
        made = MemoryCoordinator(runtime=runtime)
        made.state = self._groups.state
        return made

    def member(self, name: str) -> Actor:
        return Actor(self, name)

    def has_ended(self, actor: Actor) -> bool:
        return actor.over

    def until(self, over: Callable[[], object], seconds: float = 60.0) -> float:
        began = self.scheduler.now
        assert self.scheduler.run(lambda: bool(over()), began + seconds), "it never came true"
        return self.scheduler.now - began


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    errors = list(made.scheduler.errors)
    made.scheduler.end()
    assert not errors


def settled(stage: Stage, *actors: Actor) -> None:
    fair = 4 // len(actors)
    stage.until(lambda: all(len(actor.has) == fair for actor in actors))


def test_queues_move_by_the_coordinators_plan(stage: Stage) -> None:
    """contracts/rocketmq/test_source.py::test_joining_and_leaving_repeats_nothing_and_leaves_everything_committed."""
    one, two = stage.member("one"), stage.member("two")
    settled(stage, one, two)
    two.close()
    settled(stage, one)


def test_of_one_that_is_killed_others_have_the_queues_when_its_lease_has_ended(stage: Stage) -> None:
    one, two = stage.member("one"), stage.member("two")
    settled(stage, one, two)
    two.process.crash()
    assert 1.0 < stage.until(lambda: len(one.has) == 4) < 5.0


def test_one_whose_process_stands_still_loses_its_queues_and_comes_back(stage: Stage) -> None:
    """contracts/rocketmq/test_groups.py::test_a_member_whose_loop_stands_still_loses_its_queues_and_comes_back."""
    one, two = stage.member("one"), stage.member("two")
    settled(stage, one, two)
    two.process.stall(10.0)
    stage.until(lambda: len(one.has) == 4)
    settled(stage, one, two)
    assert ("lost", 2) in two.story


def test_a_commit_is_taken_of_whomever_it_comes(stage: Stage) -> None:
    """facts: the broker keeps offsets in a plain map; there is no fencing anywhere."""
    one, two = stage.member("one"), stage.member("two")
    settled(stage, one, two)
    theirs = Partition("orders", two.has[0])
    one.commit(theirs, 90)
    stage.until(lambda: one.fates)
    assert one.fates == [(90, CommitFate.DONE)]
    assert stage.broker.offsets["g", theirs] == 90


def test_a_late_one_moves_the_offset_back_and_who_has_the_queue_is_told(stage: Stage) -> None:
    """contracts/rocketmq/test_offsets.py::test_a_commit_that_is_not_ours_is_replaced."""
    one = stage.member("one")
    settled(stage, one)
    one.source.line.twice_s = 3.0
    one.commit(Q0, 3)
    one.orders.append(one.source.line.mend)
    one.commit(Q0, 7)
    stage.until(lambda: stage.broker.offsets.get(("g", Q0)) == 7)
    stage.until(lambda: stage.broker.offsets.get(("g", Q0)) == 3)
    stage.until(lambda: one.story)
    assert one.story == [("overwritten", 3)]


def test_a_reset_is_told_to_the_next_pull_and_commits_until_then_are_ignored(stage: Stage) -> None:
    """facts: 222, then 21 OFFSET_RESET; a commit is answered with code 0 and not applied."""
    stage.broker.produce("orders", 0, *"abcd")
    one = stage.member("one")
    stage.until(lambda: len(one.read) == 4)
    one.orders.append(lambda: one.source.pause([Q0]))
    one.orders.append(lambda: stage.broker.reset("g", Q0, 1))
    one.commit(Q0, 4)
    stage.until(lambda: one.fates)
    assert one.fates == [(4, CommitFate.AGAIN)]
    assert stage.broker.offsets["g", Q0] == 1
    one.orders.append(lambda: one.source.resume([Q0]))
    stage.until(lambda: one.story)
    assert one.story == [("reset", 1)]


def test_a_log_that_was_cut_is_told(stage: Stage) -> None:
    stage.broker.produce("orders", 0, *"abcd")
    one = stage.member("one")
    stage.until(lambda: len(one.read) == 4)
    stage.broker.cut("orders", 0, 2)
    stage.until(lambda: one.story)
    assert one.story == [("cut", 0)]


def test_a_topic_made_again_is_told_though_its_log_is_longer(stage: Stage) -> None:
    """contracts/rocketmq/test_logs.py::test_is_read_whole_under_a_member_that_runs."""
    stage.broker.produce("orders", 0, *"ab")
    one = stage.member("one")
    stage.until(lambda: len(one.read) == 2)
    stage.broker.delete("orders")
    stage.broker.produce("orders", 0, *"abcd")
    stage.until(lambda: ("cut", 0) in one.story)
    assert stage.broker.offsets == {}


def test_and_is_told_to_the_next_owner_by_what_was_noted(stage: Stage) -> None:
    """contracts/rocketmq/test_logs.py::test_is_read_whole_though_its_log_is_longer_than_what_was_read."""
    stage.broker.produce("orders", 0, *"ab")
    one = stage.member("one")
    stage.until(lambda: len(one.read) == 2)
    one.close()
    stage.until(lambda: one.over)
    stage.broker.delete("orders")
    stage.broker.produce("orders", 0, *"abcd")
    two = stage.member("two")
    stage.until(lambda: ("cut", 0) in two.story)
    stage.until(lambda: len(two.read) == 4)


def test_what_expired_unread_counts_as_read(stage: Stage) -> None:
    stage.broker.produce("orders", 0, *"abcd")
    stage.broker.expire("orders", 0, 3)
    one = stage.member("one")
    stage.until(lambda: one.read)
    assert one.read == [(0, 3)]
    assert one.story == []
