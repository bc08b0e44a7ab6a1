"""A set of offsets is the set that Python would keep, in less memory."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dedup.offset_set import OffsetSet, Runs, runs

if TYPE_CHECKING:
    from collections.abc import Callable

#: Near the ends of chunks, and far from all others.
OFFSETS = st.one_of(st.integers(0, 1_100), st.integers(2**50, 2**50 + 300))
RANGES = st.builds(lambda first, length: range(first, first + length), OFFSETS, st.integers(0, 900))
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), RANGES),
        st.tuples(st.just("remove"), RANGES),
        st.tuples(st.just("below"), OFFSETS),
        st.tuples(st.just("update"), st.sets(OFFSETS, max_size=5)),
    ),
    max_size=12,
)


def changed(changes: list[tuple[str, range | int | set[int]]]) -> tuple[OffsetSet, set[int]]:
    """Made of both kinds of set, by the same changes."""
    mine, theirs = OffsetSet(), set[int]()
    for kind, what in changes:
        if isinstance(what, int):
            mine.remove_below(what)
            theirs = {each for each in theirs if each >= what}
        elif kind == "add":
            mine.add_all([what] if isinstance(what, range) and what else [])
            theirs |= set(what)
        elif kind == "update":
            mine.update(OffsetSet(what))
            theirs |= set(what)
        elif isinstance(what, range):
            mine.remove(what)
            theirs -= set(what)
    return mine, theirs


@given(changes=CHANGES, look=RANGES, at=OFFSETS)
def test_it_is_the_same_set_whatever_was_done_to_it(
    changes: list[tuple[str, range | int | set[int]]], look: range, at: int
) -> None:
    mine, theirs = changed(changes)
    assert mine == theirs
    assert list(mine) == sorted(theirs)
    assert (len(mine), bool(mine), mine.end) == (len(theirs), bool(theirs), max(theirs, default=-1) + 1)
    assert (at in mine) == (at in theirs)
    assert mine.first_missing(at) == next(each for each in range(at, at + 3_000) if each not in theirs)
    assert mine.has_any(look) == (not theirs.isdisjoint(look))
    assert [offset for gap in mine.gaps(look) for offset in gap] == [each for each in look if each not in theirs]
    assert OffsetSet.of_chunks(mine.chunks.items()) == OffsetSet(mine) == OffsetSet(theirs) == theirs
    assert [offset for each in runs(mine) for offset in each] == sorted(theirs)
    ranges = list(mine.runs())
    assert all(one.stop < other.start for one, other in pairwise(ranges))


@given(offsets=st.sets(OFFSETS), index=st.integers(-5, 5))
def test_runs_are_the_list_of_their_offsets(offsets: set[int], index: int) -> None:
    found, expected = Runs(list(OffsetSet(offsets).runs())), sorted(offsets)
    assert (len(found), list(found), found[1:]) == (len(expected), expected, expected[1:])
    if -len(expected) <= index < len(expected):
        assert found[index] == expected[index]
    else:
        with pytest.raises(IndexError):
            found[index]


@pytest.mark.parametrize("add", [lambda: range(1, 1_000_000), lambda: range(1, 400_000, 2)], ids=["row", "gaps"])
def test_very_many_take_little_memory(add: Callable[[], range]) -> None:
    offsets = add()
    tracemalloc.start()
    found = OffsetSet()
    for first in range(0, len(offsets), 10_000):
        found.add_all(runs(offsets[first : first + 10_000]))
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(found) == len(offsets)
    assert used < 1_000_000
