"""Lanes under any order of events: in order, nothing twice, and no lane that could start is forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.dedup.none import NoSession
from holdfast.plugin.engine.partition.ownership import Ownership
from holdfast.plugin.engine.record.entry import Entry, EntryState, Lane
from holdfast.plugin.engine.record.lanes import Lanes
from holdfast.plugin.handlers import Handler
from holdfast.records import Partition, Record
from tests.tiers import examples

if TYPE_CHECKING:
    from collections.abc import Hashable

HANDLER = Handler(name="h", call=print, topics=("t",))
OTHER = Handler(name="other", call=print, topics=("u",))
OWNER = Ownership(Partition("t", 0), NoSession())


def entry(offset: int, handler: Handler = HANDLER) -> Entry:
    return Entry(Record(OWNER.partition, offset, None, None, (), -1, OWNER), OWNER, handler, None, 0.0)


class Play:
    """Lanes, and all that was ever put into them."""

    def __init__(self) -> None:
        self.lanes = Lanes()
        self.all: dict[Hashable, list[Entry]] = {}
        self.out: list[Entry] = []
        self.ended: list[Entry] = []

    def add(self, lane: int, gate: EntryState) -> None:
        came = entry(sum(map(len, self.all.values())), OTHER if lane == 0 else HANDLER)
        came.state = gate
        self.all.setdefault(lane, []).append(came)
        self.lanes.add(came, lane)

    def take(self, at_most: int, *, same_handler: bool) -> None:
        lane = self.lanes.next_of(HANDLER) if same_handler else self.lanes.next()
        if lane is None:
            return
        taken = self.lanes.take(lane, at_most)
        assert taken, "a lane was given that has nothing to start"
        mine = self.all[lane.key]
        assert not any(other in self.out for other in mine), "a lane was given twice"
        left = [other for other in mine if not other.over]
        assert taken == left[: len(taken)], "not from the front"
        assert not same_handler or taken[0].handler is HANDLER
        self.out += taken

    def back(self, number: int, gate: EntryState) -> None:
        """Entries of a lane come back in order, as a worker reports them; after one that failed, the rest unstarted."""
        if not self.out:
            return
        first = self.out[number % len(self.out)]
        lane = first.lane
        for each in [each for each in self.out if each.lane is lane]:
            self.out.remove(each)
            self.lanes.back(each, gate)
            if gate is EntryState.RETRY:
                gate = EntryState.READY

    def open_(self, number: int) -> None:
        """One that waited may start: its retry is due, its key is claimed."""
        waiting = [
            each for lane in self.all.values() for each in lane if each.state in (EntryState.RETRY, EntryState.CLAIM)
        ]
        if waiting:
            chosen = waiting[number % len(waiting)]
            chosen.state = EntryState.READY
            self.lanes.wake(chosen.lane)

    def drop(self, number: int) -> None:
        idle = [
            each
            for lane in self.all.values()
            for each in lane
            if each.state in (EntryState.READY, EntryState.RETRY, EntryState.CLAIM)
        ]
        if idle:
            self.lanes.drop(idle[number % len(idle)])

    def again(self, number: int) -> None:
        """One that had ended must run again, where nothing behind it has begun."""
        ended = [
            mine[index]
            for mine in self.all.values()
            for index in range(len(mine))
            if mine[index].state is EntryState.ENDED
            and all(each.over for each in mine[:index])
            and not any(each.over or each in self.out for each in mine[index + 1 :])
        ]
        if ended:
            chosen = ended[number % len(ended)]
            chosen.state = EntryState.READY
            self.lanes.put_back(chosen)

    def startable(self) -> set[Hashable]:
        found: set[Hashable] = set()
        for key, mine in self.all.items():
            head = next((each for each in mine if not each.over), None)
            if head is not None and head.state is EntryState.READY and not any(each in self.out for each in mine):
                found.add(key)
        return found

    def check(self) -> None:
        """Every lane that could start is given, once, and no other."""
        given_: list[Lane] = []
        while (lane := self.lanes.next()) is not None:
            given_.append(lane)
        keys = [lane.key for lane in given_]
        assert len(keys) == len(set(keys))
        assert set(keys) == self.startable()
        for lane in given_:
            assert lane.head() is next(each for each in self.all[lane.key] if not each.over)
            self.lanes.wake(lane)
        alive = {key for key, mine in self.all.items() if any(not each.over for each in mine)}
        assert len(self.lanes) == len(alive), "a lane that is empty is kept, or one that is not is gone"


OPS = st.tuples(
    st.sampled_from(
        ["add", "add", "add", "take", "take", "take of", "ok", "ok", "fail", "open", "open", "drop", "again"]
    ),
    st.integers(0, 11),
)


@settings(max_examples=examples(400), deadline=None)
@given(ops=st.lists(OPS, min_size=20, max_size=80), often=st.booleans())
def test_order_no_double_take_and_no_lost_wake_up(ops: list[tuple[str, int]], *, often: bool) -> None:
    play = Play()
    for op, number in ops:
        if op == "add":
            play.add(number % 3, EntryState.CLAIM if number % 4 == 3 else EntryState.READY)
        elif op.startswith("take"):
            play.take(1 + number % 3, same_handler=op == "take of")
        elif op in ("ok", "fail"):
            play.back(number, EntryState.ENDED if op == "ok" else EntryState.RETRY)
        elif op == "open":
            play.open_(number)
        elif op == "drop":
            play.drop(number)
        else:
            play.again(number)
        if often:
            play.check()
    play.check()
    # And all of it comes to an end.
    for _ in range(1000):
        play.take(3, same_handler=False)
        play.back(0, EntryState.ENDED)
        play.open_(0)
    assert all(each.over for mine in play.all.values() for each in mine)
    assert len(play.lanes) == 0
