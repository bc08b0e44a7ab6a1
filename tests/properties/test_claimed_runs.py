"""Runs with business keys, cut and split in every way, beside a stranger who holds some: every record ends, each key
runs once, and at the end nobody holds anything."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import BatchOf, MemoryClaims, Settings
from holdfast.dedup.claims import Verdict
from holdfast.plugin.engine.flow.intake import Intake
from holdfast.plugin.engine.partition.ownership import Ownership
from holdfast.plugin.engine.record.admission import Admission
from holdfast.plugin.engine.record.claiming import Claiming
from holdfast.plugin.engine.record.entry import Entry, EntryState
from holdfast.plugin.engine.record.lanes import Lanes
from holdfast.plugin.engine.store.owed import Owed
from holdfast.plugin.engine.timers import Timers
from holdfast.plugin.handlers import Handler
from holdfast.records import Partition, Record
from holdfast.timing import SYSTEM_CLOCK
from tests.harness.clocks import HandClock
from tests.properties.stranger import Stranger
from tests.properties.test_claiming import behind
from tests.tiers import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from holdfast.plugin.settings import Ordering

SCOPE = "g/t"


def _value(record: Record) -> str:
    return (record.value or b"").decode()


class Play:
    """One partition, one member's lanes and claims, and a stranger at the same store."""

    def __init__(self, ordering: Ordering, *, batch: bool) -> None:
        self.ordering = ordering
        self.handler = Handler(name="h", call=print, topics=("t",), key=_value, batch=BatchOf() if batch else None)
        self.clock = HandClock()
        self.store = MemoryClaims(lease_s=3600.0, renewals=False)
        self.mine = self.store.begin(3600.0)
        self.owner = Ownership(Partition("t", 0), self.mine)
        self.owner.name = "p"
        self.lanes, self.timers, self.owed = Lanes(), Timers(self.clock), Owed()
        self.claiming = Claiming(self.lanes, self.timers, self.owed, self.skip)
        self.size, self.next = 1, 0
        self.ran: list[str] = []
        self.stranger = Stranger(self.store.begin(3600.0), SCOPE, self.ran)
        #: By lane: offsets that have not ended.
        self.order: dict[Hashable, list[int]] = {}
        self.out: list[Entry] = []
        self.ended: list[Entry] = []
        self.again: set[int] = set()
        core = SimpleNamespace(
            lanes=self.lanes,
            unacked=self.lanes.unacked,
            intake=Intake(Settings(), SYSTEM_CLOCK),
            clock=self.clock,
            group="g",
            settings=Settings(ordering=ordering),
            routes=SimpleNamespace(find=lambda _: self.handler),
            workers=SimpleNamespace(share=lambda _: self.size),
            claiming=self.claiming,
            family=SimpleNamespace(
                by_position=True,
                by_identity=False,
                mixes=lambda _: False,
                admit=lambda records: [(self.owner, records)],
            ),
        )
        self.admission = Admission(**vars(core))

    # ---- what happens
    def poll(self, what: Sequence[tuple[int, int]], size: int) -> None:
        """Records with these keys (of the lane, of the business), in runs of that size at most."""
        self.size = size
        records = []
        for lane, key in what:
            self.next += 1
            records.append(Record(self.owner.partition, self.next, b"%d" % lane, b"%d" % key, (), -1, self.owner))
            self.order.setdefault(self.lane(records[-1]), []).append(self.next)
        if records:
            self.admission.admit(records)

    def lane(self, record: Record) -> Hashable:
        if self.ordering == "partition" or self.handler.batch:
            return "all"
        return record.key if self.ordering == "key" else record.offset

    def ask(self, at_most: int) -> None:
        self.owed.pay()
        assert self.claiming.step(self.mine.claim, at_most)

    def take(self, at_most: int) -> None:
        if (lane := self.lanes.next()) is not None:
            taken = self.lanes.take(lane, at_most)
            assert taken
            self.out += taken

    def come_back(self, number: int, how: str, at: int) -> None:
        """As `Outcomes` has it; `at`: the record that failed, where one did."""
        if (entry := self.chosen(number)) is None:
            return
        behind = [other for other in self.out if other.lane is entry.lane and other is not entry]
        self.out.remove(entry)
        if how == "end":
            self.over(entry)
            return
        at %= entry.count
        for index, piece in enumerate(self.claiming.apart(entry)):
            if index < at:
                self.over(piece)
            else:
                self.lanes.back(piece, EntryState.RETRY if index == at else EntryState.READY)
        self.not_started(behind)

    def is_slow(self, number: int, at: int) -> None:
        """What follows that record of a run is taken back from its worker."""
        if (entry := self.chosen(number)) is None or entry.count == 1:
            return
        behind = [other for other in self.out if other.lane is entry.lane and other is not entry]
        head, following = self.lanes.shrink(entry, at % entry.count, at % entry.count + 1)
        if head is not None:
            self.over(head)
        for piece in following:
            self.lanes.back(piece, EntryState.READY)
        self.not_started(behind)

    def chosen(self, number: int) -> Entry | None:
        """One of those that are out. A worker takes those of a lane one after the other."""
        entry = self.out[number % len(self.out)] if self.out else None
        return entry and next(other for other in self.out if other.lane is entry.lane)

    def not_started(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.out.remove(entry)
            self.lanes.back(entry, EntryState.READY)

    def over(self, entry: Entry) -> None:
        assert entry.held, f"{entry} ran without its keys"
        self.lanes.back(entry, EntryState.ENDED)
        for record in entry.records:
            lane = self.order[self.lane(record)]
            assert lane[0] == record.offset or self.again, f"{record.offset} ended before {lane[0]}"
            self.leaves(record)
            self.ran.append(_value(record))
        self.ended.append(entry)

    def leaves(self, record: Record) -> None:
        self.order[self.lane(record)].remove(record.offset)

    def skip(self, entry: Entry) -> None:
        entry.state = EntryState.ENDED
        self.leaves(entry.record)
        entry.state = EntryState.GONE
        del self.owner.entries[entry.record.offset]
        self.lanes.wake(entry.lane)

    def finish(self, fenced: int | None) -> None:
        """As `Settling` has it. `fenced`: of that one the key was taken over, and given back."""
        ended, self.ended = self.ended, []
        claims = [claim for entry in ended for claim in entry.asked_for]
        if not claims:
            return
        lost = None if fenced is None else claims[fenced % len(claims)]
        if lost is not None:
            self.mine.unclaim([lost])
        verdicts = self.mine.finish([claim for claim in claims if claim is not lost])
        assert set(verdicts) <= {Verdict.DONE}
        given = [Verdict.FENCED if claim is lost else Verdict.DONE for claim in claims]
        for entry, verdict in self.claiming.each(ended, given, Verdict.DONE):
            entry.held = False
            self.claiming.free(entry)
            self.lanes.unacked.leave(entry)
            if verdict is Verdict.FENCED:
                self.ran.remove(_value(entry.record))
                self.again.add(entry.record.offset)
                lane = self.order.setdefault(self.lane(entry.record), [])
                lane.insert(sum(offset < entry.record.offset for offset in lane), entry.record.offset)
                entry.state = EntryState.CLAIM
                self.lanes.put_back(entry)
                self.claiming.want(entry)
            else:
                self.owner.entries.pop(entry.record.offset)
                entry.state = EntryState.GONE

    def retry(self) -> None:
        for entry in list(self.owner.entries.values()):
            if entry.state is EntryState.RETRY:
                entry.state = EntryState.READY
                self.lanes.wake(entry.lane)

    def pass_time(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        self.timers.run_due()

    def step(self, op: str, what: Any, number: int) -> None:
        steps: dict[str, Callable[[], None]] = {
            "poll": lambda: self.poll(what, number),
            "takes": lambda: self.stranger.takes(what),
            "done": lambda: self.stranger.ends(what, well=True),
            "freed": lambda: self.stranger.ends(what, well=False),
            "ask": lambda: self.ask(what),
            "take": lambda: self.take(what),
            "retry": self.retry,
            "time": lambda: self.pass_time(what / 10),
            "finish": lambda: self.finish(None),
            "fenced": lambda: self.finish(what),
            "slow": lambda: self.is_slow(what, number),
        }
        steps.get(op, lambda: self.come_back(what, op, number))()

    # ---- what holds
    def check(self) -> None:
        entries = list(self.owner.entries.values())
        assert all(offset == entry.record.offset for offset, entry in self.owner.entries.items())
        assert self.lanes.taken == sum(entry.count for entry in self.out)
        assert self.lanes.unacked.records == sum(entry.count for entry in [*self.out, *self.ended])
        for entry in entries:
            stand = [*entry.lane.entries, *entry.lane.followers]
            assert entry.over or sum(other is entry for other in stand) == 1, f"{entry} is not in its lane"
            if not self.again:
                offsets = [other.record.offset for other in stand if not other.over]
                assert offsets == sorted(offsets), "a lane is out of order"
            if entry.state is EntryState.BUSY:
                for other in behind(entry):
                    # Whose key was lost comes back before those that run: they wait for nobody.
                    assert not other.held or other.state is EntryState.TAKEN, f"{other} holds a key behind {entry}"
                    assert other.state is not EntryState.READY
        out = {offset for entry in self.out for offset in entry.offsets}
        if not self.again:
            for lane in self.order.values():
                assert out.isdisjoint(lane) or lane[0] in out, "one runs before an earlier one of its lane"
        held = [claim.key for entry in entries if entry.held for claim in entry.asked_for]
        assert len(held) == len(set(held)), "two records of one key are claimed at once"


OPS = st.one_of(
    st.tuples(
        st.just("poll"), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=6), st.integers(1, 5)
    ),
    st.tuples(st.sampled_from(["takes", "done", "freed"]), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("ask"), st.integers(1, 9), st.just(0)),
    st.tuples(st.just("take"), st.integers(1, 6), st.just(0)),
    st.tuples(st.sampled_from(["end", "fail", "slow"]), st.integers(0, 5), st.integers(0, 5)),
    st.tuples(st.sampled_from(["retry", "time", "finish", "finish", "fenced"]), st.integers(0, 9), st.just(0)),
)


@pytest.mark.parametrize(("ordering", "batch"), [("key", False), ("partition", False), ("none", False), ("key", True)])
@settings(max_examples=examples(60), deadline=None)
@given(ops=st.lists(OPS, min_size=15, max_size=70), seed=st.integers(0, 3))
def test_every_record_ends_each_key_runs_once_and_nothing_is_held_at_the_end(
    ordering: Ordering, batch: bool, ops: list[tuple[str, Any, int]], seed: int
) -> None:
    random.seed(seed)
    play = Play(ordering, batch=batch)
    for op, what, number in ops:
        play.step(op, what, number)
        play.check()
    # And all of it comes to an end, once nobody else holds anything.
    while play.stranger.holds:
        play.stranger.ends(0, well=False)
    for _ in range(20 + 8 * play.next):
        if not any(play.order.values()) and not play.ended:
            break
        play.retry()
        play.ask(500)
        play.take(3)
        play.come_back(0, "end", 0)
        play.finish(None)
        play.pass_time(1.0)
    play.check()
    assert not any(play.order.values()), "records stand still"
    assert len(play.lanes) == 0
    assert len(play.ran) == len(set(play.ran)), "a key ran twice"
    assert play.claiming.wanted == 0
    assert play.claiming._holders == {}
    assert play.claiming._waiters == {}


def test_a_run_that_is_taken_apart_behind_one_that_waits_leaves_all_its_records_in_their_lane() -> None:
    play = Play("partition", batch=False)
    play.poll([(0, 0), (0, 1)], 2)
    play.poll([(0, 2), (0, 3)], 2)
    play.stranger.takes(0)
    play.stranger.takes(2)
    play.ask(500)
    play.check()
    play.stranger.ends(0, well=False)
    play.stranger.ends(0, well=False)
    for _ in range(10):
        play.pass_time(1.0)
        play.ask(500)
        play.take(1)
        play.come_back(0, "end", 0)
        play.finish(None)
        play.check()
    assert play.ran == ["0", "1", "2", "3"]
