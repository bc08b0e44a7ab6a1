"""The ledger of a partition, step by step beside a model that is too simple to be wrong."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import StateError
from holdfast.plugin.engine.partition.ledger import Ledger
from holdfast.plugin.engine.record.offsets import joined, spans
from tests.tiers import examples

if TYPE_CHECKING:
    from collections.abc import Collection


class Model:
    """Which offsets came and are not done; what is known ahead; what comes next."""

    def __init__(self, start: int, done: Collection[int]) -> None:
        self.next = start
        self.known = set(done)
        self.open: set[int] = set()

    @property
    def watermark(self) -> int:
        return min(self.open, default=self.next)

    def polled(self, offset: int) -> bool:
        self.next = offset + 1
        if offset in self.known:
            return False
        self.open.add(offset)
        return True

    def reached(self, offset: int) -> None:
        self.next = max(self.next, offset)

    def knows(self, offset: int) -> None:
        if offset < self.next:
            self.open.discard(offset)
        else:
            self.known.add(offset)

    def settle(self, offset: int) -> None:
        self.open.discard(offset)

    def watermark_with(self, offsets: Collection[int]) -> int:
        return min(self.open - set(offsets), default=self.next)


SPAN = 25
steps = st.lists(
    st.tuples(
        st.sampled_from(["poll", "poll", "run", "run", "settle", "settle", "settle run", "reach", "know"]),
        st.integers(0, SPAN),
    ),
    max_size=60,
)


def poll_run(ledger: Ledger, model: Model, came: range) -> None:
    known = any(offset in model.known for offset in came)
    assert ledger.polled_all(came) != known
    for offset in came:
        assert (ledger.polled(offset) if known else True) == model.polled(offset)


@settings(max_examples=examples(400), deadline=None)
@given(
    start=st.integers(0, 10),
    done=st.sets(st.integers(0, SPAN)),
    steps=steps,
    also=st.sets(st.integers(0, 3 * SPAN)),
)
def test_it_says_what_the_model_says(start: int, done: set[int], steps: list[tuple[str, int]], also: set[int]) -> None:
    done = {offset for offset in done if offset >= start}
    ledger, model = Ledger(start, done), Model(start, done)
    for step, number in steps:
        ahead = model.next + number % 4  # mostly the next one, now and then a gap
        if step == "poll":
            assert ledger.polled(ahead) == model.polled(ahead)
        elif step == "run":
            poll_run(ledger, model, range(ahead, ahead + 1 + number % 6))
        elif step == "settle run":
            # Also over gaps, over what is settled, and beyond what has come.
            ended = range(max(model.watermark - 2, 0), model.watermark + number)
            ledger.settle_all(ended)
            for offset in ended:
                model.settle(offset)
        elif step == "settle" and model.open:
            offset = sorted(model.open)[number % len(model.open)]
            for _ in range(1 + number % 2):  # twice is once
                ledger.settle(offset)
                model.settle(offset)
        elif step == "reach":
            ledger.reached(number + 5)
            model.reached(number + 5)
        elif step == "know":
            ledger.knows(number)
            model.knows(number)
        assert ledger.next == model.next
        assert ledger.watermark == model.watermark
        assert ledger.watermark_with(spans(also)) == model.watermark_with(also)


def test_an_offset_that_came_before_is_an_error_for_the_caller_to_look_at() -> None:
    ledger = Ledger(5)
    with pytest.raises(StateError, match="offset 4 came after 4"):
        ledger.polled(4)


@given(offsets=st.lists(st.integers(0, 60)), cuts=st.sets(st.integers(0, 60)))
def test_spans_are_the_offsets_and_nothing_else(offsets: list[int], cuts: set[int]) -> None:
    found = spans(offsets)
    assert [offset for span in found for offset in span] == sorted(set(offsets))
    assert all(one.stop < other.start for one, other in pairwise(found))
    pieces = [piece for span in found for piece in (spans(set(span) & cuts) + spans(set(span) - cuts))]
    assert joined(pieces) == found
