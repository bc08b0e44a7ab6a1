"""The engine in the hands of a loop that is not ours: it hands records out, and is told what became of them.

    take = what was handed out counts as done > poll > admit > settle > claim > tend > hand out

The parts are those of `loop.py`; in place of the workers there is whoever calls `take`. A partition's records are
handed out in their order, whether or not the ones before have ended.

The loop's thread is the application's: a signal handler may raise (KeyboardInterrupt) between any two lines here, and
the loop may go on. So each call is made inside of `whole`, and what was torn is put right by the calls that follow.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from holdfast.plugin.audit.schema import Outcome
from holdfast.plugin.engine.loop import Engine
from holdfast.plugin.engine.record.entry import Gate
from holdfast.plugin.own_loop.background_marks import BackgroundMarks
from holdfast.plugin.own_loop.handed_out import HandedOut
from holdfast.plugin.own_loop.run_cursor import RunCursor
from holdfast.plugin.ports import NOTHING
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from holdfast.plugin.engine.partition.partitioned import Partitioned
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.engine.record.owner import Owner
    from holdfast.plugin.ports import Batch
    from holdfast.records import Partition, Record
    from holdfast.runtime import Thread

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
        self.lock = self.runtime.rlock()
        #: What the loop has and has not ended.
        self.handed_out = HandedOut()
        #: Partitions whose records the loop does not want for now.
        self.held: set[Partition] = set()
        self._positions: dict[Partition, int] = {}
        #: Up to where calls that have returned have handed out, by ownership: read by any thread.
        self._returned: dict[Owner, int] = {}
        self._cursor: RunCursor | None = None
        self._told: deque[Callable[[], None]] = deque()
        self._driver: Thread | None = None
        self._others_end = False
        #: The loop is inside of a call; the books are being written; a call was left in the midst of that.
        self._inside = self._writing = self._torn = False
        #: `take_quick` has given a record that may not have reached the loop.
        self._quick = False
        #: The client was asked, and what it gave is in no book yet.
        self._unread = False
        #: Of the call that goes on: what the loop has only when the call has returned.
        self._giving: list[Entry] = []
        self._mark_at = 0.0
        self._client_at = 0.0
        self._background_marks = BackgroundMarks(
            mark=self.mark_in_background,
            lock=self.lock,
            late_s=_MARK_S,
            fail=self.fail,
            group=self.group,
            runtime=self.runtime,
        )
        #: Of what the last `take` gave: records without the key that they should have, and why.
        self.unfit: list[tuple[Record, Exception]] = []
        #: Whether something else than records is to be told to the loop first.
        self.interrupted: Callable[[], bool] = lambda: False

    # ---- the loop's calls, under `lock`, each inside of `whole`
    @contextmanager
    def whole(self) -> Iterator[None]:
        """Around a call of the loop. An Exception is told from where all books are right; anything else that is raised
        comes from a signal handler, from anywhere: then what the call was about to hand out was not handed out."""
        outer, through = self._inside, False
        try:
            try:
                if not outer:
                    self._inside = True
                    self._torn = self._torn or self._writing
                    self._take_out_of_hand()
                    self._writing = True
                yield
                through = True
            except Exception:
                through = True
                raise
            finally:
                self._inside = outer
                if through and not outer:
                    self._came_through()
        except BaseException:
            # It may have struck in the `finally`: each later call would count as one inside of this one, and mend none.
            self._inside = outer
            raise

    def begin(self, topics: Collection[str]) -> None:
        """Reach the store and join the group. Raises StoreError, SourceError."""
        self.snapshots.started()
        self._open(topics)
        self.snapshots.running()
        self._background_marks.start()

    def take(self, at_most: int, timeout_s: float) -> Sequence[Record]:
        """Up to that many records; returns when there are as many, or the time is over. Raises what stopped the app.

        With "next_poll" all that was handed out before counts as done.
        """
        self._driver = self.runtime.current()
        if self.done_when == "next_poll":
            self.end_all()
        elif self._told:  # what was given back comes before what lies behind it
            self.collect()
        if self._torn or self._unread or self.family.ours.moving:
            self._mend()
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
        """Take one record, as `take(1, ...)` with "next_poll" does, where what was fetched together goes on and nothing
        else is due.

        None: ask `take`.
        """
        cursor = self._cursor
        if cursor is None or self._told or self._writing or self._quick or self.clock.now() >= cursor.until:
            return None
        cursor.begin()
        self._quick = True
        record = cursor.next()
        if record is None:
            self._quick = False
        return record

    def gave(self) -> None:
        """Note that what `take_quick` gave is about to be returned to the loop."""
        self._quick = False

    def mark_in_background(self) -> None:
        """Mark what has ended, though the loop is busy with the last that it got."""
        if not (self._writing or self._quick):  # else its last call was torn: the next one has to look at that first
            self.collect()
            self.settle()

    def position(self, partition: Partition) -> int | None:
        """The offset behind the last record that was handed out; None = none was."""
        self._take_back()
        return self._positions.get(partition)

    def end_all(self) -> None:
        """All that was handed out is done, but for what was told otherwise."""
        self.collect()
        for entry in list(self.handed_out):
            self._end(entry)
            self.handed_out.drop(entry)

    def end_below(self, partition: Partition, offset: int) -> None:
        """All of that partition below the offset is done, but for what was told otherwise."""
        self.collect()
        for entry in self.handed_out.below(partition, offset):
            self._end(entry)
            self.handed_out.drop(entry)

    def dismiss(self, partitions: Collection[Partition]) -> None:
        """The loop will not end what it has of these: whoever owns them next handles it."""
        self.collect()
        for entry in self.handed_out.take_of(partitions):
            self._leave_to_others(entry)

    def goes(self, partitions: Collection[Partition]) -> None:
        """Partitions are about to go: what of them is not done, the loop had its chance to say so."""
        if self.done_when != "explicit":
            self.dismiss(partitions)
        for partition in partitions:
            self._positions.pop(partition, None)

    def read_from(self, partition: Partition, offset: int) -> None:
        """Somebody wants to read on from there: what is known from there on is forgotten, and it is committed."""
        self.dismiss([partition])
        self._positions[partition] = offset
        self.family.ours.restart(partition, offset)

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
        self.stop(why="close()")
        self._background_marks.stop()
        try:
            if self.done_when != "explicit" or not self._others_end:
                self.dismiss({entry.owner.partition for entry in self.handed_out})
            if self.session is not None:
                self.snapshots.stopping(self.stops.why)
                self._leave()
        except Exception as error:  # noqa: BLE001 - the client is closed in any case
            self.fail(error)
        finally:
            self._close()

    # ---- any thread, without the lock: a callback of the group may wait for the thread that calls
    def end(self, partition: Partition, offset: int) -> None:
        """End a record that is done. Nothing happens where it is not in hand (any more)."""
        self._tell_driver(lambda: self._ended(partition, offset))

    def end_returned(self) -> None:
        """All that calls have returned by now is done, but for what was told otherwise."""
        returned = dict(self._returned)  # one step of the interpreter: no other thread comes between
        self._tell_driver(lambda: self._ended_below(returned))

    def again(self, partition: Partition, offset: int) -> None:
        """Hand out a record again that was not done, if its partition is still ours."""
        self._tell_driver(lambda: self._again(partition, offset))

    def _tell_driver(self, what: Callable[[], None]) -> None:
        self._others_end = self._others_end or self.runtime.current() != self._driver
        self._told.append(what)
        self.workers.wake.set()
        self._background_marks.wake()

    # ---- the engine's steps, without workers
    def collect(self) -> None:
        """Collect what was told of records."""
        self._take_back()
        self.workers.wake.clear()
        while self._told:
            self._told[0]()
            self._told.popleft()

    def work(self) -> None:
        """A turn without the client."""
        if self.session is not None:
            self.session.vouch(self.family.patience_s)
        self.collect()
        if self._marks_due:
            self.settle()
        self._claim()
        self.timers.run_due()
        self.sessions.tend()

    @property
    def unfinished(self) -> bool:
        """Whether somebody has records in hand, results wait to be acknowledged, or something is owed."""
        return bool(self.handed_out or self._told or self.settling.waiting or self.owed)

    @property
    def with_handlers(self) -> int:
        """The number of records that the loop has."""
        return sum(entry.count for entry in self.handed_out)

    def work_until(self, over: Callable[[], bool], deadline: Deadline) -> None:
        """Work as the engine does, but for what only this thread could end: it is here."""
        super().work_until(lambda: over() or not self._others_end, deadline)

    # ---- inside
    def _look(self, at_most: int, wait_s: float | None, deadline: Deadline) -> None:
        """One look at the client, and what follows from it. What stops the engine stays: behind a hole in the log, say,
        nothing is handed out, however often the loop asks."""
        try:
            wait_s = self._wait_s(deadline) if wait_s is None else wait_s
            if room := self.intake.room(stopped=self.stalled):
                batch = self._asked(min(room, at_most), wait_s)
            else:
                self.workers.wake.wait(min(wait_s, _MARK_S))
                batch = NOTHING
            self._client_at = self.clock.now() + _AHEAD_S
            self._take_in(batch)
            self._unread = False
            self.work()
            self.family.tend()
        except Exception as error:  # noqa: BLE001 - raised by `take`, now and from now on
            self._unread = False
            self.fail(error)

    def _asked(self, at_most: int, wait_s: float) -> Batch:
        """Poll the client. Nearly always it is here that Ctrl-C strikes: then the client has to give the same again,
        and nothing else was torn."""
        self._unread = True
        self._writing = False
        batch = self._ask(at_most, wait_s)
        self._writing = True
        return batch

    def _wait_s(self, deadline: Deadline) -> float:
        """Short while something is under way that the client knows nothing of."""
        busy = self._told or self.settling.waiting or self.owed or self.stalled or self.claiming.wanted
        busy = busy or self.intake.new_partitions.records > 0
        awaited = self._others_end and self.handed_out
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
            whole = self._run_of(head) if at_most == 1 and self.done_when == "next_poll" else 0
            for entry in self.lanes.give(lane, max(whole, at_most - len(out))):
                if not entry.owner.enter_all(entry):
                    refused.append(entry)
                    continue
                self._giving.append(entry)
                self.handed_out.add(entry)
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

    def _run_of(self, head: Entry) -> int:
        """How many go one by one before the engine is asked again: none of them is marked meanwhile."""
        return min(head.count, max(1, self.settings.mark_batch - self.settling.waiting))

    def _one_by_one(self, entry: Entry) -> Record:
        """The loop takes one record at a time: this is the first of a run."""
        now = self.clock.now()
        self._cursor = RunCursor(entry, min(self._client_at, now + _MARK_S))
        self._mark_at = min(self._mark_at, now + _MARK_S) if self.settling.waiting else now + _MARK_S
        self._background_marks.wake()
        return entry.record

    def _take_back(self) -> None:
        """Of the run that goes one by one: what is left goes back to where it came from, what went before the last that
        has gone is done."""
        cursor = self._cursor
        if cursor is None:
            return
        self._positions[cursor.partition] = cursor.last + 1
        if (rest := cursor.rest()) is not None:
            self.lanes.put_back(rest)
        last, self._cursor = cursor.last, None
        for entry in self.handed_out.below(cursor.partition, last):
            self._end(entry)
            self.handed_out.drop(entry)

    def _ended(self, partition: Partition, offset: int) -> None:
        if (entry := self.handed_out.find(partition, offset)) is not None:
            self._end(entry)
            self.handed_out.drop(entry)

    def _ended_below(self, returned: Mapping[Owner, int]) -> None:
        for owner, offset in returned.items():
            for entry in self.handed_out.below(owner.partition, offset, owner):
                self._end(entry)
                self.handed_out.drop(entry)

    def _end(self, entry: Entry) -> None:
        if entry.over:
            return  # the call that ended it was torn
        if not self.settling.waiting:
            self._mark_at = self.clock.now() + _MARK_S
            self._background_marks.wake()
        self.outcomes.handled += entry.count
        self.recorder.ended(entry, Outcome.HANDLED)
        self.settling.ended(entry)

    def _again(self, partition: Partition, offset: int) -> None:
        if (entry := self.handed_out.find(partition, offset)) is not None and self.handed_out.drop(entry):
            self._hand_out_again(entry)

    def _hand_out_again(self, entry: Entry) -> None:
        if entry.owner.is_owned:
            entry.gate = Gate.READY
            entry.started = 0
            self.lanes.put_back(entry)
        else:
            self._leave_to_others(entry)

    def _leave_to_others(self, entry: Entry) -> None:
        entry.gate = Gate.GONE
        self.outcomes.leave_to_others(entry)

    # ---- after a call that was torn
    def _came_through(self) -> None:
        if self.done_when != "next_poll":
            for entry in self._giving:
                self._returned[entry.owner] = entry.records[-1].offset + 1
            if len(self._returned) > 2 * len(self.family.owners) + 8:
                self._returned = {one: at for one, at in self._returned.items() if self.handed_out.has(one)}
        self._writing = False
        self._giving.clear()  # last of all: from here on the loop has it

    def _take_out_of_hand(self) -> None:
        """Take back what a torn call was about to hand out: it did not reach the loop, and may not count as done by its
        next call."""
        if self._quick and self._cursor is not None:
            self._cursor.undo()
        for entry in self._giving:
            self._positions[entry.record.partition] = entry.record.offset
            if self._cursor is not None and self._cursor.has(entry):
                self._cursor = None
            if self.handed_out.drop(entry):
                self._hand_out_again(entry)
        self._giving.clear()
        self._quick = False

    def _mend(self) -> None:
        """The client gives again what is in no book. Where books were torn, all partitions are taken over anew."""
        if not (self._torn or self.family.ours.moving):
            self.family.ours.read_again()
            self._unread = False
            return
        self._take_back()
        owners = list(self.family.owners.values())
        self.family.ours.begin_anew()
        kept = {*self.handed_out, *self.settling.recount()}
        for owner in owners:
            for entry in [entry for entry in owner.entries.values() if entry not in kept]:
                self._leave_to_others(entry)
        self.lanes.clear()
        self.intake.recount(kept)
        self._torn = self._unread = self.family.ours.moving = False
