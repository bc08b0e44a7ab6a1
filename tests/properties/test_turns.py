"""Lanes that may start: handlers in turn, partitions in turn, and lanes of one in the order of becoming ready."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, cast

from hypothesis import given
from hypothesis import strategies as st

from holdfast.plugin.engine.record.turns import Turns
from holdfast.records import Partition

if TYPE_CHECKING:
    from holdfast.plugin.engine.record.entry import Lane

HANDLER = "handle"
PARTITIONS = [Partition("orders", number) for number in range(4)]
#: What becomes ready (behind the others, or as one that is to be the next), and how many are taken after it.
STEPS = st.lists(st.tuples(st.sampled_from(PARTITIONS), st.booleans(), st.integers(0, 3)), max_size=40)


def lane(name: tuple[Partition, int]) -> Lane:
    return cast("Lane", name)


def of(each: Lane) -> Partition:
    return cast("tuple[Partition, int]", each)[0]


@given(steps=STEPS)
def test_each_comes_once_and_those_of_one_partition_in_their_order(steps: list[tuple[Partition, bool, int]]) -> None:
    turns, model = Turns(), {each: list[Any]() for each in PARTITIONS}

    def take() -> None:
        if (found := turns.pop()) is not None:
            assert model[of(found)].pop(0) is found
        else:
            assert not any(model.values())

    for number, (partition, first, taken) in enumerate(steps):
        came = lane((partition, number))
        if first:
            turns.put_first(HANDLER, partition, came)
            model[partition].insert(0, came)
        else:
            turns.append(HANDLER, partition, came)
            model[partition].append(came)
        for _ in range(taken):
            take()
        assert len(turns) == sum(map(len, model.values())) == len(list(turns))
    while len(turns):
        take()
    take()


@given(counts=st.lists(st.integers(0, 30), min_size=4, max_size=4), put_back=st.sets(st.integers(0, 60)))
def test_no_partition_has_two_turns_while_another_that_is_ready_has_none(counts: list[int], put_back: set[int]) -> None:
    turns, went = Turns(), Counter[Partition]()
    for partition, count in zip(PARTITIONS, counts, strict=True):
        for number in range(count):
            turns.append(HANDLER, partition, lane((partition, number)))
    left, at = Counter(dict(zip(PARTITIONS, counts, strict=True))), 0
    while (found := turns.pop()) is not None:
        at += 1
        if at in put_back:  # it cannot start now, and is the next one again
            turns.put_first(HANDLER, of(found), found)
            put_back.discard(at)
            continue
        went[of(found)] += 1
        left[of(found)] -= 1
        ready = [each for each in PARTITIONS if left[each]]
        assert all(went[of(found)] - went[each] <= 1 for each in ready)
    assert went.total() == sum(counts)


def test_the_next_of_a_partition_comes_whoevers_turn_it_is() -> None:
    turns = Turns()
    first, second = PARTITIONS[:2]
    for partition in (first, second):
        for number in range(2):
            turns.append(HANDLER, partition, lane((partition, number)))
    assert turns.pop_of(HANDLER, second) == lane((second, 0))
    assert turns.pop_of(HANDLER, second) == lane((second, 1))
    assert turns.pop_of(HANDLER, second) is None
    assert [turns.pop(), turns.pop(), turns.pop()] == [lane((first, 0)), lane((first, 1)), None]


@given(counts=st.lists(st.integers(0, 20), min_size=4, max_size=4))
def test_handlers_take_turns_however_many_partitions_they_have(counts: list[int]) -> None:
    turns, slow, quick = Turns(), PARTITIONS[:3], PARTITIONS[3]
    for partition, count in zip(slow, counts, strict=False):
        for number in range(count):
            turns.append("slow", partition, lane((partition, number)))
    for number in range(counts[3]):
        turns.append("quick", quick, lane((quick, number)))
    order = [of(found) is quick for found in iter(turns.pop, None)]
    both = min(sum(counts[:3]), counts[3])
    for at in range(0, 2 * both, 2):
        assert sum(order[at : at + 2]) == 1
    assert sum(order) == counts[3]
    assert len(order) == sum(counts)
