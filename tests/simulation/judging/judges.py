"""Judges: hold the promises against what is seen from outside, after each step.

They are told facts, and ask a member for nothing but what it has in hand. The first fact that breaks a rule ends the
world. Rules are as tight as the promise: a repeat, for example, is judged record by record, and excused only if the
session that ran it first is dead and the store was never told of its end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.drawing.world import LEASED
from tests.simulation.judging.lost import Known, Lost
from tests.simulation.playing.book import Book, Lane, Placed, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from holdfast.records import Record
    from tests.simulation.drawing.world import FaultKind, World
    from tests.simulation.playing.book import LogName, Sight, Tx


#: A member learns within so long that the store has lost its state, whatever else happens to it.
_LEARNT_S = 6.0
#: Faults after which commits may arrive in another order than they were sent.
_OVERTAKING: frozenset[FaultKind] = frozenset({"late", "twice", "cut"})
#: Timestamps are in whole milliseconds.
_MS = 0.001
#: The least part of the drain's time that a handler is waited for, by any clock. With a push client half of that: in
#: the first half of a drain handlers still begin records that the client has begun to hand over.
_DRAIN = 0.9
#: The least wait for a handler where a partition that stays has no records left at its member.
_STARVING_S = 0.9


class Found(NamedTuple):
    """The finding of a judge."""

    #: The rule that is broken.
    rule: str
    what: str
    at_s: float


class Judges:
    """All rules that can be judged by events. `found` is the first that was broken."""

    def __init__(self, world: World, book: Book, sight: Sight, now: Callable[[], float]) -> None:
        self._settings, self._book, self._sight, self._now = world.settings, book, sight, now
        #: How many coroutines may run at once.
        self._coroutines = world.settings.async_workers if any("async" in each.kind for each in world.handlers) else 0
        self._loop = world.loop
        #: Whether a commit of a living member may reach the broker after a later one.
        seeks = self._loop is not None and self._loop.seeks > 0
        self._overtaken = seeks and any(each.kind in _OVERTAKING for each in world.faults)
        self._lease_s, self._leased = world.lease_s, world.broker in LEASED
        self._drain_s = _DRAIN * world.settings.drain_s / (2 if world.broker == "pushed" else 1)
        self.found: Found | None = None
        #: Acknowledged state that the store has lost; and its state right before.
        self._forgot: list[Lost] = []
        self._knew: Known | None = None
        #: Whether the store ever gave no answer: an open member is unprotected then. And until when members may act on
        #: that.
        self.unprotected, self._away_until = False, 0.0
        self.lost = set[str]()  # sessions that members report as lost
        self._unacked: dict[str, set[Run]] = defaultdict(set)
        self._checked: dict[LogName, int] = defaultdict(int)
        self._epochs: dict[LogName, tuple[int, str]] = {}
        #: Member -> handler -> records started, for judges that count what others did meanwhile.
        self.starts: dict[str, Counter[str]] = defaultdict(Counter)
        #: Member -> handler -> calls that run.
        self.running: dict[str, Counter[str]] = defaultdict(Counter)
        #: (member, log) -> when a record of it started last.
        self.started_at: dict[tuple[str, LogName], float] = {}
        self.repeats = 0
        #: Pieces of work of which a call has ended well.
        self.handled = 0
        #: Log -> offsets that a loop has sought over, records or not.
        self.sought_over: dict[LogName, list[range]] = {}
        #: The last run of each record at each member.
        self._last: dict[tuple[str, Placed], Run] = {}
        #: Log -> runs that have not ended.
        self.in_log: dict[LogName, list[Run]] = defaultdict(list)

    def broken(self, rule: str, what: str) -> None:
        """Note that a rule is broken. Only the first counts, since others may follow from it."""
        if self.found is None:
            self.found = Found(rule, what, self._now())

    # ---- handlers
    def started(
        self,
        member: str,
        session: str,
        epoch: int,
        records: Sequence[Placed],
        *,
        blind: bool = False,
        tx: Tx | None = None,
    ) -> list[Run]:
        """A handler was called with these records. `blind`: the member takes their log for the one before it. `tx`: its
        transaction."""
        now = self._now()
        runs = [
            Run(
                each,
                member,
                session,
                now,
                now if each.delivered_at is None else each.delivered_at,
                epoch,
                blind=blind,
                tx=tx,
            )
            for each in records
        ]
        for run in runs:  # a batch may have records of a deleted log and of the log in its place
            self.in_log[run.record.log].append(run)
            self.started_at[member, run.record.log] = now
        handler = records[0].handling.name
        self.starts[member][handler] += len(runs)
        self.running[member][handler] += 1
        for run in runs:
            run.together = runs
            self._last[member, run.record] = run
            if run.record.unfit:
                self.broken("UNFIT", f"{run.record} is given to a handler at {member}, and none can handle it")
            if now < run.record.due_s - _MS:
                self.broken("EARLY", f"{run.record} starts at {run.member}, and is due at {run.record.due_s:.3f}")
            self._fence(run, epoch)
            self._repeated(run)
            self._in_order(run)
            run.record.unit.runs.append(run)
            if run.record.lane is not None:
                run.record.lane.running.append(run)
        self._note_unacked(runs)
        return runs

    def ended(self, runs: Sequence[Run], failed: Collection[Run] = (), for_good: Collection[Run] = ()) -> None:
        """A call has ended. `failed`: its runs that failed; `for_good`: those of them that the handler's retries give
        up."""
        now = self._now()
        self.running[runs[0].member][runs[0].record.handling.name] -= 1
        for run in runs:
            record = run.record
            run.ended_at = now
            self.in_log[record.log].remove(run)
            if record.lane is not None:
                record.lane.running.remove(run)
            if run not in failed:
                self._ended_well(record)
                continue
            record.failures += 1
            record.hopeless = record.hopeless or run in for_good
            self._drop(run)

    def handled_after_all(self, record: Placed) -> None:
        """A loop has handled a record whose run was reported as failed, or was left to other members."""
        record.unit.handled = True

    def in_doubt(self, runs: Sequence[Run]) -> None:
        """Runs have ended well, and the call that reports it was broken off."""
        for run in runs:
            self._drop(run)

    def broken_off(self, runs: Sequence[Run]) -> None:
        """Ctrl-C has ended that call; it counts as no attempt."""
        self.running[runs[0].member][runs[0].record.handling.name] -= 1
        self.crashed(runs)

    def crashed(self, runs: Iterable[Run]) -> None:
        """The process of these runs has ended: they never end."""
        for run in runs:
            self.in_log[run.record.log].remove(run)
            if run.record.lane is not None:
                run.record.lane.running.remove(run)
            self._drop(run)

    def told_to_stop(self, run: Run, given: Record) -> None:
        """P4: if another member has taken the partition over, the handler was told (`cancelled`) before it ended."""
        record = run.record
        owner = None if self._leased or run.blind or record.excused else self._sight.owner(record.log)
        if owner in (None, run.session) or given.cancelled:
            return
        if not (run.given_up or self.open or self._took_away(record.log)):
            self.broken("UNTOLD", f"{record} ran at {run.member}, was not told to stop, and {owner} owns its partition")

    def overdue(self, member: str, record: Placed) -> None:
        """The engine reports that the call whose first record this is runs for too long."""
        last = self._last.get((member, record))
        for run in last.together if last is not None else ():  # a handler that was told may have ended by now
            run.record.overdue = True

    def gave_up(self, member: str, record: Placed) -> None:
        """The engine has given that call up."""
        last = self._last.get((member, record))  # a reset may have had all other runs of the record forgotten
        for run in last.together if last is not None else ():
            run.given_up = run.given_up or run.ended_at is None

    def overran(self, member: str, record: Placed, *, hurried: bool, starving: bool) -> None:
        """The engine reports that a handler outlived the drain, which is short where partitions that stay wait for
        it."""
        running = next((run for run in self._running(member, record) if run.record is record), None)
        if running is None or running.given_up or hurried or self._took_away(record.log) or self.open:
            return
        if running.blind or record.excused:
            return  # its topic was made again: the record is never read again
        ran_s = self._now() - running.since
        if ran_s < (min(self._drain_s, _STARVING_S) if starving else self._drain_s):
            self.broken("OVERRUN", f"{record} runs for {ran_s:.3f} s at {member}, and was not waited for")

    # ---- the broker, the store, people
    def lettered(self, member: str, session: str, record: Placed, attempts: int, *, blind: bool = False) -> None:
        """The broker took a dead letter; `blind` as in `started`."""
        handling = record.handling
        if blind or record.excused:
            record.excused = True  # the unreadable record may be the one at this offset in the next log
            if not blind:
                self._sent_away(record, session)
            return
        if not (record.unfit or record.overdue or record.hopeless or record.failures >= handling.attempts):
            self.broken(
                "LETTER",
                f"{record} was sent away by {member} after {record.failures} calls that failed; it says {attempts}, "
                f"and has {handling.attempts} attempts",
            )
        self._sent_away(record, session)
        last = self._last.get((member, record))
        if last is not None and last.since < record.replayed_at:
            record.letter_of = None  # its call began before a reset, by which the record comes again

    def shortened(self, member: str, record: Placed) -> None:
        """Judge a dead letter that came without its record's value."""
        if not (record.plan.large and record.handling.letter_too_large == "without_value"):
            self.broken("VALUE", f"the letter of {record} comes from {member} without its value, and should not")

    def committed(self, member: str, log: LogName, offset: int) -> None:
        """The broker has acknowledged a commit."""
        records, at = self._book.logs.get(log, []), self._checked[log]
        while at < len(records) and records[at].offset < offset:
            # Records before which a loop has sought were committed before, and that commit may come late.
            if not (records[at].over or (records[at].replayed and self._overtaken) or self._was_handled(records[at])):
                self.broken("LOST", f"{log}@{offset} is committed by {member}, and {records[at]} is not handled")
            at += 1
        unsure = self.forgotten or self.open or self._loop is not None
        if at > self._checked[log] and not (records[at - 1].excused or unsure):
            last = records[at - 1]
            if not self._sight.done(last):
                self.broken("UNMARKED", f"{log}@{offset} is committed by {member}, and {last} is not done at the store")
        self._checked[log] = at

    def acknowledged(self, member: str, record: Placed) -> None:
        """A leased message was acknowledged at the broker."""
        if not record.over:
            self.broken("LOST", f"{record} is acknowledged by {member}, and is not handled")

    def reset(self, log: LogName, offset: int, *, back: bool) -> None:
        """The group's offset was reset while the group was empty. `back`: to a lower offset."""
        for at, record in enumerate(self._book.logs.get(log, [])):
            if record.offset < offset:
                record.excused = True
                continue
            self._checked[log] = min(self._checked[log], at)
            # A reset forwards skips records and replays none: done records may stay done.
            record.excused = record.excused or (record.over and not back)
            record.letter_of = None
            key = record.unit.key
            # A handled record without a mark is known by its message id alone, and no reset forgets that.
            by_name = key is not None and self._sight.finished(key) and not self._sight.done(record)
            if not (record.unit.business or by_name):
                record.unit.runs.clear()
                record.unit.handled, record.replayed = False, True
                record.replayed_at = self._now()
            if record.lane is not None:
                record.lane.first = min(record.lane.first, record.turn)

    def committed_elsewhere(self, log: LogName, offset: int) -> None:
        """Another program has committed that offset: records below it count as done, and no others."""
        for record in self._book.logs.get(log, []):
            record.excused = record.excused or record.offset < offset

    def begins(self, log: LogName, offset: int) -> None:
        """The group begins at that offset of a log. Records before it are not for the group, unless it has begun
        them."""
        for record in self._book.logs.get(log, []):
            begun = record.failures or any(run.record is record for run in record.unit.runs)
            record.excused = record.excused or (record.offset < offset and not begun)

    def forgets(self, log: LogName, offset: int) -> None:
        """Records of that log from there on are to be handled again, as was asked for."""
        for unacked in self._unacked.values():  # the store has dropped the marks of these records
            unacked -= {run for run in unacked if run.record.log == log and run.ended_at is not None}
        for record in self._book.logs.get(log, []):
            if record.offset >= offset and not record.unit.business:
                record.unit.runs.clear()

    def passed_over(self, log: LogName, start: int, stop: int) -> None:
        """A loop has sought over these offsets: they are done with the next record behind them that it ends."""
        self.sought_over.setdefault(log, []).append(range(start, stop))
        for record in self._book.logs.get(log, []):
            record.excused = record.excused or start <= record.offset < stop

    def goes_on(self, log: LogName, offset: int) -> None:
        """A partition was taken over at an offset of another program: marks from there on are dropped."""
        self.forgets(log, offset)
        checked = self._book.logs.get(log, [])[: self._checked[log]]
        self.reset(log, offset, back=any(record.offset >= offset for record in checked))

    def unwanted(self, log: LogName, offset: int) -> None:
        """A reset to that offset has had no effect."""
        for record in self._book.logs.get(log, []):
            record.excused = record.excused or record.offset >= offset

    def removed(self, records: Iterable[Placed]) -> None:
        """These records were deleted from their log."""
        for record in records:
            record.excused = True

    def store_forgets(self) -> None:
        """The store is about to lose state."""
        self._knew = Known.now(self._book, self._sight)

    def store_forgot(self) -> None:
        """The store has lost state: note which."""
        if self._knew is None:
            raise AssertionError
        lost = Lost.between(self._knew, Known.now(self._book, self._sight), self._now())
        self._forgot.append(lost)
        for record in lost.again:
            record.excused = True

    def store_away(self, for_s: float) -> None:
        """Calls of the store may have no answer for so long."""
        self.unprotected = True
        self._away_until = max(self._away_until, self._now() + for_s + self._lease_s + _LEARNT_S)

    @property
    def away(self) -> bool:
        """Whether calls may have no answer, or all members may not have learnt yet that the store is back."""
        return self._now() < self._away_until

    @property
    def open(self) -> bool:
        """Whether members have run open (`store_down="open"`) while the store was away."""
        return self.unprotected and self._settings.store_down == "open"

    @property
    def complete(self) -> bool:
        """Whether nothing is to be handled again because the store has lost it."""
        return True

    def marked_in_transactions(self, log: LogName, start: int, stop: int) -> bool:
        """Whether a handler's own transaction has marked one of these offsets: it may have after the last commit at the
        broker, and after its drain."""
        records = self._book.logs.get(log, [])
        runs = (run for each in records if start <= each.offset < stop for run in each.unit.runs)
        return any(run.tx is not None for run in runs)

    # ---- inside
    def _ended_well(self, record: Placed) -> None:
        """A call for that record has ended well."""
        self.handled += not record.unit.handled
        record.unit.handled = True

    def _was_handled(self, record: Placed) -> bool:
        """Whether its member may not know yet that it is to be handled again."""
        return False

    def _runs_on(self, run: Run) -> bool:
        """Whether a run that has not ended forbids another one of its lane."""
        return self._sight.alive(run.session)

    @staticmethod
    def _sent_away(record: Placed, session: str) -> None:
        record.letter_of = session
        record.letters_of.add(session)

    @property
    def forgotten(self) -> bool:
        """Whether the store has ever lost state."""
        return bool(self._forgot)

    def unsure(self, log: LogName) -> bool:
        """Whether the store may have state that no member was told, or has lately lost its state of that log."""
        return self.away or self._took_away(log)

    def _took_away(self, log: LogName) -> bool:
        """Whether the store has lately lost that log's owner, and may take the log away from it."""
        return any(log in lost.logs and self._now() - lost.at_s < _LEARNT_S for lost in self._forgot)

    def _lost_since(self, since: float, record: Placed, *, but_marks: bool = False) -> bool:
        """Whether the store has lost state of that record since then. `but_marks`: other state than its mark."""
        # A session that let a partition go shortly before owns it again there, until its next renewal repeats the call.
        return any(since <= lost.at_s + self._lease_s and lost.has(record, but_marks) for lost in self._forgot)

    def _running(self, member: str, record: Placed) -> Sequence[Run]:
        for run in reversed(record.unit.runs):
            if run.record is record and run.member == member and run.ended_at is None:
                return run.together
        return ()

    def _drop(self, run: Run) -> None:
        runs = run.record.unit.runs
        if run in runs:
            runs.remove(run)
        self._unacked[run.session].discard(run)

    def _fence(self, run: Run, epoch: int) -> None:
        """P4: each owner of a partition has a higher fence than all owners before."""
        log = run.record.log
        if run.blind:
            return
        highest, session = self._epochs.get(log, (0, ""))
        if epoch > highest:
            self._epochs[log] = (epoch, run.session)
        elif (
            epoch < highest
            and session != run.session
            and self._sight.alive(run.session)
            and not self.open
            and not self._took_away(log)  # a former owner that the store has forgotten: its fence says so
        ):
            self.broken(
                "FENCE",
                f"{run.record} starts at {run.member} with fence {epoch}, after {highest} of another that lives",
            )

    def _repeated(self, new: Run) -> None:
        """P2, P3, P4, P7: a piece of work is done once, unless its first session is dead and the store does not know
        its end."""
        record, unit = new.record, new.record.unit
        # A message whose lease has ended comes again, and is dead-lettered again.
        if record.letter_of is not None and not self._leased and self._known(record, record.letter_of, 0.0):
            self.broken("REPEATED", f"{record} starts at {new.member} after its dead letter")
        for old in unit.runs:
            if old.blind and unit.key is None:
                continue
            if old.given_up and (old.record.letter_of is not None or old.record.excused or old.session in self.lost):
                continue  # its dead letter gave the key back: another record with it may run
            self.repeats += 1
            lost = self._lost_since(new.claimed_at, record, but_marks=self._sight.alive(old.session))
            if self._known(old.record, old.session, old.claimed_at) and not lost:
                was = "runs" if old.ended_at is None else f"ended well at {old.ended_at:.4f}"
                life = "alive" if self._sight.alive(old.session) else "dead"
                self.broken(
                    "REPEATED",
                    f"{record} starts at {new.member}, and {old.record} {was} at {old.member}, whose session is {life}",
                )

    def _known(self, record: Placed, session: str, since: float) -> bool:
        """Whether the store knew that the session did that work, so that it must not be done again."""
        if self.open:
            return False
        if self._sight.alive(session):
            # A session that lives repeats its marks when its ownership ends.
            return not self._lost_since(since, record, but_marks=True)
        if self._lost_since(since, record):
            return False
        unit = record.unit
        known = unit.key is not None and self._sight.finished(unit.key) and not record.replayed
        return known or (not unit.business and self._sight.done(record))

    def _in_order(self, new: Run) -> None:
        """Judge that records of one lane are handled one after the other."""
        record, lane = new.record, new.record.lane
        if lane is None:
            return
        if self._loop is not None:
            if not new.blind:
                self._handed_in_order(record, lane)
            return
        for other in lane.running:
            if self.open or other.given_up or other.blind or new.blind or other.together is new.together:
                continue
            gone = other.record.excused  # removed by compaction: no reader can see that there was a record
            if self._runs_on(other) and not (gone or self._took_away(record.log)):
                self.broken(
                    "ORDER", f"{record} starts at {new.member} while {other.record} of its lane runs at {other.member}"
                )
        first = lane.behind()
        if first < record.turn and not new.blind:
            before = lane.records[first]
            if all(run.record is not before for run in new.together):
                self.broken("ORDER", f"{record} starts at {new.member} before {before} of its lane was handled")

    def _handed_in_order(self, record: Placed, lane: Lane) -> None:
        """A loop gets records in order, whether or not the earlier ones have ended. A record that another thread gives
        back comes again when the engine has seen that."""
        for before in lane.records[lane.behind() : record.turn]:
            given_back = before.failures and self._loop is not None and self._loop.threads
            if not (before.over or before.unit.runs or given_back):
                self.broken("ORDER", f"{record} is handed out before {before} of its lane was")

    def _note_unacked(self, runs: Sequence[Run]) -> None:
        """P3: the number of records that a crash would repeat is bounded."""
        session, bound = runs[0].session, max(1, self._settings.workers) + self._settings.mark_batch + self._coroutines
        unacked = self._unacked[session]
        unacked.update(runs)
        if self._loop is not None and (self._loop.threads or self.unprotected):
            return  # ends reported between two looks of the engine, or of lost partitions, are not acknowledged yet
        if self._loop is not None:  # reported ends are marked before the loop gets more records; open ones do not count
            own = sum(each.ended_at is None for each in unacked)
            bound = self._settings.mark_batch + self._loop.at_most + own
        if len(unacked) <= bound:
            return
        for run in list(unacked):
            lost = any(each.has(run.record) for each in self._forgot)
            key = run.record.unit.key
            done = lost or self._sight.done(run.record) or (key is not None and self._sight.finished(key))
            if run.record.letter_of is not None or run.blind or (run.ended_at is not None and done):
                unacked.discard(run)
        if len(unacked) > bound and not self.open:
            self.broken(
                "IN HAND",
                f"{len(unacked)} records at {runs[0].member} have started and are not acknowledged; {bound} may be",
            )
