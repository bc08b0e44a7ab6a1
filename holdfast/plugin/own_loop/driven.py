"""START HERE: the engine driven by the user's own loop. It hands records out, and the loop reports their outcome.

    take = handed out records count as done > poll > take in > settle > claim > tend > hand out

Parts and steps of a turn are those of `loop.py`. In place of the workers there is the loop that calls `take`;
`user_loop.py` has the records that the loop has.

The thread belongs to the application: a signal handler may raise (KeyboardInterrupt) between any two lines here, and
the loop may go on. Therefore each call runs inside of `whole`, and the calls that follow repair a call that was *torn*,
that is, broken off in the middle.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError
from holdfast.plugin.engine.lifecycle import Lifecycle
from holdfast.plugin.engine.partition.partitioned import Partitioned
from holdfast.plugin.engine.parts import make_parts
from holdfast.plugin.engine.snapshots import Snapshots
from holdfast.plugin.engine.steps import Steps
from holdfast.plugin.own_loop.background_marks import BackgroundMarks
from holdfast.plugin.own_loop.lending import Lending
from holdfast.plugin.own_loop.moves import Moves
from holdfast.plugin.own_loop.user_loop import MARK_S, UserLoop
from holdfast.plugin.ports import NOTHING
from holdfast.runtime import MACHINE
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from holdfast.dedup.claims import ClaimStore
    from holdfast.plugin.audit.settings import Audit
    from holdfast.plugin.handlers import Routes
    from holdfast.plugin.observe.snapshot import Snapshot
    from holdfast.plugin.own_loop.user_loop import DoneWhen
    from holdfast.plugin.ports import Batch, Observer, PartitionedSource
    from holdfast.plugin.settings import Settings
    from holdfast.records import Partition, Record
    from holdfast.runtime import Runtime, Thread

#: The longest time that one poll of the client blocks.
_IDLE_S = 0.1
#: A loop that takes one record at a time gets records that were fetched together, for this long and this many. Then the
#: client is polled again, for rebalances and for max.poll.interval.ms.
_AHEAD, _AHEAD_S = 256, 0.02
#: How long one call may go on to empty the client's queue for partitions that stand there behind another's backlog.
_CATCH_UP_S = 0.1


class Driven:
    """One app whose handler is the user's loop. `lock` guards everything; only `end`, `end_returned` and `again` need
    no lock.

    Args:
        done_when: see `DoneWhen`.
    """

    def __init__(
        self,
        source: PartitionedSource,
        *,
        done_when: DoneWhen,
        store: ClaimStore,
        routes: Routes,
        settings: Settings,
        observers: Sequence[Observer],
        audit: Audit | None = None,
        runtime: Runtime = MACHINE,
    ) -> None:
        self.parts = parts = make_parts(
            store=store,
            routes=routes,
            # The loop gets a partition's records in their order, so that is one lane.
            settings=replace(settings, ordering="partition"),
            letters=None,
            observers=observers,
            group=source.group,
            audit=audit,
            runtime=runtime,
        )
        self.family = Partitioned(parts, self, source)
        parts.bind(self.family)
        self.snapshots = Snapshots(parts, self.family.figures)
        self._steps = Steps(parts, self.family)
        self._lifecycle = Lifecycle(parts, self.family, self.snapshots, self)
        self._clock = runtime
        self.lock = runtime.rlock()
        self._background_marks = BackgroundMarks(
            mark=self.mark_in_background,
            lock=self.lock,
            late_s=MARK_S,
            fail=parts.stopping.fail,
            group=parts.group,
            runtime=runtime,
        )
        #: The records that the loop has.
        self.user = UserLoop(parts, done_when, self._background_marks.wake)
        self._lending = Lending(
            self.user.handed_out,
            parts.intake,
            settings,
            explicit=done_when == "explicit",
            clock=runtime,
            tell=parts.tell,
        )
        self.moves = Moves(parts, self.family.partitions, self.user, self.settle)
        #: Reports about records, from any thread, which `collect` applies.
        self._reports: deque[Callable[[], None]] = deque()
        #: The loop's thread, as of its last call.
        self._driver: Thread | None = None
        #: Other threads than the loop's have reported ends.
        self._other_threads_end = False
        #: The loop is inside of a call.
        self._inside = False
        #: State is being changed; still True when the next call comes, if a signal handler has torn this one.
        self._changing = False
        #: A call was torn while state was changed.
        self._torn = False
        #: The client was polled, and its records are not taken in yet.
        self._unread = False
        #: When to poll the client again, even if enough records are ready. 0: it was never polled.
        self._poll_at = 0.0
        #: (records, bytes) in hand at the last look at the offsets of the loop's transactions.
        self._looked_at = (0, 0)
        #: Whether the loop must get something else than records first.
        self.interrupted: Callable[[], bool] = lambda: False

    @property
    def done_when(self) -> DoneWhen:
        """See `DoneWhen`."""
        return self.user.done_when

    @property
    def inside(self) -> bool:
        """Whether a call of the loop is under way. Any thread."""
        return self._inside

    # ---- the loop's calls, under `lock`, each inside of `whole`
    @contextmanager
    def whole(self) -> Iterator[None]:
        """Wrap a call of the loop. An Exception is raised where the state is consistent. Any other BaseException comes
        from a signal handler and may strike anywhere: then the records that the call was about to return were not
        handed out."""
        outer, through = self._inside, False
        try:
            try:
                if not outer:
                    self._inside = True
                    self._torn = self._torn or self._changing
                    self.user.take_out_of_hand()
                    self._changing = True
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
            # The signal may have struck in the `finally`. Without this, later calls would count as nested in this one,
            # and repair nothing.
            self._inside = outer
            raise

    def begin(self, topics: Collection[str]) -> None:
        """Connect to the store and join the group. Raises StoreError, SourceError."""
        self._driver = self.parts.runtime.current()
        self._lifecycle.open(topics)
        self._background_marks.start()

    def take(self, at_most: int, timeout_s: float) -> Sequence[Record]:
        """Return up to `at_most` records; waits until there are as many, at most `timeout_s`. Raises the error that
        stopped the app.

        With "next_poll", all records handed out before count as done.
        """
        parts = self.parts
        self._driver = parts.runtime.current()
        if self.done_when == "next_poll":
            self.end_all()
        elif self._reports:  # records that were given back come before later ones
            self.collect()
        if self._torn or self._unread or self.family.partitions.moving:
            self._mend()
        if self.moves.pending:
            self.moves.make()
        if self.done_when == "explicit":
            at_most = min(at_most, parts.settings.max_in_flight)
        ready = self._ready(at_most)
        if ready < at_most or self._clock.now() >= self._poll_at:
            deadline = Deadline(timeout_s, self._clock)
            # While records wait for their turn, those that are ready are of a backlog: others may stand at the client.
            ahead = _AHEAD if at_most == 1 or parts.intake.waiting.records else 1
            self._look(at_most, ready, deadline, ahead=ahead, wait=not ready)
            while (ready := self._ready(at_most)) < at_most and not deadline.passed and self._more_may_come(ready):
                self._look(at_most, ready, deadline)
        elif self.user.marks_due:
            self.settle()
        if parts.stopping.error is not None:
            raise parts.stopping.error
        return [] if parts.sessions.stalled else self.user.give(at_most, self._poll_at)

    def take_quick(self) -> Record | None:
        """Return the next record of a run that was fetched together. It does what `take(1, ...)` would do with
        "next_poll" while no other work is due. None: other work is due; call `take`.
        """
        return None if self._reports or self._changing else self.user.quick()

    def mark_in_background(self) -> None:
        """Mark ended records while the loop is busy with those that it got last."""
        was_torn = self._changing or self.user.gives_quickly  # then the next call must repair the state first
        if not was_torn:
            self.collect()
            self.settle()
            self._publish()

    def end_all(self) -> None:
        """End all records handed out, except those that were reported otherwise."""
        self.collect()
        self.user.ended_all()

    def end_below(self, partition: Partition, offset: int) -> None:
        """End all records of the partition below the offset, except those that were reported otherwise."""
        self.collect()
        self.user.ended_below(partition, offset)

    def dismiss(self, partitions: Collection[Partition]) -> None:
        """Take these partitions' records away from the loop: their next owners handle them."""
        self.collect()
        self.user.dismiss(partitions)

    def read_from(self, partition: Partition, offset: int) -> None:
        """Read on from this offset: see `Moves`."""
        self.collect()
        self.moves.to(partition, offset)

    def end_of_loop(self) -> None:
        """Leave the group and close. Records that the loop has not ended are handed back; with "explicit", if other
        threads end records, it waits for them. Raises nothing."""
        stopping = self.parts.stopping
        stopping.stop(why="close()")
        self._background_marks.stop()
        try:
            if self.done_when != "explicit" or not self._other_threads_end:
                self.dismiss({entry.owner.partition for entry in self.user.handed_out})
            if self.parts.sessions.session is not None:
                self._lifecycle.leave()
        except Exception as error:  # noqa: BLE001 - the client is closed in any case
            stopping.fail(error)
        finally:
            self._lifecycle.close()

    # ---- any thread
    def snapshot(self) -> Snapshot:
        """The current figures, taken by the loop's thread while it is inside of a call, else by the marking thread. If
        neither does within a second, the previous figures."""
        if self.parts.runtime.current() == self._driver:
            with self.lock:
                return self.snapshots.take()
        return self.snapshots.snapshot(self._background_marks.wake)

    @property
    def away_s(self) -> float:
        """Seconds since the loop's last call, at least; 0 while it is inside of a call, or before the first."""
        away = self._poll_at and not self._inside and not self.parts.stopping.begun
        return max(self._clock.now() - self._poll_at, 0.0) if away else 0.0

    # ---- any thread, without the lock: a callback of the group may wait for the thread that calls
    def end(self, partition: Partition, offset: int) -> None:
        """Report that a record is done. Nothing happens if the loop does not have it (any more)."""
        self._tell_driver(lambda: self.user.ended(partition, offset))

    def end_returned(self) -> None:
        """Report that all records returned by now are done, except those that were reported otherwise."""
        returned = self.user.returned
        self._tell_driver(lambda: self.user.ended_returned(returned))

    def again(self, partition: Partition, offset: int) -> None:
        """Report that a record was not done: it is handed out again if its partition is still owned."""
        self._tell_driver(lambda: self.user.again(partition, offset))

    def _tell_driver(self, what: Callable[[], None]) -> None:
        self._other_threads_end = self._other_threads_end or self.parts.runtime.current() != self._driver
        self._reports.append(what)
        self.parts.workers.wake.set()
        self._background_marks.wake()

    # ---- for the family: see `family.Loop`
    def collect(self) -> None:
        """Apply reports about records."""
        self.user.take_back()
        self.parts.workers.wake.clear()
        while self._reports:
            self._reports[0]()
            self._reports.popleft()

    @property
    def starts_inside(self) -> bool:
        """False: no record starts meanwhile, since the thread that would request one waits."""
        return False

    def settle(self) -> None:
        """Finish and mark ended records."""
        self._steps.settle()

    def work_until(self, over: Callable[[], bool], deadline: Deadline) -> None:
        """Work until `over()` or the deadline, if other threads end records. Records that only this thread could end
        are not waited for: it is here."""
        parts = self.parts
        while not over() and self._other_threads_end and not deadline.passed and not parts.stopping.hurry:
            parts.workers.wake.wait(min(MARK_S, deadline.left_s()))
            self.work()

    def on_revoke(self, partitions: Collection[Partition]) -> None:
        """Dismiss unfinished records of partitions that are about to be revoked, except with "explicit"."""
        if self.done_when != "explicit":
            self.dismiss(partitions)
        self.user.forget(partitions)

    def done_elsewhere(self, partition: Partition, offset: int) -> None:
        """End the loop's records below an offset that another program has committed, as a rule the loop's own
        transaction."""
        self.end_below(partition, offset)

    # ---- for its end: see `lifecycle.Turning`
    def work(self) -> None:
        """A turn without the client."""
        steps = self._steps
        steps.vouch()
        self.collect()
        if self.user.marks_due:
            steps.settle()
        steps.claim()
        self.parts.timers.run_due()
        self.parts.sessions.tend()
        self._publish()

    @property
    def unfinished(self) -> bool:
        """Whether the loop has records, results wait for the store's acknowledgement, or releases are owed."""
        return bool(self.user.handed_out or self._reports or self.parts.settling.waiting or self.parts.owed)

    @property
    def with_handlers(self) -> int:
        """The number of records that the loop has."""
        return sum(entry.count for entry in self.user.handed_out)

    # ---- inside
    def _publish(self) -> None:
        """Take the figures if another thread waits for them."""
        if self.snapshots.wanted:
            self.snapshots.publish()

    def _look(self, wanted: int, ready: int, deadline: Deadline, *, ahead: int = 1, wait: bool = True) -> None:
        """Poll the client once, and do the steps that follow. An error that stops the engine is raised by this and all
        later calls: no record behind a gap in the log, for example, is handed out, however often the loop polls.

        Args:
            wanted: the number of records that the loop requests.
            ready: how many of them are ready.
            deadline: until when to wait.
            ahead: the least number of records to poll for.
            wait: whether to wait for records.
        """
        parts = self.parts
        try:
            wait_s = self._wait_s(deadline) if wait else 0.0
            self._look_elsewhere()
            self._lending.look(ready, parts.lanes.ready_bytes(ready) if ready and wanted > 1 else 0)  # one is too few
            if room := parts.intake.room(stopped=parts.sessions.stalled):
                batch = self._poll_client(min(room, max(wanted - ready, ahead)), wait_s)
            else:
                parts.workers.wake.wait(min(wait_s, MARK_S))
                batch = NOTHING
            self._poll_at = self._clock.now() + _AHEAD_S
            self._steps.take_in(batch)
            self._unread = False
            until = self._clock.now() + _CATCH_UP_S
            while parts.intake.is_behind() and self._clock.now() < until:
                # Partitions may stand at the client behind the backlog of another, which waits here instead.
                self._steps.take_in(self._poll_client(parts.settings.poll_batch, 0.0))
                self._unread = False
            self.work()
            self.family.tend()
            if self.moves.pending:
                self.moves.make()
        except Exception as error:
            if self._unread and not self._changing and not isinstance(error, HoldfastError):
                raise  # not holdfast's, and raised in the poll: a signal handler's, after which the loop may go on
            self._unread = False
            parts.stopping.fail(error)  # raised by `take`, now and from now on

    def _look_elsewhere(self) -> None:
        """Read the offsets that the loop's own transactions commit, each time that as many records have come as may be
        in the process: only these offsets show which of the loop's records are done."""
        in_hand, settings = self.user.handed_out, self.parts.settings
        if self.family.partitions.commits.others_commit:
            records, size = self._looked_at = min(self._looked_at, (in_hand.records, in_hand.bytes))
            more = in_hand.records - records, in_hand.bytes - size
            if more[0] >= settings.max_in_flight or more[1] >= settings.max_in_flight_bytes:
                self.family.look_elsewhere()
                self._looked_at = in_hand.records, in_hand.bytes

    def _poll_client(self, at_most: int, wait_s: float) -> Batch:
        """Poll the client. A signal (Ctrl-C, a job's time limit) nearly always strikes here: then the client must
        return the same records again, and no other state was torn."""
        self._unread = True
        self._changing = False
        batch = self._steps.ask(at_most, wait_s)
        self._changing = True
        return batch

    def _wait_s(self, deadline: Deadline) -> float:
        """How long to wait in the client. Short while other work is under way; also if a partition was paused for lack
        of room, and may go on because the loop has just taken its record."""
        parts = self.parts
        busy = self._reports or parts.settling.waiting or parts.owed or parts.sessions.stalled or parts.claiming.wanted
        busy = busy or parts.intake.waiting.records > 0 or parts.intake.tight
        awaited = self._other_threads_end and self.user.handed_out
        return parts.timers.next_s(deadline.left_s(MARK_S if busy or awaited else _IDLE_S))

    def _ready(self, at_most: int) -> int:
        """The number of records that may be handed out now, at most `at_most`."""
        return 0 if self.parts.sessions.stalled else self.parts.lanes.ready_records(at_most)

    def _more_may_come(self, ready: int) -> bool:
        """Whether to wait for more than the ready records. Not if the intake is tight: then a partition gets its next
        record when this one is taken (`Intake.room`)."""
        return self._calm and not (ready and self.parts.intake.tight)

    @property
    def _calm(self) -> bool:
        """Whether there is no error and no other message for the loop."""
        return self.parts.stopping.error is None and not self.interrupted()

    # ---- after a call that was torn
    def _came_through(self) -> None:
        self.user.note_returned()
        self._changing = False
        self.user.came_through()  # last of all

    def _mend(self) -> None:
        """Repair after a torn call: the client returns unread records again. If state was torn, all partitions are
        taken over again."""
        parts, ours = self.parts, self.family.partitions
        if not (self._torn or ours.moving):
            ours.read_again()
            self._unread = False
            return
        self.user.take_back()
        owners = list(self.family.owners.values())
        ours.begin_anew()
        kept = {*self.user.handed_out, *parts.settling.recount()}
        for owner in owners:
            for entry in [entry for entry in owner.entries.values() if entry not in kept]:
                self.user.leave_to_others(entry)
        parts.lanes.clear()
        parts.intake.recount(kept)
        self.user.handed_out.recount()
        self._torn = self._unread = ours.moving = False
