"""Runs that are taken, fail, stall and are split, beside a model: each record once, those of a lane in their order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import Settings
from holdfast.dedup.none import NoSession
from holdfast.plugin.engine.flow.intake import Intake
from holdfast.plugin.engine.partition.ownership import Ownership
from holdfast.plugin.engine.record.admission import Admission
from holdfast.plugin.engine.record.entry import Entry, EntryState
from holdfast.plugin.engine.record.lanes import Lanes
from holdfast.plugin.handlers import Handler
from holdfast.records import Partition, Record
from holdfast.timing import SYSTEM_CLOCK
from tests.tiers import examples

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from holdfast.plugin.settings import Ordering

HANDLER = Handler(name="h", call=print, topics=("t",))


class Play:
    """One partition's records on their way, and where each of them is."""

    def __init__(self, ordering: Ordering) -> None:
        self.ordering = ordering
        self.owner = Ownership(Partition("t", 0), NoSession())
        self.lanes = Lanes()
        self.intake = Intake(Settings(), SYSTEM_CLOCK)
        self.size = 1
        self.order: dict[Hashable, list[int]] = {}
        self.out: list[Entry] = []
        self.next = 0
        core = SimpleNamespace(
            lanes=self.lanes,
            unacked=self.lanes.unacked,
            intake=self.intake,
            clock=SYSTEM_CLOCK,
            group="g",
            settings=Settings(ordering=ordering),
            routes=SimpleNamespace(find=lambda _: HANDLER),
            workers=SimpleNamespace(share=lambda _: self.size),
            claiming=SimpleNamespace(want=lambda _: None),
            family=SimpleNamespace(
                by_position=True,
                by_identity=False,
                mixes=lambda _: False,
                admit=lambda records: [(self.owner, records)],
            ),
        )
        self.admission = Admission(**vars(core))

    def poll(self, keys: Sequence[int], size: int) -> None:
        """Records with these keys (0 = none), in runs of that size at most; with a gap in the offsets now and then."""
        self.size = size
        records = []
        for key in keys:
            self.next += 1 + (key == 3)
            found = b"%d" % key if key else None
            value = b"v" * (self.next % 5) if self.next % 7 else None
            records.append(Record(self.owner.partition, self.next, found, value, (), -1, self.owner))
            lane: Hashable = "all" if self.ordering == "partition" else found if self.ordering == "key" else None
            self.order.setdefault(self.next if lane is None else lane, []).append(self.next)
        if records:
            self.admission.admit(records)

    def take(self, at_most: int) -> None:
        lane = self.lanes.next()
        if lane is not None:
            self.out += self.lanes.take(lane, at_most)

    def end(self, number: int, how: str, at: int) -> None:
        """One that is out comes back, as `Outcomes` has it; `at`: the record that failed, or is slow."""
        if not self.out:
            return
        entry = self.out[number % len(self.out)]
        if any(other.lane is entry.lane for other in self.out[: self.out.index(entry)]):
            return  # a worker takes those of a lane one after the other
        at %= entry.count
        behind = [other for other in self.out if other.lane is entry.lane and other is not entry]
        if how == "slow" and entry.count > 1:
            offsets = entry.offsets
            head, following = self.lanes.shrink(entry, at, at + 1)
            assert entry.offsets == [offsets[at]]
            if head is not None:
                self.done(head)
            for each in following:
                self.lanes.back(each, EntryState.READY)
        elif how == "fail":
            self.out.remove(entry)
            pieces = self.lanes.apart(entry) if entry.count > 1 else [entry]
            for index, piece in enumerate(pieces):
                if index < at:
                    self.done(piece)
                else:
                    self.lanes.back(piece, EntryState.RETRY if index == at else EntryState.READY)
        else:
            self.out.remove(entry)
            self.done(entry)
            return
        for other in behind:  # not started: one before it failed, or they were taken back
            self.out.remove(other)
            self.lanes.back(other, EntryState.READY)

    def done(self, entry: Entry) -> None:
        self.lanes.back(entry, EntryState.ENDED)
        for offset in entry.offsets:
            lane = next(lane for lane in self.order.values() if offset in lane)
            assert lane[0] == offset, f"{offset} ended before {lane[0]}"
            lane.pop(0)
        del self.owner.entries[entry.record.offset]
        entry.state = EntryState.GONE
        self.intake.left(entry)

    def retry(self) -> None:
        for entry in self.owner.entries.values():
            if entry.state is EntryState.RETRY:
                entry.state = EntryState.READY
                self.lanes.wake(entry.lane)

    def check(self) -> None:
        """Nothing is lost, nothing is there twice; and who could start, can."""
        left = sorted(offset for lane in self.order.values() for offset in lane)
        entries = list(self.owner.entries.values())
        assert sorted(offset for entry in entries for offset in entry.offsets) == left
        assert all(offset == entry.record.offset for offset, entry in self.owner.entries.items())
        assert self.intake.records == len(left)
        assert self.intake.bytes == sum(entry.size for entry in entries)
        assert all(entry.size == sum(record.size_bytes for record in entry.records) for entry in entries)
        out = {offset for entry in self.out for offset in entry.offsets}
        assert self.lanes.taken == len(out)
        for lane in self.order.values():
            gate = next((entry.state for entry in entries if lane and lane[0] in entry.offsets), None)
            assert gate is not EntryState.GONE
            assert out.isdisjoint(lane) or lane[0] in out, "one runs before an earlier one of its lane"


OPS = st.one_of(
    st.tuples(st.just("poll"), st.lists(st.integers(0, 4), max_size=8), st.integers(1, 5)),
    st.tuples(st.just("take"), st.integers(1, 6), st.just(0)),
    st.tuples(st.sampled_from(["end", "fail", "slow"]), st.integers(0, 5), st.integers(0, 5)),
    st.tuples(st.just("retry"), st.just(0), st.just(0)),
)


@pytest.mark.parametrize("ordering", ["key", "partition", "none"])
@settings(max_examples=examples(300), deadline=None)
@given(ops=st.lists(OPS, min_size=10, max_size=60))
def test_each_record_goes_its_way_once_and_in_the_order_of_its_lane(
    ordering: Ordering, ops: list[tuple[str, Any, int]]
) -> None:
    play = Play(ordering)
    for op, what, number in ops:
        if op == "poll":
            play.poll(what, number)
        elif op == "take":
            play.take(what)
        elif op == "retry":
            play.retry()
        else:
            play.end(what, op, number)
        play.check()
    # And all of it comes to an end.
    for _ in range(1000):
        play.retry()
        play.take(3)
        play.end(0, "end", 0)
    play.check()
    assert not any(play.order.values())
    assert len(play.lanes) == 0
