"""What waits under the ramp: nothing is lost or overtaken, each new partition begins at once, and they share evenly."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, cast

from hypothesis import given
from hypothesis import strategies as st

from holdfast.plugin.engine.flow.new_partitions import NewPartitions
from holdfast.plugin.ports import Batch, End
from holdfast.records import Partition, Record

if TYPE_CHECKING:
    from holdfast.plugin.engine.partition.ownership import Ownership


class Owner:
    """As much of an ownership as is looked at."""

    def __init__(self, number: int) -> None:
        self.partition = Partition("orders", number)
        self.open = True
        self.next = 0

    def records(self, count: int) -> list[Record]:
        """The next ones that a client delivers."""
        first, self.next = self.next, self.next + count
        return [
            Record(self.partition, first + each, None, b"x" * 10, (), -1, cast("Any", self)) for each in range(count)
        ]


def made(count: int, *, at_most: int = 1_000) -> tuple[NewPartitions, list[Owner]]:
    owners = [Owner(number) for number in range(count)]
    new_partitions = NewPartitions(at_most, 10_000)
    new_partitions.add(cast("list[Ownership]", owners))
    return new_partitions, owners


#: What a poll brings of each of three partitions, of which the last stays; whether their ends; how much may go on.
TURNS = st.lists(
    st.tuples(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
        st.booleans(),
        st.integers(0, 20),
    ),
    max_size=30,
)


@given(turns=TURNS)
def test_each_partitions_records_go_on_once_and_in_their_order_and_its_end_never_before_them(turns: list[Any]) -> None:
    new_partitions, owners = made(2)
    stays = Owner(2)
    went: dict[Partition, list[int]] = {each.partition: [] for each in (*owners, stays)}

    def goes(batch: Batch) -> None:
        for record in batch.records:
            went[record.partition].append(record.offset)
        for end in batch.ends:
            assert len(went[end.partition]) >= end.offset

    for counts, at_end, at_most in turns:
        came = [
            record for owner, count in zip((*owners, stays), counts, strict=True) for record in owner.records(count)
        ]
        ends = [End(each.partition, each.next) for each in (*owners, stays)] if at_end else []
        passed, due = new_partitions.queue(Batch(came, ends)), new_partitions.take(at_most)
        goes(Batch([*passed.records, *due.records], [*passed.ends, *due.ends]))
        assert len(went[stays.partition]) == stays.next
        assert new_partitions.records == sum(each.next for each in owners) - sum(
            len(went[each.partition]) for each in owners
        )
        assert new_partitions.bytes == 10 * new_partitions.records
        assert all(went[each.partition] for each in owners if each.next)
    goes(new_partitions.take(None))
    assert not new_partitions
    for owner in (*owners, stays):
        assert went[owner.partition] == list(range(owner.next))


@given(backlogs=st.lists(st.integers(1, 200), min_size=1, max_size=8), at_most=st.lists(st.integers(0, 7), max_size=60))
def test_what_goes_on_is_shared_evenly_among_those_that_have_something(backlogs: list[int], at_most: list[int]) -> None:
    new_partitions, owners = made(len(backlogs))
    backlog = dict(zip(owners, backlogs, strict=True))
    new_partitions.queue(Batch([record for owner in owners for record in owner.records(backlog[owner])]))
    went: Counter[Partition] = Counter()
    for each in at_most:
        went.update(record.partition for record in new_partitions.take(each).records)
        left = [owner.partition for owner in owners if went[owner.partition] < backlog[owner]]
        assert max(went.values(), default=0) - min((went[each] for each in left), default=10**6) <= 2


def test_what_waits_of_a_partition_that_goes_or_is_read_again_from_elsewhere_is_forgotten() -> None:
    new_partitions, (first, second, third) = made(3)
    new_partitions.queue(Batch([*first.records(5), *second.records(5), *third.records(5)]))
    new_partitions.drop([first.partition])
    new_partitions.sent_elsewhere(second.partition)
    third.open = False
    assert new_partitions.take(None).records == []
    assert new_partitions.records == new_partitions.bytes == 0


def test_one_that_is_to_deliver_nothing_keeps_what_waits_of_it_also_when_none_is_new_any_more() -> None:
    new_partitions, (first, second) = made(2)
    new_partitions.queue(Batch([*first.records(5), *second.records(5)], [End(first.partition, 5)]))
    held = [first.partition]
    assert {record.partition for record in new_partitions.take(2, held).records} == {second.partition}
    assert {record.partition for record in new_partitions.take(None, held).records} == {second.partition}
    assert new_partitions.take(None, held) == Batch([], [])
    assert new_partitions.records == 5
    came = new_partitions.take(None)
    assert [record.offset for record in came.records] == list(range(5))
    assert came.ends == [End(first.partition, 5)]
    assert not new_partitions


def test_records_of_an_ownership_that_is_over_do_not_wait() -> None:
    new_partitions, [former] = made(1)
    new_partitions.add(cast("list[Ownership]", [Owner(0)]))
    old = former.records(3)
    assert new_partitions.queue(Batch(old)).records == old


def test_each_may_wait_with_its_part_and_is_let_go_on_when_half_of_that_has_gone() -> None:
    new_partitions, owners = made(2, at_most=400)
    first = cast("Ownership", owners[0])
    new_partitions.queue(Batch(owners[0].records(199)))
    assert not new_partitions.too_many(first, paused=False)
    new_partitions.queue(Batch(owners[0].records(1)))
    assert new_partitions.too_many(first, paused=False)
    new_partitions.take(99)
    assert new_partitions.too_many(first, paused=True)
    new_partitions.take(1)
    assert not new_partitions.too_many(first, paused=True)
    assert not new_partitions.too_many(cast("Ownership", owners[1]), paused=False)
