"""Client: stands between a member's engine and its source, and judges polls (P6), losses (P4) and reports (P9)."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.plugin.events import Overrun, RebalanceReport, SessionLost
from tests.simulation.brokers.rocketmq_commits import LAST_COMMIT_S
from tests.simulation.judging.spikes import Spikes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from holdfast.plugin.engine.loop import Engine
    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.events import Event
    from holdfast.plugin.own_loop.driven import Driven
    from holdfast.plugin.ports import Batch, DeadLetters, RebalanceListener, Start
    from holdfast.records import Fence, Partition, Record
    from holdfast.timing import Deadline
    from tests.simulation.playing.book import Run
    from tests.simulation.playing.stage import Actor

#: A loop that is not held up polls again within this time, plus so many timeouts of the store where that may be slow.
_AWAY_S, _AWAY_CALLS = 1.0, 8
#: Inside the callback of an assignment, a takeover may wait so long for the broker; all else takes at most so long.
_LOOK_S, _TOLD_S = 3.0, 0.25
#: Records that have ended by the end of a drain are still marked; each call of the store takes so long.
_MARK_S = 0.003
#: A poll, or a turn, takes less than this by itself.
_TURN_S = 0.2


class Client:
    """A source with the world's judges. Attributes that it lacks are the source's own."""

    def __init__(self, member: Actor, source: Any) -> None:
        self.member, self._source = member, source
        self.reports = Reports(member)
        ramp = member.stage.world.settings.ramp
        self._spikes = None if ramp is None else Spikes(member.stage, member.process, ramp)
        #: Lost partitions that were not assigned again.
        self._lost: set[Partition] = set()
        #: The sender of dead letters, for apps with retry topics.
        self.dead_letters: Callable[[], DeadLetters] | None = None
        #: Whether a poll runs, and since when it does or does not; inf before it has joined.
        self._polling, self._since = False, math.inf

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    # ---- for the engine
    @property
    def group(self) -> str:
        """Implements `RetryTopicsSource.group`."""
        return str(self._source.group)

    def reads_all_of(self, topics: Collection[str]) -> None:
        """Implements `RetryTopicsSource.reads_all_of`."""
        self._source.reads_all_of(topics)

    def open(
        self,
        topics: Collection[str],
        listener: RebalanceListener,
        owners: Mapping[Partition, Fence],
        deadline: Deadline,
    ) -> None:
        """Implements `PartitionedSource.open`."""
        self._source.open(topics, _Listener(self, listener), owners, deadline)
        self._since = self.member.stage.now

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Implements `PartitionedSource.poll`."""
        self._polling, self._since = True, self.member.stage.now
        try:
            batch: Batch = self._source.poll(max_records, timeout_s)
        finally:
            self._polling, self._since = False, self.member.stage.now
        self.reports.delivered(batch.records)
        for record in batch.records:
            self.member.stage.placed(record).delivered_at = self.member.stage.now
        if self._spikes is not None:
            self._spikes.delivered(batch.records)
        return batch

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Implements `PartitionedSource.commit`."""
        self._judge_commit(offsets)
        self._source.commit(offsets)

    def set_back(self, partition: Partition, offset: int) -> None:
        """Implements `PartitionedSource.set_back`."""
        self._judge_commit([partition])
        self._source.set_back(partition, offset)

    def _judge_commit(self, partitions: Iterable[Partition]) -> None:
        if gone := sorted(self._lost.intersection(partitions)):
            self._broken("COMMIT", f"{self.member.name} commits for {gone[0]}, which it has lost")

    # ---- for the judges
    @property
    def held(self) -> bool:
        """Whether the member's loop waits for an answer of the store or, in a poll, of the broker."""
        return self.member.stage.now - self._since > _TURN_S

    def look(self, engine: Engine | Driven) -> None:
        """Judge the intake after an assignment."""
        if self._spikes is not None:
            self._spikes.look(self.member.name, getattr(engine.family, "owners", {}))

    def judge_polls(self) -> None:
        """P6: the client of a member that is in order is polled, whatever handlers do."""
        if not self._polling:
            self._judge("has not polled", self._since, _AWAY_S)

    def assigned(self, listener: RebalanceListener, partitions: Sequence[Partition]) -> Mapping[Partition, Start]:
        """Tell the engine that these partitions are assigned."""
        self._lost.difference_update(partitions)
        if self._spikes is not None:
            self._spikes.assigned(partitions)
        with self._telling(_LOOK_S), self.reports.coming(partitions):
            return listener.assigned(partitions)

    def revoked(self, listener: RebalanceListener, partitions: Sequence[Partition]) -> None:
        """Tell the engine that these partitions are revoked."""
        world = self.member.stage.world
        settings = world.settings
        at_once = settings.async_workers if any("async" in each.kind for each in world.handlers) else settings.workers
        marks = at_once / settings.mark_batch
        # A queue is given up when its last commit is answered, which may wait for a commit under way: two round trips.
        late_s = max((each.amount for each in world.faults if each.kind == "late"), default=0.0)
        answer_s = min(LAST_COMMIT_S, 4 * late_s) if world.broker == "queues" else 0.0
        at_most_s = settings.drain_s + marks * _MARK_S + answer_s
        since = self.member.stage.now
        with self._telling(at_most_s), self.reports.going("revoked", partitions):
            listener.revoked(partitions)
        if self._spikes is not None:
            self._spikes.drained(self.member.stage.now - since)

    def lost(self, listener: RebalanceListener, partitions: Sequence[Partition]) -> None:
        """Tell the engine that these partitions are lost."""
        self._lost.update(partitions)
        self.member.thrown_out()  # it may learn of it late, if its store has not answered for a while
        with self._telling(0.0), self.reports.going("lost", partitions):
            listener.lost(partitions)

    @contextmanager
    def _telling(self, at_most_s: float) -> Iterator[None]:
        """P6 in a rebalance: handlers that outlive the drain do not hold it up."""
        since = self.member.stage.now
        yield
        self._judge("has held a rebalance up", since, at_most_s + _TOLD_S)

    def _judge(self, what: str, since: float, at_most_s: float) -> None:
        stage = self.member.stage
        if not stage.world.settings.workers or self.member.interrupted:
            return  # handlers in the loop's own thread are the user's choice; after Ctrl-C no time is promised
        if stage.judges.away:
            at_most_s += _AWAY_CALLS * stage.world.store_timeout_s
        took_s = stage.now - max(since, self.member.process.stalled_until - stage.began_at)
        if took_s > at_most_s:
            self._broken("AWAY", f"{self.member.name} {what} for {took_s:.2f} s")

    def _broken(self, rule: str, what: str) -> None:
        self.member.stage.judges.broken(rule, what)


