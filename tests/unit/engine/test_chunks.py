"""How many records go to a worker at once, by how long they take."""

from __future__ import annotations

from holdfast.dedup.none import NoSession
from holdfast.plugin.engine.partition.ledger import Ledger
from holdfast.plugin.engine.partition.ownership import Ownership
from holdfast.plugin.engine.record.entry import Entry, Lane
from holdfast.plugin.engine.record.workers import Workers
from holdfast.plugin.handlers import Handler
from holdfast.records import Partition, Record
from holdfast.runtime import Machine
from tests.harness.clocks import HandClock

_QUICK_S, _SLOW_S = 2e-6, 0.02


class _Member:
    def __init__(self, workers: int) -> None:
        self._clock = HandClock()  # time passes in handlers alone
        self.workers = Workers(workers, "t", Machine(self._clock))
        self._owner = Ownership(Partition("t", 0), NoSession())
        self._owner.own(Ledger(0))
        self._next = 0

    def handle(self, jobs: int, takes_s: float, waits_s: float = 0.0) -> None:
        """So many jobs one after the other, each of 32 records; in each the worker waits once for its turn."""

        def handler(record: Record) -> None:
            self._clock.sleep(takes_s + (waits_s if record.offset % 32 == 0 else 0.0))

        for _ in range(jobs):
            offsets = range(self._next, self._next + 32)
            self._next = offsets.stop
            run = [Record(self._owner.partition, offset, None, b"v", (), -1, self._owner) for offset in offsets]
            entry = Entry.run(run, self._owner, Handler(name="h", call=handler, topics=("t",)), 0.0)
            entry.lane = Lane({}, None)
            entry.taken()
            self.workers.submit([entry])
            while not self.workers.ended():
                assert self.workers.wake.wait(10)


def test_one_wait_for_the_interpreter_does_not_cut_the_next_records_into_single_ones() -> None:
    member = _Member(workers=1)
    member.handle(100, _QUICK_S)
    assert member.workers.share(32) >= 32
    member.handle(1, _QUICK_S, waits_s=0.01)
    assert member.workers.share(32) >= 32
    member.workers.stop()


def test_handlers_that_are_slow_get_their_records_one_by_one_soon() -> None:
    member = _Member(workers=1)
    member.handle(100, _QUICK_S)
    member.handle(12, _SLOW_S)
    assert (member.workers.chunk, member.workers.share(32)) == (1, 1)
    member.workers.stop()


def test_in_the_polling_thread_at_once_since_nobody_takes_back_what_waits_there() -> None:
    member = _Member(workers=0)
    member.handle(100, _QUICK_S)
    member.handle(1, _SLOW_S)
    assert member.workers.chunk == 1
