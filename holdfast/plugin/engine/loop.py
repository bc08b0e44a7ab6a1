"""START HERE: the loop of one app. One thread runs it, owns the client, and decides; workers only call handlers.

    turn = poll > take in > collect > settle and claim > dispatch > tend

What the engine is made of is in `parts.py`; what differs between the two families of source is behind `family.py`. How
an app begins and ends: `lifecycle.py`. A rebalance happens inside `poll`: `partition/partitions.py` has its whole path.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from holdfast.plugin.engine.lifecycle import Lifecycle
from holdfast.plugin.engine.parts import make_parts
from holdfast.plugin.engine.record.dispatch import Dispatch
from holdfast.plugin.engine.snapshots import Snapshots
from holdfast.plugin.engine.steps import LATE_S, Steps
from holdfast.plugin.ports import NOTHING
from holdfast.runtime import MACHINE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from holdfast.dedup.claims import ClaimStore
    from holdfast.plugin.audit.settings import Audit
    from holdfast.plugin.engine.family import Family
    from holdfast.plugin.engine.parts import Parts
    from holdfast.plugin.engine.record.calling import Around
    from holdfast.plugin.engine.record.coroutines import Home
    from holdfast.plugin.engine.record.letter_hooks import LetterHook
    from holdfast.plugin.engine.resources import Resources
    from holdfast.plugin.handlers import Routes
    from holdfast.plugin.ports import Batch, DeadLetters, Observer
    from holdfast.plugin.settings import Settings
    from holdfast.records import Partition
    from holdfast.runtime import Runtime
    from holdfast.timing import Deadline

#: The longest a poll blocks while nothing is in the process. A signal is seen within that time.
_IDLE_S = 0.1


class Engine:
    """The turn that moves the parts. One thread runs it; `stop` and `subscribe` may come from any.

    Args:
        family: makes what differs between the kinds of source, of the parts and of this loop.
    """

    def __init__(
        self,
        *,
        family: Callable[[Parts, Engine], Family],
        store: ClaimStore,
        routes: Routes,
        settings: Settings,
        letters: DeadLetters | None,
        observers: Sequence[Observer],
        group: str,
        audit: Audit | None = None,
        runtime: Runtime = MACHINE,
        home: Home | None = None,
        around: Around | None = None,
        letter_hooks: Sequence[LetterHook] = (),
        resources: Resources | None = None,
    ) -> None:
        self.parts = parts = make_parts(
            store=store,
            routes=routes,
            settings=settings,
            letters=letters,
            observers=observers,
            group=group,
            audit=audit,
            runtime=runtime,
            home=home,
            around=around,
            letter_hooks=letter_hooks,
        )
        self.family = family(parts, self)
        parts.bind(self.family)
        self.snapshots = Snapshots(parts, self.family.figures)
        self._steps = Steps(parts, self.family)
        self._dispatch = Dispatch(
            lanes=parts.lanes,
            unacked=parts.unacked,
            workers=parts.workers,
            timers=parts.timers,
            clock=runtime,
            recorder=parts.recorder,
            collect=self.collect,
            stalled=lambda: parts.sessions.stalled,
            intake=parts.intake,
            turn_s=LATE_S,
        )
        self._lifecycle = Lifecycle(parts, self.family, self.snapshots, self, resources)
        #: The newest requested subscription. A deque of one, so that a concurrent request is never dropped.
        self._new_topics: deque[Collection[str]] = deque(maxlen=1)

    # ---- an app's life
    def run(self) -> None:
        """Consume until `stop()`, then drain and leave. Raises what stopped it otherwise."""
        life, stopping = self._lifecycle, self.parts.stopping
        try:
            routes = self.parts.routes
            if life.open([*routes.topics, *routes.retry_topics.steps]):
                while not stopping.begun:
                    self.turn()
                life.leave()
        except Exception as error:  # noqa: BLE001 - raised below, after the client was closed
            stopping.fail(error)
        except BaseException as error:  # of a resource or an observer: a SystemExit, a panic of a library in Rust
            stopping.fail(error)
            raise
        finally:
            life.close()
        if stopping.error is not None:
            raise stopping.error

    def stop(self, *, leave: bool = False, why: str = "stop()") -> None:
        """See `Stopping.stop`. Any thread, and any signal handler."""
        self.parts.stopping.stop(leave=leave, why=why)

    def subscribe(self, topics: Collection[str]) -> None:
        """Change the subscription in a turn to come. Any thread."""
        self._new_topics.append(tuple(topics))

    # ---- a turn
    def turn(self) -> None:
        """One round: the whole way of records, once."""
        try:
            self._steps.take_in(self._poll())
            self._catch_up()
            self.work()
            self._resubscribe()
            self.family.tend()
        except Exception as error:  # noqa: BLE001 - leaving in good order comes first; run() raises it
            self.parts.stopping.fail(error)

    def work(self) -> None:
        """A turn without the client: also what goes on inside a rebalance, for the partitions that stay."""
        parts, steps = self.parts, self._steps
        steps.vouch()
        self.collect()
        if steps.more_to_say:
            self._let_handlers_end(min(steps.trip_s, LATE_S))
        steps.exchange()
        self._dispatch.step()
        parts.workers.begin_coroutines()
        parts.timers.run_due()
        parts.hung.step()
        parts.blocked_loop.step()
        parts.letter_hooks.step()
        parts.sessions.tend()
        if self.snapshots.wanted:
            self.snapshots.publish()

    def _poll(self) -> Batch:
        parts = self.parts
        stalled = parts.sessions.stalled
        room = parts.intake.room(stopped=stalled)
        busy = not parts.intake.idle or bool(parts.owed) or stalled
        if not room:
            self._wait()
            return NOTHING
        batch = self._steps.ask(room, 0.0 if busy else parts.timers.next_s(_IDLE_S))
        if busy and not batch.records:
            self._wait()
        return batch

    def _catch_up(self) -> None:
        """Poll on for partitions that may stand at the client behind another's backlog: a turn may take as long as a
        handler."""
        intake, clock = self.parts.intake, self.parts.runtime
        if intake.is_behind() and not self.parts.sessions.stalled:
            until = clock.now() + LATE_S
            while intake.is_behind() and clock.now() < until:
                self._steps.take_in(self._steps.ask(self.parts.settings.poll_batch, 0.0))

    def _wait(self) -> None:
        """Until something ends or comes due, at most for as long as a mark or a record may be late."""
        if not self._steps.more_to_say:
            self.parts.workers.wake.wait(self.parts.timers.next_s(min(LATE_S, self._steps.left_s)))

    def collect(self) -> None:
        """Take what the workers have ended."""
        parts = self.parts
        workers, hung, outcomes = parts.workers, parts.hung, parts.outcomes
        ended = workers.ended()
        while ended:
            try:
                each = ended.popleft()
                counts = hung.came_back(each) if hung.known else each
                if counts is not None:
                    outcomes.came_back(counts)
            except BaseException:
                workers.put_back(ended)  # the others have ended all the same
                raise
        outcomes.tell_failures()
        parts.meter.took(workers.timings())
        outcomes.taken_back(workers.overdue())

    def _let_handlers_end(self, at_most_s: float) -> None:
        """Delay a round trip that carries only marks by at most its own duration, so that finished records join it.
        Otherwise a distant store gets every second call with marks alone."""
        workers, clock = self.parts.workers, self.parts.runtime
        until = clock.now() + at_most_s
        while workers.busy and (left_s := until - clock.now()) > 0:
            workers.wake.wait(left_s)
            self.collect()

    def _resubscribe(self) -> None:
        if self._new_topics:
            self.family.subscribe(self._new_topics.popleft())

    # ---- for the family: see `family.Loop`
    @property
    def starts_inside(self) -> bool:
        """Records start meanwhile."""
        return True

    def settle(self) -> None:
        """Finish and mark what has ended."""
        self._steps.settle()

    def work_until(self, over: Callable[[], bool], deadline: Deadline) -> None:
        """Work until `over()` or the deadline: a drain inside a rebalance."""
        while not over() and not deadline.passed and not self.parts.stopping.hurry:
            if not self._steps.more_to_say:
                self.parts.workers.wake.wait(min(LATE_S, deadline.left_s()))
            self._steps.take_in(NOTHING)  # what was polled before, of partitions that stay
            self.work()

    def on_revoke(self, partitions: Collection[Partition]) -> None:
        """Nothing to do: workers end what they have begun."""

    def done_elsewhere(self, partition: Partition, offset: int) -> None:
        """Nothing to do, as above."""

    # ---- for its end: see `lifecycle.Turning`
    @property
    def unfinished(self) -> bool:
        """Whether handlers run, results wait to be looked at or acknowledged, or something is owed to the store."""
        parts = self.parts
        return bool(parts.workers.busy or parts.settling.waiting or parts.owed or parts.hung.owes_letters)

    @property
    def with_handlers(self) -> int:
        """Records that have started and not ended."""
        return self.parts.lanes.taken + self.parts.hung.stuck
