"""The engine in the hands of a loop that is not ours: it hands records out, and is told what became of them.

    take = what was handed out counts as done > poll > admit > settle > claim > tend > hand out

The parts are those of `loop.py`; in place of the workers there is whoever calls `take`. A partition's records are
handed out in their order, whether or not the ones before have ended.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from holdfast.plugin.audit.schema import Outcome
from holdfast.plugin.in_hand import InHand
from holdfast.plugin.lanes import Gate
from holdfast.plugin.late_marks import LateMarks
from holdfast.plugin.loop import Engine
from holdfast.plugin.ownership import Phase
from holdfast.plugin.ports import NOTHING
from holdfast.plugin.tray import Tray
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from holdfast.plugin.lanes import Entry
    from holdfast.plugin.partitioned import Partitioned
    from holdfast.records import Partition, Record

#: When a record that was handed out counts as done. "next_poll": when the loop comes back for more. "commit": when the
#: loop commits it; what it has not committed when its partition goes is the next owner's to handle. "explicit": when
#: the loop says so of that record; until then the next owner waits for it.
DoneWhen = Literal["next_poll", "commit", "explicit"]

#: How late a mark may be.
_MARK_S = 0.005
#: The longest that one look at the client blocks.
_IDLE_S = 0.1
#: A loop that takes one record at a time is handed out what was fetched together, for so long and so many: then the
#: client is looked at again, for rebalances and for the sake of max.poll.interval.ms.
_AHEAD_S = 0.02
_AHEAD = 256


class Driven(Engine):
    """One app whose handlers are somebody's loop. `lock` guards it all; only `end` and `again` need no lock.

    Args:
        done_when: see `DoneWhen`.
        how: as for `Engine`.
    """

    family: Partitioned

    def __init__(self, *, done_when: DoneWhen, **how: Any) -> None:  # noqa: ANN401 - the engine's own
        # The loop gets a partition's records in their order, so that is one lane.
        super().__init__(**{**how, "settings": replace(how["settings"], ordering="partition")})
        self.done_when = done_when
        self.lock = threading.RLock()
        #: What the loop has and has not ended.
        self.in_hand = InHand()
        #: Partitions whose records the loop does not want for now.
        self.held: set[Partition] = set()
        self._positions: dict[Partition, int] = {}
        self._tray: Tray | None = None
        self._told: deque[Callable[[], None]] = deque()
        self._driver: int | None = None
        self._others_end = False
        self._mark_at = 0.0
        self._client_at = 0.0
        self._late_marks = LateMarks(self, _MARK_S)
        #: Of what the last `take` gave: records without the key that they should have, and why.
        self.unfit: list[tuple[Record, Exception]] = []
        #: Whether something else than records is to be told to the loop first.
        self.interrupted: Callable[[], bool] = lambda: False

    # ---- the loop's calls, under `lock`
    def begin(self, topics: Collection[str]) -> None:
        """Reach the store and join the group. Raises StoreError, SourceError."""
        self.meter.started()
        self._open(topics, Deadline(self.settings.startup_timeout_s, self.clock))
        self.meter.running()
        self._late_marks.start()

    def take(self, at_most: int, timeout_s: float) -> Sequence[Record]:
        """Up to that many records; returns when there are as many, or the time is over. Raises what stopped the app.

        With "next_poll" all that was handed out before counts as done.
        """
        self._driver = threading.get_ident()
        if self.done_when == "next_poll":
            self.end_all()
        at_most = min(at_most, self.settings.max_in_flight)
        ready = self._ready(at_most)
        if ready < at_most or self.clock.now() >= self._client_at:
            deadline = Deadline(timeout_s, self.clock)
            self._look(max(at_most - ready, _AHEAD if at_most == 1 else 1), 0.0 if ready else None, deadline)
            while (ready := self._ready(at_most)) < at_most and not deadline.passed and self._calm:
                self._look(at_most - ready, None, deadline)
        elif self._marks_due:
            self.settle()
        if self.error is not None:
            raise self.error
        return [] if self.stalled else self._hand_out(at_most)

    def take_quick(self) -> Record | None:
        """As `take(1, ...)` with "next_poll", where what was fetched together goes on and nothing else is due.

        None: ask `take`.
        """
        tray = self._tray
        if tray is None or self._told or self.clock.now() >= tray.until:
            return None
        return tray.next()

    def mark_late(self) -> None:
        """What has ended is marked, though the loop is busy with the last that it got."""
        self.collect()
        self.settle()

    def position(self, partition: Partition) -> int | None:
        """The offset behind the last record that was handed out; None = none was."""
        self._take_back()
        return self._positions.get(partition)

    def end_all(self) -> None:
        """All that was handed out is done, but for what was told otherwise."""
        self.collect()
        for entry in self.in_hand.take_all():
            self._end(entry)

    def end_below(self, partition: Partition, offset: int) -> None:
        """All of that partition below the offset is done, but for what was told otherwise."""
        self.collect()
        for entry in self.in_hand.take_below(partition, offset):
            self._end(entry)

    def dismiss(self, partitions: Collection[Partition]) -> None:
        """The loop will not end what it has of these: whoever owns them next handles it."""
        self.collect()
        for entry in self.in_hand.take_of(partitions):
            self._leave_to_others(entry)

    def goes(self, partitions: Collection[Partition]) -> None:
        """These are about to go: what of them is not done, the loop had its chance to say so."""
        if self.done_when != "explicit":
            self.dismiss(partitions)
        for partition in partitions:
            self._positions.pop(partition, None)

    def read_from(self, partition: Partition, offset: int) -> None:
        """Somebody wants to read on from there: what is known from there on is forgotten, and it is committed."""
        self.dismiss([partition])
        self._positions[partition] = offset
        self.family.restart(partition, offset)

    def hold(self, partitions: Iterable[Partition]) -> None:
        """Hand nothing out of these."""
        self._take_back()
        self.held.update(partitions)
        self.intake.held = self.held

    def let(self, partitions: Iterable[Partition]) -> None:
        """Hand them out again."""
        self.held.difference_update(partitions)
        self.lanes.wake_all()

    def end_of_loop(self) -> None:
        """Leave the group and close. What the loop has and did not end is handed back; with "explicit", and where other
        threads end records, it is waited for. Raises nothing."""
        self.stop()
        self._late_marks.stop()
        try:
            if self.done_when != "explicit" or not self._others_end:
                self.dismiss({entry.owner.partition for entry in self.in_hand})
            if self.session is not None:
                self._leave()
        except Exception as error:  # noqa: BLE001 - the client is closed in any case
            self.fail(error)
        finally:
            self._close()
            self.meter.stopped()

    # ---- any thread, without the lock: a callback of the group may wait for the thread that calls
    def end(self, partition: Partition, offset: int) -> None:
        """That record is done. Nothing happens where it is not in hand (any more)."""
        self._tell_driver(lambda: self._ended(partition, offset))

    def again(self, partition: Partition, offset: int) -> None:
        """That record was not done: it is handed out again, if its partition is still ours."""
        self._tell_driver(lambda: self._again(partition, offset))

    def _tell_driver(self, what: Callable[[], None]) -> None:
        self._others_end = self._others_end or threading.get_ident() != self._driver
        self._told.append(what)
        self.workers.wake.set()
        self._late_marks.wake()

    # ---- the engine's steps, without workers
    def collect(self) -> None:
        """What was told of records."""
        self._take_back()
        self.workers.wake.clear()
        while self._told:
            self._told.popleft()()

    def work(self) -> None:
        """A turn without the client."""
        if self.session is not None:
            self.session.vouch(self.family.patience_s)
        self.collect()
        if self._marks_due:
            self.settle()
        self._claim()
        self.timers.run_due()
        self.tend_session()

    @property
    def unfinished(self) -> bool:
        """Whether somebody has records in hand, results wait to be acknowledged, or something is owed."""
        return bool(self.in_hand or self._told or self.settling.waiting or self.debts)

    @property
    def with_handlers(self) -> int:
        """What the loop has."""
        return sum(entry.count for entry in self.in_hand)

    def work_until(self, over: Callable[[], bool], deadline: Deadline) -> None:
        """As in the engine, but for what only this thread could end: it is here."""
        super().work_until(lambda: over() or not self._others_end, deadline)

    # ---- inside
    def _look(self, at_most: int, wait_s: float | None, deadline: Deadline) -> None:
        """One look at the client, and what follows from it. What stops the engine stays: behind a hole in the log, say,
        nothing is handed out, however often the loop asks."""
        try:
            wait_s = self._wait_s(deadline) if wait_s is None else wait_s
            if room := self.intake.room(stopped=self.stalled):
                batch = self._ask(min(room, at_most), wait_s)
            else:
                self.workers.wake.wait(min(wait_s, _MARK_S))
                batch = NOTHING
            self._client_at = self.clock.now() + _AHEAD_S
            self._take_in(batch)
            self.work()
            self.family.tend()
        except Exception as error:  # noqa: BLE001 - raised by `take`, now and from now on
            self.fail(error)

    def _wait_s(self, deadline: Deadline) -> float:
        """Short while something is under way that the client knows nothing of."""
        busy = self._told or self.settling.waiting or self.debts or self.stalled or self.claiming.wanted
        awaited = self._others_end and self.in_hand
        return self.timers.next_s(deadline.left_s(_MARK_S if busy or awaited else _IDLE_S))

    def _ready(self, at_most: int) -> int:
        """Records that may be handed out now, counted up to `at_most`."""
        return 0 if self.stalled else self.lanes.ready_records(at_most)

    @property
    def _calm(self) -> bool:
        """Whether nothing has to be told to the loop first."""
        return self.error is None and not self.interrupted()

    @property
    def _marks_due(self) -> bool:
        waiting = self.settling.waiting
        return waiting > 0 and (waiting >= self.settings.mark_batch or self.clock.now() >= self._mark_at)

    def _hand_out(self, at_most: int) -> list[Record]:
        out: list[Record] = []
        self.unfit = []
        refused: list[Entry] = []
        while len(out) < at_most and (lane := self.lanes.next()) is not None:
            head = lane.head()
            if head is None or head.owner.partition in self.held:
                continue  # `let` wakes it
            whole = head.count if at_most == 1 and self.done_when == "next_poll" else 0
            for entry in self.lanes.give(lane, max(whole, at_most - len(out))):
                if not entry.owner.enter_all(entry):
                    refused.append(entry)
                    continue
                self.in_hand.add(entry)
                self.recorder.begins((entry,))
                if entry.error is not None:
                    self.unfit.append((entry.record, entry.error))
                if whole > 1:
                    out.append(self._one_by_one(entry))
                else:
                    out += entry.records
                    self._positions[entry.record.partition] = entry.records[-1].offset + 1
        for entry in refused:  # its partition goes, or the session is lost: that hands it back
            entry.gate = Gate.READY
            self.lanes.put_back(entry)
        return out

    def _one_by_one(self, entry: Entry) -> Record:
        """The loop takes one record at a time: this is the first of a run."""
        now = self.clock.now()
        self._tray = Tray(entry, min(self._client_at, now + _MARK_S))
        self._mark_at = min(self._mark_at, now + _MARK_S) if self.settling.waiting else now + _MARK_S
        self._late_marks.wake()
        return entry.record

    def _take_back(self) -> None:
        """Of the run that goes one by one: what is left goes back to where it came from, what went before the last that
        has gone is done."""
        tray, self._tray = self._tray, None
        if tray is None:
            return
        self._positions[tray.partition] = tray.last + 1
        if (rest := tray.rest()) is not None:
            self.lanes.put_back(rest)
        for entry in self.in_hand.take_below(tray.partition, tray.last):
            self._end(entry)

    def _ended(self, partition: Partition, offset: int) -> None:
        if (entry := self.in_hand.take(partition, offset)) is not None:
            self._end(entry)

    def _end(self, entry: Entry) -> None:
        if not self.settling.waiting:
            self._mark_at = self.clock.now() + _MARK_S
            self._late_marks.wake()
        self.outcomes.handled += entry.count
        self.recorder.ended(entry, Outcome.HANDLED)
        self.settling.ended(entry)

    def _again(self, partition: Partition, offset: int) -> None:
        entry = self.in_hand.take(partition, offset)
        if entry is not None and entry.owner.phase is Phase.OWNED:
            entry.gate = Gate.READY
            entry.started = 0
            self.lanes.put_back(entry)
        elif entry is not None:
            self._leave_to_others(entry)

    def _leave_to_others(self, entry: Entry) -> None:
        entry.gate = Gate.GONE
        self.outcomes.leave_to_others(entry)