class _Listener:
    """The engine, as its source sees it."""

    def __init__(self, client: Client, listener: RebalanceListener) -> None:
        self._client, self._listener = client, listener

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listener, name)

    def assigned(self, partitions: Sequence[Partition]) -> Mapping[Partition, Start]:
        """Implements `RebalanceListener.assigned`."""
        return self._client.assigned(self._listener, partitions)

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Implements `RebalanceListener.revoked`."""
        self._client.revoked(self._listener, partitions)

    def lost(self, partitions: Sequence[Partition]) -> None:
        """Implements `RebalanceListener.lost`."""
        self._client.lost(self._listener, partitions)

    def reset(self, partition: Partition, offset: int, *, cut: bool) -> None:
        """Implements `RebalanceListener.reset`."""
        try:
            self._listener.reset(partition, offset, cut=cut)
        except BaseException:
            # RocketMQ tells of a reset once. A member that is interrupted while it acts on it loses the reset.
            stage = self._client.member.stage
            stage.judges.unwanted(stage.log(partition), offset)
            raise


class Reports:
    """P9: each assignment, revocation and loss has one report, and its figures are the book's."""

    def __init__(self, member: Actor) -> None:
        self._member = member
        #: (assigned partitions, whether a report must follow).
        self._came: list[tuple[tuple[Partition, ...], bool]] = []
        #: Reports since partitions began to go.
        self._reports: list[RebalanceReport] = []
        self._overran: Counter[Partition] = Counter()
        #: Runs that outlived their ownership.
        self._outlived: list[Run] = []
        #: Partitions of lost sessions, of which a report must follow.
        self._lost: list[tuple[Partition, ...]] = []
        #: Numbers of records: delivered, started, reported as duplicates, left.
        self._polled = self._run = self._duplicates = self._left = 0
        self._waiting: set[tuple[Partition, int]] = set()

    def delivered(self, records: Sequence[Record]) -> None:
        """Note the records that a poll has returned."""
        self._polled += len(records)
        self._waiting.update((record.partition, record.offset) for record in records)

    def started(self, records: Sequence[Record]) -> None:
        """Note that a handler was called with these records."""
        places = {(record.partition, record.offset) for record in records}
        self._run += len(places & self._waiting)
        self._waiting -= places

    def told(self, event: Event) -> None:
        """Judge an event of the engine."""
        if isinstance(event, Overrun):
            self._overran[event.partition] += 1
        if isinstance(event, SessionLost) and (had := tuple(sorted(self._owners()))):
            self._lost.append(had)
        if not isinstance(event, RebalanceReport):
            return
        self._reports.append(event)
        self._left += event.trigger == "leave"
        self._duplicates += event.duplicates_suppressed
        # A record that has run may be reported as a duplicate: the store lost our claim, and another member had the
        # key.
        forgotten = self._member.stage.judges.forgotten
        if self._duplicates > self._polled - self._run and not forgotten:
            self._broken(
                f"{self._duplicates} duplicates are reported; {self._polled} records came, {self._run} of them have run"
            )
        if event.trigger == "session lost" and (not self._lost or self._lost.pop(0) != event.given):
            self._broken(f"a report of a lost session that had {_names(event.given)}; there was none, or it had others")
        if event.trigger == "assigned":
            at = next((at for at, (came, _) in enumerate(self._came) if came == event.gained), None)
            if at is None:
                self._broken(f"a report of {_names(event.gained)} that came; none is to be made of it")
            else:
                del self._came[at]

    def ended(self) -> None:
        """The app has ended in good order."""
        engine = self._member.engine
        if engine is None or not engine.snapshots.ran or not engine.parts.stopping.asked:
            return
        missing = [partitions for partitions, needed in self._came if needed]
        if missing:
            self._broken(f"no report of {_names(missing[0])} that came")
        if self._lost:
            self._broken(f"no report of a lost session that had {_names(self._lost[0])}")
        if self._left != 1:
            self._broken(f"{self._left} reports of its leave")

    @contextmanager
    def coming(self, partitions: Sequence[Partition]) -> Iterator[None]:
        """Around the engine's callback of an assignment."""
        engine = self._member.engine
        came = tuple(sorted(partitions))
        self._came.append((came, False))
        yield
        needed = bool(came) and engine is not None and not engine.parts.stopping.begun
        self._came = [(each, needed or must) if each is came else (each, must) for each, must in self._came]

    @contextmanager
    def going(self, trigger: str, partitions: Sequence[Partition]) -> Iterator[None]:
        """Around the engine's callback of a revocation or a loss."""
        engine = self._member.engine
        owners = self._owners()
        had = {each: (owners[each].session, owners[each].epoch) for each in partitions if each in owners}
        before, overran = self._runs(had), self._overran.copy()
        self._reports.clear()
        yield
        run = self._runs(had)
        self._outlived += run
        if engine is None or engine.parts.stopping.error is not None:
            return
        found = [report for report in self._reports if report.trigger == trigger]
        if len(found) != bool(had):
            self._broken(f"{len(found)} reports of {_names(sorted(had))} that went ({trigger})")
            return
        for report in found:
            if report.given != tuple(sorted(had)):
                self._broken(f"a report of {_names(report.given)} that went, where {_names(sorted(had))} did")
            told = sum((self._overran - overran)[each] for each in had)
            if report.abandoned != told or report.abandoned < len(run):
                self._broken(
                    f"{report.abandoned} records are reported as abandoned; {told} were told of, {len(run)} run"
                )
            if report.drained < 0 or report.drained + report.abandoned < len(before):
                self._broken(
                    f"{report.drained} records are reported as drained and {report.abandoned} as abandoned; "
                    f"{len(before)} ran when {_names(sorted(had))} went"
                )

    # ---- inside
    def _owners(self) -> Mapping[Partition, Ownership]:
        engine = self._member.engine
        return {} if engine is None else getattr(engine.family, "owners", {})

    def _runs(self, had: Mapping[Partition, tuple[str, int]]) -> list[Run]:
        """The runs of these ownerships, without runs that outlived an earlier one: while the store gives no answer, all
        ownerships of an open session have epoch 0."""
        stage, member = self._member.stage, self._member.name
        return [
            run
            for partition, (session, epoch) in had.items()
            for run in stage.judges.in_log[stage.log(partition)]
            if (run.member, run.session, run.epoch) == (member, session, epoch) and not run.given_up
            if not any(run is each for each in self._outlived)
        ]

    def _broken(self, what: str) -> None:
        self._member.stage.judges.broken("REPORT", f"{self._member.name}: {what}")


def _names(partitions: Sequence[Partition]) -> str:
    return ", ".join(map(str, partitions)) or "nothing"
