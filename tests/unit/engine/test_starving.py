"""A partition that stays does not wait for long while another one is drained: nothing is read inside a rebalance."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import MemoryClaims, Settings
from holdfast.dedup.claims import Acquired
from holdfast.dedup.none import NoClaims
from holdfast.errors import SourceUnavailable
from holdfast.plugin.engine.flow.intake import Intake
from holdfast.plugin.engine.flow.waiting import Waiting
from holdfast.plugin.engine.partition.ledger import Ledger
from holdfast.plugin.engine.partition.ownership import Ownership
from holdfast.plugin.engine.partition.starving import Starving
from holdfast.plugin.engine.record.entry import Entry, EntryState
from holdfast.plugin.events import Overrun, RebalanceReport
from holdfast.records import Record
from holdfast.runtime import MACHINE
from tests.harness.engine import Bench, numbered, partition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.records import Partition

P0, P1 = partition(0), partition(1)
SETTINGS = Settings(workers=4, commit_interval_s=0.01, drain_timeout_s=3600.0, linger_timeout_s=3600.0)


def test_its_records_go_on_and_what_outlives_the_drain_is_not_repeated() -> None:
    with Bench(orders=2) as bench:
        bench.work.hold("0x0", "1x0")
        bench.broker.produce("orders", 0, "0x0")
        bench.broker.produce("orders", 1, "1x0")
        first = bench.member("a", settings=SETTINGS)
        bench.wait_running("0x0", "1x0")
        second = bench.member("b", settings=SETTINGS)
        bench.group.aim({first.source: [P1], second.source: [P0]})
        bench.wait(lambda: first.owns == {P1})
        # The one runs on; each partition gets more, which nobody polls while the other drains.
        bench.broker.produce("orders", 0, *numbered("0y", range(10)))
        bench.broker.produce("orders", 1, *numbered("1y", range(10)))
        bench.wait_ended(*numbered("1y", range(10)))
        bench.wait_ended(*numbered("0y", range(10)))
        assert bench.work.is_running("0x0")
        assert {seen.member for seen in bench.work.ended if seen.value.startswith("0y")} == {"b"}
        bench.work.let_go()
        bench.wait_committed(11, 0)
        bench.wait_committed(11, 1)
        assert [event.offset for event in first.told(Overrun)] == [0]
        assert [event.abandoned for event in first.told(RebalanceReport) if event.given] == [1]
    assert set(bench.work.starts().values()) == {1}


@dataclass
class Sources:
    """As far as it is asked here."""

    ends: dict[Partition, int]
    asked: Sequence[Partition] | None = None

    def look_at_ends(self, partitions: Sequence[Partition]) -> Mapping[Partition, int] | None:
        """Each second call has the answer to the first."""
        asked, self.asked = self.asked, partitions if self.asked is None else None
        if asked is None:
            return None
        if not self.ends:
            raise SourceUnavailable("no answer")
        return {each: self.ends[each] for each in asked if each in self.ends}


@dataclass
class Clock:
    now_s: float = 0.0

    def now(self) -> float:
        return self.now_s


@dataclass
class Sessions:
    remembered: bool = True


@dataclass
class Limits:
    shut: set[Partition] = field(default_factory=set)
    waiting: Waiting = field(default_factory=Waiting)

    def lets_in(self, partition: Partition) -> bool:
        return partition not in self.shut


@dataclass
class Parts:
    runtime: Clock = field(default_factory=Clock)
    sessions: Sessions = field(default_factory=Sessions)
    intake: Limits = field(default_factory=Limits)


def owned(at: Partition, *, opened: bool = True) -> Ownership:
    owner = Ownership(at, MemoryClaims().begin(60.0))
    owner.acquired = Acquired(1, 0, frozenset(), frozenset())
    owner.own(Ledger(5))
    owner.seek_needed = not opened
    return owner


class Drain:
    """Two partitions stay, and are read up to 5."""

    def __init__(self, *, end: int = 6, starts_inside: bool = True) -> None:
        self.parts = Parts()
        loop: Any = SimpleNamespace(starts_inside=starts_inside)
        self.owners = {at: owned(at) for at in (P0, P1)}
        self.source = Sources({P0: 5, P1: end})
        parts: Any = self.parts
        source: Any = self.source
        self.starving = Starving(parts, loop, source, self.owners)

    def waits(self, seconds: float) -> bool:
        """Whether it still does after so long."""
        for _ in range(round(seconds * 100)):
            self.parts.runtime.now_s += 0.01
            if self.starving.too_long:
                return False
        return True


def test_one_that_could_be_read_waits_for_a_second() -> None:
    drain = Drain()
    assert drain.waits(1.0)
    assert not drain.waits(0.8)


def test_what_comes_late_waits_for_a_second_from_then_on() -> None:
    drain = Drain(end=5)
    assert drain.waits(60.0)
    drain.source.ends[P1] = 6
    assert drain.waits(1.0)
    assert not drain.waits(0.8)


@pytest.mark.parametrize(
    ("between_s", "read", "waits_on"),
    [(0.1, False, True), (0.1, True, False), (5.0, False, False)],
    ids=["at once", "read", "later"],
)
def test_what_has_waited_through_one_drain_waits_on_in_the_next(
    between_s: float, *, read: bool, waits_on: bool
) -> None:
    """Nothing is read inside of either, and between them there was no time for it."""
    drain = Drain()
    assert not drain.waits(2.0)
    drain.parts.runtime.now_s += between_s
    if read:
        drain.owners[P1].ledger.polled(5)
        drain.source.ends[P1] = 7
    drain.starving.begin()
    assert drain.waits(0.4) is not waits_on


def entry_of(owner: Ownership, gate: EntryState) -> Entry:
    handler: Any = None
    record = Record(owner.partition, 5, None, b"x", (), 0, owner)
    entry = Entry(record, owner, handler, None, 0.0)
    entry.state, entry.started = gate, int(gate is EntryState.TAKEN)
    return entry


@pytest.mark.parametrize(
    ("gate", "starts_inside", "waits"),
    [
        (EntryState.READY, True, True),  # it starts as soon as it may
        (EntryState.TAKEN, True, False),  # it runs, and the next one could
        (EntryState.ENDED, True, False),
        (EntryState.READY, False, False),  # nobody is given it
        (EntryState.TAKEN, False, True),  # the user's threads have it
        (EntryState.ENDED, False, False),
    ],
)
def test_what_is_here_of_it_goes_on_or_not(gate: EntryState, *, starts_inside: bool, waits: bool) -> None:
    drain = Drain(starts_inside=starts_inside)
    drain.owners[P1].entries[5] = entry_of(drain.owners[P1], gate)
    assert drain.waits(2.0) is waits


@pytest.mark.parametrize("why", ["nothing is there", "unknown", "no answer", "paused", "sought", "fenced", "no store"])
def test_no_other_hurries(why: str) -> None:
    drain = Drain()
    if why == "nothing is there":
        drain.source.ends[P1] = 5
    elif why == "unknown":
        del drain.source.ends[P1]
    elif why == "no answer":
        drain.source.ends.clear()
    elif why == "paused":
        drain.parts.intake.shut.add(P1)
    elif why == "sought":
        drain.owners[P1] = owned(P1, opened=False)
    elif why == "fenced":
        del drain.owners[P1]
    else:
        drain.parts.sessions.remembered = False
    assert drain.waits(60.0)


def test_what_the_ramp_holds_back_would_go_on_and_what_is_paused_would_not() -> None:
    intake = Intake(Settings(), MACHINE)
    assert intake.lets_in(P0)
    intake.assigned([P0], [])
    assert not intake.lets_in(P0)
    intake.waiting.add_new([owned(P0)])
    assert intake.lets_in(P0)
    intake.hold_back({P0})
    assert not intake.lets_in(P0)


def test_without_a_store_a_drain_takes_what_it_takes() -> None:
    """Nobody would wait for what outlives it."""
    with Bench(orders=1) as bench:
        for claims, expected in ((bench.claims, True), (NoClaims(), False)):
            member = bench.member(f"{expected}", claims=claims)
            bench.wait(lambda one=member: one.owns == {P0})  # type: ignore[misc]
            engine = member.app._engine
            assert engine is not None
            assert engine.parts.sessions.remembered is expected
            member.app.stop()
            member.join()
