"""Judges: the promise, held against what is seen from outside, after every step.

They are told facts, and ask nothing of a member but what it has in its hands. The first fact that breaks a rule ends
the world. Rules that were needed are as tight as the promise: a repeat, say, is judged record by record, and excused
only where the session that ran it first is dead and the store was never told of its end.
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
    from tests.simulation.playing.book import LogName, Sight


#: Who has lost something at the store has learnt it by then, whatever else befalls it.
_LEARNT_S = 6.0
#: Commits may come in another order than they were sent.
_OVERTAKING: frozenset[FaultKind] = frozenset({"late", "twice", "cut"})
#: Timestamps are in whole milliseconds.
_MS = 0.001
#: So much of the drain a handler is waited for at least, by whichever clock. Of queues that a client shares out, half
#: of that: in the first half of a drain handlers still begin with what the client has begun to hand over.
_DRAIN = 0.9
#: So long at least, where a partition that stays has no records left at its member.
_STARVING_S = 0.9


class Found(NamedTuple):
    """A judge's finding."""

    #: Which rule is broken.
    rule: str
    what: str
    at_s: float


class Judges:
    """All rules that can be judged by what happens. `found`: the first that was broken."""

    def __init__(self, world: World, book: Book, sight: Sight, now: Callable[[], float]) -> None:
        self._settings, self._book, self._sight, self._now = world.settings, book, sight, now
        #: How many of them run at once.
        self._coroutines = world.settings.async_workers if any("async" in each.kind for each in world.handlers) else 0
        self._loop = world.loop
        #: A commit may reach the broker after a later one, by a member that lives.
        seeks = self._loop is not None and self._loop.seeks > 0
        self._overtaken = seeks and any(each.kind in _OVERTAKING for each in world.faults)
        self._lease_s, self._leased = world.lease_s, world.broker in LEASED
        self._drain_s = _DRAIN * world.settings.drain_s / (2 if world.broker == "pushed" else 1)
        self.found: Found | None = None
        #: What the store has lost of what it had acknowledged; and what it knew right before.
        self._forgot: list[Lost] = []
        self._knew: Known | None = None
        #: The store gave no answer: who is open then has no protection. And until when somebody may go by that.
        self.unprotected, self._away_until = False, 0.0
        self.lost = set[str]()  # sessions, by what their members say
        self._unacked: dict[str, set[Run]] = defaultdict(set)
        self._checked: dict[LogName, int] = defaultdict(int)
        self._epochs: dict[LogName, tuple[int, str]] = {}
        #: Records started, by member and handler: for judges that count what others did meanwhile.
        self.starts: dict[str, Counter[str]] = defaultdict(Counter)
        #: Calls that run, in the same way.
        self.running: dict[str, Counter[str]] = defaultdict(Counter)
        self.repeats = 0
        #: Pieces of work that a call has ended well.
        self.handled = 0
        #: The last run of each record at each member.
        self._last: dict[tuple[str, Placed], Run] = {}
        #: What runs, by the log that it is of.
        self.in_log: dict[LogName, list[Run]] = defaultdict(list)

    def broken(self, rule: str, what: str) -> None:
        """A rule is broken. Only the first one counts: others may follow from it."""
        if self.found is None:
            self.found = Found(rule, what, self._now())

    # ---- handlers
    def started(
        self, member: str, session: str, epoch: int, records: Sequence[Placed], *, blind: bool = False
    ) -> list[Run]:
        """A handler was called with these; `blind`: by a member that takes their log for one that is gone."""
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
            )
            for each in records
        ]
        for run in runs:  # a batch may have records of a log that is gone, and of the one in its place
            self.in_log[run.record.log].append(run)
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
        """A call has ended, well but for the runs that failed; `for_good`: those of them whose error the handler's
        retries take for one that nothing cures."""
        now = self._now()
        self.running[runs[0].member][runs[0].record.handling.name] -= 1
        for run in runs:
            record = run.record
            run.ended_at = now
            self.in_log[record.log].remove(run)
            if record.lane is not None:
                record.lane.running.remove(run)
            if run not in failed:
                self.handled += not record.unit.handled
                record.unit.handled = True
                continue
            record.failures += 1
            record.hopeless = record.hopeless or run in for_good
            self._drop(run)

    def handled_after_all(self, record: Placed) -> None:
        """A loop has handled a record whose run was said to have failed, or to be others'."""
        record.unit.handled = True

    def in_doubt(self, runs: Sequence[Run]) -> None:
        """Runs have ended well, and the call that was to say so was broken off."""
        for run in runs:
            self._drop(run)

    def broken_off(self, runs: Sequence[Run]) -> None:
        """Ctrl-C has ended that call: it counts as no attempt."""
        self.running[runs[0].member][runs[0].record.handling.name] -= 1
        self.crashed(runs)

    def crashed(self, runs: Iterable[Run]) -> None:
        """The process of these runs is gone: they will never end."""
        for run in runs:
            self.in_log[run.record.log].remove(run)
            if run.record.lane is not None:
                run.record.lane.running.remove(run)
            self._drop(run)

    def told_to_stop(self, run: Run, given: Record) -> None:
        """P4: as its handler ends: was it told by then, if another has taken the partition over?"""
        record = run.record
        owner = None if self._leased or run.blind or record.excused else self._sight.owner(record.log)
        if owner in (None, run.session) or given.cancelled:
            return
        if not (run.given_up or self.open or self._took_away(record.log)):
            self.broken("UNTOLD", f"{record} ran at {run.member}, was not told to stop, and {owner} owns its partition")

    def overdue(self, member: str, record: Placed) -> None:
        """The engine says that a call with that record as its first runs for too long."""
        last = self._last.get((member, record))
        for run in last.together if last is not None else ():  # it may have ended by being told
            run.record.overdue = True

    def gave_up(self, member: str, record: Placed) -> None:
        """The engine waits for that call no more."""
        for run in self._running(member, record):
            run.given_up = True

    def overran(self, member: str, record: Placed, *, hurried: bool, starving: bool) -> None:
        """The engine says that a handler outlived the drain; which is short where partitions that stay wait for it."""
        running = next((run for run in self._running(member, record) if run.record is record), None)
        if running is None or running.given_up or hurried or self._took_away(record.log) or self.open:
            return
        if running.blind or record.excused:
            return  # its topic was made again: nobody will read it again
        ran_s = self._now() - running.since
        if ran_s < (min(self._drain_s, _STARVING_S) if starving else self._drain_s):
            self.broken("OVERRUN", f"{record} runs for {ran_s:.3f} s at {member}, and was not waited for")

    # ---- the broker, the store, people
    def lettered(self, member: str, session: str, record: Placed, attempts: int, *, blind: bool = False) -> None:
        """The broker took a dead letter; `blind` as in `started`."""
        handling = record.handling
        if blind or record.excused:
            record.excused = True  # of a log that is gone: the one at its place in the next may be the unreadable one
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

    def shortened(self, member: str, record: Placed) -> None:
        """Judge a letter that has come without the value of its record."""
        if not (record.plan.large and record.handling.letter_too_large == "without_value"):
            self.broken("VALUE", f"the letter of {record} comes from {member} without its value, and should not")

    def committed(self, member: str, log: LogName, offset: int) -> None:
        """The broker has acknowledged a commit."""
        records, at = self._book.logs.get(log, []), self._checked[log]
        while at < len(records) and records[at].offset < offset:
            # What a loop has sought back to was committed before, and that may come late.
            if not (records[at].over or (records[at].replayed and self._overtaken)):
                self.broken("LOST", f"{log}@{offset} is committed by {member}, and {records[at]} is not handled")
            at += 1
        unsure = self.forgotten or self.open or self._loop is not None
        if at > self._checked[log] and not (records[at - 1].excused or unsure):
            last = records[at - 1]
            if not self._sight.done(last):
                self.broken("UNMARKED", f"{log}@{offset} is committed by {member}, and {last} is not done at the store")
        self._checked[log] = at

    def acknowledged(self, member: str, record: Placed) -> None:
        """The broker was told that a leased message is done."""
        if not record.over:
            self.broken("LOST", f"{record} is acknowledged by {member}, and is not handled")

    def reset(self, log: LogName, offset: int, *, back: bool) -> None:
        """Somebody has set the group's offset, while the group was empty; `back`: to a lower one."""
        for at, record in enumerate(self._book.logs.get(log, [])):
            if record.offset < offset:
                record.excused = True
                continue
            self._checked[log] = min(self._checked[log], at)
            # Who only skips records asks for no other once more: what was done may be left as it is.
            record.excused = record.excused or (record.over and not back)
            record.letter_of = None
            key = record.unit.key
            # What was handled and is not marked is known by its message's name alone, which no reset forgets.
            by_name = key is not None and self._sight.finished(key) and not self._sight.done(record)
            if not (record.unit.business or by_name):
                record.unit.runs.clear()
                record.unit.handled, record.replayed = False, True
            if record.lane is not None:
                record.lane.first = min(record.lane.first, record.turn)

    def committed_elsewhere(self, log: LogName, offset: int) -> None:
        """Another program has committed that offset: what lies below is done, by its word, and nothing else is."""
        for record in self._book.logs.get(log, []):
            record.excused = record.excused or record.offset < offset

    def begins(self, log: LogName, offset: int) -> None:
        """The group begins there in a log, and what was sent before is not meant for it; but what it has begun with."""
        for record in self._book.logs.get(log, []):
            begun = record.failures or any(run.record is record for run in record.unit.runs)
            record.excused = record.excused or (record.offset < offset and not begun)

    def forgets(self, log: LogName, offset: int) -> None:
        """Let what was done in that log from there on be done again: that was asked for."""
        for unacked in self._unacked.values():  # what was done is no more, so the store says nothing of its end
            unacked -= {run for run in unacked if run.record.log == log and run.ended_at is not None}
        for record in self._book.logs.get(log, []):
            if record.offset >= offset and not record.unit.business:
                record.unit.runs.clear()

    def passed_over(self, log: LogName, start: int, stop: int) -> None:
        """A loop reads on behind these: they are done, by its word, with whatever it ends behind them."""
        for record in self._book.logs.get(log, []):
            record.excused = record.excused or start <= record.offset < stop

    def goes_on(self, log: LogName, offset: int) -> None:
        """A partition was taken over where such an offset stood: what was done from there on is forgotten."""
        self.forgets(log, offset)
        checked = self._book.logs.get(log, [])[: self._checked[log]]
        self.reset(log, offset, back=any(record.offset >= offset for record in checked))

    def unwanted(self, log: LogName, offset: int) -> None:
        """A reset to that offset has come to nothing."""
        for record in self._book.logs.get(log, []):
            record.excused = record.excused or record.offset >= offset

    def removed(self, records: Iterable[Placed]) -> None:
        """These records are in no log any more."""
        for record in records:
            record.excused = True

    def store_forgets(self) -> None:
        """The store is about to lose something."""
        self._knew = Known.now(self._book, self._sight)

    def store_forgot(self) -> None:
        """The store has forgotten everything."""
        if self._knew is None:
            raise AssertionError
        lost = Lost.between(self._knew, Known.now(self._book, self._sight), self._now())
        self._forgot.append(lost)
        for record in lost.again:
            record.excused = True

    def store_away(self, for_s: float) -> None:
        """Some calls of the store have no answer for so long."""
        self.unprotected = True
        self._away_until = max(self._away_until, self._now() + for_s + self._lease_s + _LEARNT_S)

    @property
    def away(self) -> bool:
        """Whether some have none, or it has been back for no longer than it takes all to learn of it."""
        return self._now() < self._away_until

    @property
    def open(self) -> bool:
        """By choice nothing protected what has run."""
        return self.unprotected and self._settings.store_down == "open"

    # ---- inside
    @staticmethod
    def _sent_away(record: Placed, session: str) -> None:
        record.letter_of = session
        record.letters_of.add(session)

    @property
    def forgotten(self) -> bool:
        """The store has forgotten something, at any time."""
        return bool(self._forgot)

    def unsure(self, log: LogName) -> bool:
        """The store may say what no member was told, or has forgotten lately what it knew of that log."""
        return self.away or self._took_away(log)

    def _took_away(self, log: LogName) -> bool:
        """The store has lost who owns that log, lately: it may take it away."""
        return any(log in lost.logs and self._now() - lost.at_s < _LEARNT_S for lost in self._forgot)

    def _lost_since(self, since: float, record: Placed, *, but_marks: bool = False) -> bool:
        """Whether the store has lost something of that record since it was claimed. `but_marks`: more than its mark."""
        # Who had let a partition go shortly before owns it again there, until its next renewal says so once more.
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
        """P4: who owns a partition has a higher fence than all before."""
        log = run.record.log
        if run.blind:
            return
        highest, session = self._epochs.get(log, (0, ""))
        if epoch > highest:
            self._epochs[log] = (epoch, run.session)
        elif epoch < highest and session != run.session and self._sight.alive(run.session) and not self.open:
            self.broken(
                "FENCE",
                f"{run.record} starts at {run.member} with fence {epoch}, after {highest} of another that lives",
            )

    def _repeated(self, new: Run) -> None:
        """P2, P3, P4, P7: one piece of work is done once, unless its first session is dead and its end not known."""
        record, unit = new.record, new.record.unit
        # A message whose lease is over comes again, and is sent away again.
        if record.letter_of is not None and not self._leased and self._known(record, record.letter_of, 0.0):
            self.broken("REPEATED", f"{record} starts at {new.member} after its dead letter")
        for old in unit.runs:
            if old.blind and unit.key is None:
                continue
            if old.given_up and (old.record.letter_of is not None or old.record.excused or old.session in self.lost):
                continue  # its letter gave the key back: another record of it may run
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
        """Whether what a session did with a record could not have been done again."""
        if self.open:
            return False
        if self._sight.alive(session):
            # Who lives says its marks again where its ownership ends.
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
            gone = other.record.excused  # compaction has removed it: nobody can tell that something was there
            if self._sight.alive(other.session) and not (gone or self._took_away(record.log)):
                self.broken(
                    "ORDER", f"{record} starts at {new.member} while {other.record} of its lane runs at {other.member}"
                )
        first = lane.behind()
        if first < record.turn and not new.blind:
            before = lane.records[first]
            if all(run.record is not before for run in new.together):
                self.broken("ORDER", f"{record} starts at {new.member} before {before} of its lane was handled")

    def _handed_in_order(self, record: Placed, lane: Lane) -> None:
        """A loop gets records in their order, whether or not those before have ended. What another thread gives back
        comes when that is heard of."""
        for before in lane.records[lane.behind() : record.turn]:
            given_back = before.failures and self._loop is not None and self._loop.threads
            if not (before.over or before.unit.runs or given_back):
                self.broken("ORDER", f"{record} is handed out before {before} of its lane was")

    def _note_unacked(self, runs: Sequence[Run]) -> None:
        """P3: what a crash would repeat is bounded."""
        session, bound = runs[0].session, max(1, self._settings.workers) + self._settings.mark_batch + self._coroutines
        unacked = self._unacked[session]
        unacked.update(runs)
        if self._loop is not None and (self._loop.threads or self.unprotected):
            return  # what they say between two looks of the engine, or what went meanwhile, is not acknowledged yet
        if self._loop is not None:  # what the loop has is its own; what it has said is marked before it gets more
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
