"""Asking for keys, with others that hold some: who waits for a key holds nothing behind it, and all come to an end."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import MemoryClaims
from holdfast.dedup.claims import Claim, ClaimKey, Token, Verdict
from holdfast.plugin.engine.partition.ownership import Ownership
from holdfast.plugin.engine.record import claiming, lanes
from holdfast.plugin.engine.record.claiming import Claiming
from holdfast.plugin.engine.record.entry import Entry, EntryState
from holdfast.plugin.engine.record.lanes import Lanes
from holdfast.plugin.engine.store.owed import Owed
from holdfast.plugin.engine.timers import Timers
from holdfast.plugin.handlers import Handler
from holdfast.records import Partition, Record
from tests.harness.clocks import HandClock
from tests.properties.stranger import Stranger
from tests.tiers import examples

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from holdfast.dedup.memory_session import MemorySession

HANDLER = Handler(name="h", call=print, topics=("t",))


def behind(entry: Entry) -> list[Entry]:
    """Those after it in its lane that have not ended."""
    every = [*entry.lane.entries, *entry.lane.followers]
    return [other for other in every[every.index(entry) + 1 :] if not other.over]


class Play:
    """One member's claiming beside a stranger's session, at one store."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.store = MemoryClaims(lease_s=3600.0, renewals=False)
        self.mine: MemorySession = self.store.begin(3600.0)
        self.owner = Ownership(Partition("t", 0), self.mine)
        self.lanes, self.timers, self.owed = Lanes(), Timers(self.clock), Owed()
        self.claiming = Claiming(self.lanes, self.timers, self.owed, self.skip)
        self.entries: list[Entry] = []
        self.ran: list[str] = []
        self.stranger = Stranger(self.store.begin(3600.0), "s", self.ran)
        self.skipped = 0

    def skip(self, entry: Entry) -> None:
        entry.state = EntryState.ENDED
        self.skipped += 1
        self.lanes.wake(entry.lane)

    def add(self, lane: int, key: int, *, handed: bool) -> None:
        offset = len(self.entries)
        record = Record(self.owner.partition, offset, None, None, (), -1, self.owner)
        entry = Entry(record, self.owner, HANDLER, Claim(ClaimKey("s", str(key)), Token("p", offset, 1)), 0.0)
        if handed:
            entry.state = EntryState.WITH_FORMER_OWNER
        self.entries.append(entry)
        self.lanes.add(entry, lane)
        self.claiming.want(entry)

    def resolve(self, number: int) -> None:
        """A former owner has given one back."""
        handed = [entry for entry in self.entries if entry.state is EntryState.WITH_FORMER_OWNER]
        if handed:
            self.claiming.resume(handed[number % len(handed)])

    def awaited_strangers_end(self) -> None:
        """Of those keys that somebody waits for."""
        for entry in self.entries:
            if entry.state is EntryState.BUSY and entry.claim and entry.claim.key.key in self.stranger.holds:
                self.stranger.end(entry.claim.key.key, well=True)

    def ask(self, at_most: int) -> None:
        self.owed.pay()
        assert self.claiming.step(self.mine.claim, at_most)

    def run_one(self) -> None:
        lane = self.lanes.next()
        if lane is None:
            return
        [entry] = self.lanes.take(lane, 1)
        assert entry.claim is not None
        assert entry.held
        self.ran.append(entry.claim.key.key)
        self.mine.finish([entry.claim])
        entry.held = False
        self.claiming.free(entry)
        self.lanes.back(entry, EntryState.ENDED)

    def fail_and_leave(self, number: int) -> None:
        """One that was not started is handed back."""
        idle = [entry for entry in self.entries if not entry.over]
        if idle:
            entry = idle[number % len(idle)]
            # As a partition that goes takes its whole lane with it.
            for each in [each for each in self.entries if each.lane is entry.lane and not each.over]:
                self.claiming.give_back(each)
                self.lanes.drop(each)

    def pass_time(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        self.timers.run_due()

    def check(self) -> None:
        """Behind an entry that waits for another's key, none of its lane holds one."""
        for entry in self.entries:
            if entry.state is EntryState.BUSY:
                assert entry.lane.parked is entry
                for other in behind(entry):
                    assert not other.held, f"{other} holds a key behind {entry}"
                    assert other.state is not EntryState.READY
        holders = [entry.claim.key for entry in self.entries if entry.held and not entry.over and entry.claim]
        assert len(holders) == len(set(holders)), "two records of one key are claimed at once"


OPS = st.tuples(
    st.sampled_from(
        ["add", "add", "add", "handed", "resolve", "takes", "done", "freed", "ask", "ask", "run", "time", "leave"]
    ),
    st.integers(0, 11),
)


@settings(max_examples=examples(400), deadline=None)
@given(ops=st.lists(OPS, min_size=20, max_size=80), seed=st.integers(0, 5))
def test_who_waits_holds_nothing_and_every_key_runs_once(ops: list[tuple[str, int]], seed: int) -> None:
    random.seed(seed)
    play = Play()
    for op, number in ops:
        steps: dict[str, Callable[[int], None]] = {
            "add": lambda n: play.add(n % 3, n % 4, handed=False),
            "handed": lambda n: play.add(n % 3, n % 4, handed=True),
            "resolve": play.resolve,
            "takes": lambda n: play.stranger.takes(n % 4),
            "done": lambda n: play.stranger.ends(n, well=True),
            "freed": lambda n: play.stranger.ends(n, well=False),
            "ask": lambda n: play.ask(1 + n),
            "run": lambda _: play.run_one(),
            "leave": play.fail_and_leave,
            "time": lambda n: play.pass_time(n / 10),
        }
        steps[op](number)
        play.check()
    # And all of it comes to an end, once nobody else holds anything.
    while play.stranger.holds:
        play.stranger.ends(0, well=False)
    for _ in range(150):
        play.resolve(0)
        play.ask(500)
        play.run_one()
        play.pass_time(1.0)
        play.check()
    assert all(entry.over for entry in play.entries)
    assert len(play.lanes) == 0
    assert len(play.ran) == len(set(play.ran)), "a key ran twice"
    assert play.claiming.wanted == 0
    assert play.claiming._holders == {}
    assert play.claiming._waiters == {}


def test_one_that_waited_for_a_key_of_its_own_process_stays_behind_one_that_was_parked_meanwhile() -> None:
    play = Play()
    play.add(0, 3, handed=False)
    play.ask(1)
    play.stranger.takes(2)
    play.add(1, 2, handed=False)  # the stranger has its key
    play.add(1, 3, handed=False)  # the first one of lane 0 has its key, and gives it back:
    play.ask(2)
    play.fail_and_leave(0)
    play.ask(2)
    play.check()
    assert [entry.state for entry in play.entries] == [EntryState.GONE, EntryState.BUSY, EntryState.BEHIND_BUSY_KEY]


#: By its number: the lane that a record is in, and its business key.
SHAPES: dict[str, Callable[[int], tuple[int, int]]] = {
    "one lane, each its own key": lambda number: (0, number),
    "one lane, one key": lambda _: (0, -1),
    "one lane, each key twice": lambda number: (0, number // 2),
    "one lane, a key that comes again and again": lambda number: (0, number if number % 3 else -1),
    "lanes of their own, one key": lambda number: (number, -1),
    "lanes of their own, each key thrice": lambda number: (number, number // 3),
}


@pytest.mark.parametrize("strangers_every", [0, 1, 7], ids=["nobody else", "all held elsewhere", "some held elsewhere"])
@pytest.mark.parametrize("batch", [1, 500])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_record_costs_the_same_however_many_others_are_in_flight(
    shape: str, batch: int, strangers_every: int
) -> None:
    def lines(records: int) -> int:
        """Lines of claiming, lanes and entries that run until each of so many records has run, or was skipped."""
        play, count = Play(), 0
        for number in range(records):
            play.add(*SHAPES[shape](number), handed=False)
        for key in {int(entry.asked_for[0].key.key) for entry in play.entries}:
            if strangers_every and key % strangers_every == 0:
                play.stranger.takes(key)

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal count
            counted = frame.f_globals.get("__name__") in {claiming.__name__, lanes.__name__, Entry.__module__}
            if not counted or frame.f_code.co_name == "over":  # the loop below asks that of all entries
                return None
            count += event == "line"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            while not all(entry.over for entry in play.entries):
                if play.claiming.wanted:
                    play.ask(batch)
                elif play.lanes.ready(HANDLER.kind):
                    play.run_one()
                else:
                    play.awaited_strangers_end()
                    play.pass_time(1.0)
        finally:
            sys.settrace(before)
        assert len(play.ran) == len(set(play.ran))
        return count

    few, many = lines(60), lines(240)
    assert many < 4.4 * few


def test_the_claims_of_a_run_are_freed_whichever_pieces_it_was_cut_into() -> None:
    play = Play()
    offsets = range(6)
    records = [Record(play.owner.partition, offset, None, None, (), -1, play.owner) for offset in offsets]
    claims = [Claim(ClaimKey("s", str(offset)), Token("p", offset, 1)) for offset in offsets]
    run = Entry.run(records, play.owner, HANDLER, 0.0, claims)
    play.lanes.add(run, None)
    play.claiming.want(run)
    play.ask(10)
    while (lane := play.lanes.next()) is not None:
        [piece] = play.lanes.take(lane, 2)
        play.mine.finish(piece.asked_for)
        play.claiming.free(piece)
        play.lanes.back(piece, EntryState.ENDED)
    assert play.claiming._holders == {}


def test_one_that_failed_gives_its_key_back_when_it_would_run_behind_one_that_was_put_back_and_is_parked() -> None:
    """Its first record had ended well, and by then a failover had lost its key to another member."""
    play = Play()
    play.add(0, 1, handed=False)
    play.add(0, 2, handed=False)
    play.ask(2)
    lane = play.lanes.next()
    assert lane is not None
    first, second = play.lanes.take(lane, 2)
    assert first.claim is not None
    del play.store.state.keys[first.claim.key]
    play.stranger.takes(1)
    play.lanes.back(first, EntryState.ENDED)
    play.lanes.back(second, EntryState.RETRY)
    assert play.mine.finish([first.claim]) == [Verdict.FENCED]
    first.held, first.state = False, EntryState.CLAIM
    play.claiming.free(first)
    play.lanes.put_back(first)
    play.claiming.want(first)
    play.ask(1)
    assert (first.state, second.state, second.held) == (EntryState.BUSY, EntryState.RETRY, True)
    second.state = EntryState.READY
    play.claiming.comes_again(second)
    play.check()
    play.stranger.takes(2)
    assert set(play.stranger.holds) == {"1"}  # until what is owed is paid
    play.ask(1)
    play.stranger.takes(2)
    assert set(play.stranger.holds) == {"1", "2"}
