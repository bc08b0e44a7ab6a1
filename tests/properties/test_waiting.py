"""What waits is neither lost nor overtaken; partitions take turns, and new ones go as the ramp lets them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, cast

from hypothesis import given
from hypothesis import strategies as st

from holdfast.plugin.engine.flow.waiting import Waiting
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


def made(count: int) -> tuple[Waiting, list[Owner]]:
    """So many new partitions."""
    owners = [Owner(number) for number in range(count)]
    waiting = Waiting()
    waiting.add_new(cast("list[Ownership]", owners))
    return waiting, owners


def unbounded(owner: Ownership, waiting: int) -> int:
    """Room for all of them."""
    return waiting


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
    waiting, owners = made(2)
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
        passed, due = waiting.queue(Batch(came, ends), all_wait=False), waiting.take(unbounded, at_most)
        goes(Batch([*passed.records, *due.records], [*passed.ends, *due.ends]))
        assert len(went[stays.partition]) == stays.next
        assert waiting.records == sum(each.next for each in owners) - sum(len(went[each.partition]) for each in owners)
        assert waiting.bytes == 10 * waiting.records
        assert all(went[each.partition] for each in owners if each.next)
    goes(waiting.take(unbounded, None))
    assert not waiting
    for owner in (*owners, stays):
        assert went[owner.partition] == list(range(owner.next))


@given(backlogs=st.lists(st.integers(1, 200), min_size=1, max_size=8), at_most=st.lists(st.integers(0, 7), max_size=60))
def test_what_goes_on_is_shared_evenly_among_those_that_have_something(backlogs: list[int], at_most: list[int]) -> None:
    waiting, owners = made(len(backlogs))
    backlog = dict(zip(owners, backlogs, strict=True))
    waiting.queue(Batch([record for owner in owners for record in owner.records(backlog[owner])]), all_wait=False)
    went: Counter[Partition] = Counter()
    for each in at_most:
        went.update(record.partition for record in waiting.take(unbounded, each).records)
        left = [owner.partition for owner in owners if went[owner.partition] < backlog[owner]]
        assert max(went.values(), default=0) - min((went[each] for each in left), default=10**6) <= 2


def test_what_waits_of_a_partition_that_goes_or_is_read_again_from_elsewhere_is_forgotten() -> None:
    waiting, (first, second, third) = made(3)
    waiting.queue(Batch([*first.records(5), *second.records(5), *third.records(5)]), all_wait=False)
    waiting.drop([first.partition])
    waiting.sent_elsewhere(second.partition)
    third.open = False
    assert waiting.take(unbounded, None).records == []
    assert waiting.records == waiting.bytes == 0


def test_one_that_is_to_deliver_nothing_keeps_what_waits_of_it_also_when_none_is_new_any_more() -> None:
    waiting, (first, second) = made(2)
    waiting.queue(Batch([*first.records(5), *second.records(5)], [End(first.partition, 5)]), all_wait=False)
    held = [first.partition]
    assert {record.partition for record in waiting.take(unbounded, 2, held).records} == {second.partition}
    assert {record.partition for record in waiting.take(unbounded, None, held).records} == {second.partition}
    assert waiting.take(unbounded, None, held) == Batch([], [])
    assert waiting.records == 5
    came = waiting.take(unbounded, None)
    assert [record.offset for record in came.records] == list(range(5))
    assert came.ends == [End(first.partition, 5)]
    assert not waiting


def test_records_of_an_ownership_that_is_over_do_not_wait() -> None:
    waiting, [former] = made(1)
    waiting.add_new(cast("list[Ownership]", [Owner(0)]))
    old = former.records(3)
    assert waiting.queue(Batch(old), all_wait=False).records == old


#: What polls bring of each of three partitions, and the room of each.
ROUNDS = st.lists(st.tuples(*(st.tuples(st.integers(0, 9), st.integers(0, 5)) for _ in range(3))), max_size=30)


@given(rounds=ROUNDS)
def test_what_there_is_no_room_for_waits_in_its_order_and_holds_up_no_other_partition(rounds: list[Any]) -> None:
    waiting, owners = Waiting(), [Owner(number) for number in range(3)]
    went: dict[Partition, list[int]] = {each.partition: [] for each in owners}
    for each in rounds:
        room = {owner.partition: free for owner, (_, free) in zip(owners, each, strict=True)}
        came = [record for owner, (count, _) in zip(owners, each, strict=True) for record in owner.records(count)]
        assert waiting.queue(Batch(came), all_wait=True).records == []
        before = {owner.partition: len(went[owner.partition]) for owner in owners}
        for record in waiting.take(lambda owner, _, room=room: room[owner.partition], None).records:  # type: ignore[misc]
            went[record.partition].append(record.offset)
        for owner in owners:
            due = min(room[owner.partition], owner.next - before[owner.partition])
            assert went[owner.partition] == list(range(before[owner.partition] + due))
            waits = owner.next - len(went[owner.partition])
            assert (waiting.weight_of(cast("Ownership", owner)) > 0) is (waits > 0)
        assert waiting.records == sum(owner.next - len(went[owner.partition]) for owner in owners)
        assert waiting.bytes == 10 * waiting.records


def test_partitions_take_turns_in_what_room_there_is() -> None:
    waiting, owners = Waiting(), [Owner(number) for number in range(3)]
    waiting.queue(Batch([record for owner in owners for record in owner.records(4)]), all_wait=True)
    went: Counter[Partition] = Counter()
    for _ in range(6):
        left = 2

        def room(_: Ownership, waits: int) -> int:
            nonlocal left
            given_now = min(left, waits, 1)
            left -= given_now
            return given_now

        went.update(record.partition for record in waiting.take(room, None).records)
        assert max(went.values()) - min(went[each.partition] for each in owners) <= 2
    assert went.total() == 12


def test_a_record_of_a_new_ownership_takes_the_place_of_what_waits_of_the_former_one() -> None:
    waiting, former, new = Waiting(), Owner(0), Owner(0)
    waiting.queue(Batch(former.records(3)), all_wait=True)
    former.open = False
    mine = new.records(2)
    waiting.queue(Batch(mine), all_wait=True)
    assert waiting.take(unbounded, None).records == mine
    assert waiting.records == waiting.bytes == 0
