"""Effects: judges of worlds whose store is the database of the effects. What the database says is true.

A record of a handler with `transaction=` is handled when its effect is committed, and not any more when the database
has lost that. Handlers without it are marked afterwards: a zombie, and who comes after a handler that outlives its
drain, may repeat there.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.judging.judges import Judges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.simulation.playing.book import LogName, Placed, Run


#: A member that has nothing to do looks within so long whether its database has lost commits.
LOOKS_BACK_S = 35.0


class _Effect(NamedTuple):
    """An effect that is committed."""

    member: str
    at_s: float


class EffectJudges(Judges):
    """The rules of such worlds."""

    #: Returns how often the database has the effect of a record, by its number.
    effects: Callable[[], Counter[int]]

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._had: Counter[int] = Counter()
        #: Records whose effect was lost, and when.
        self._to_do: dict[Placed, float] = {}
        self._committed: dict[int, _Effect] = {}
        #: When the broker took a record's dead letter.
        self._letters: dict[int, float] = {}

    # ---- the database
    def applied(self, number: int, member: str, open_s: float) -> None:
        """The effect of that record is committed, by a transaction that was open for so long."""
        record = self._book.records[number]
        if record.unit.handled and not record.excused:
            before = self._committed.get(number)
            self.broken("TWICE", f"{member} commits the effect of {record}, which is there: {before}")
        letter_at = self._letters.get(number)
        if record.letter_of is not None and letter_at is not None and self._now() - open_s < letter_at:
            self.broken("BOTH", f"{member} commits the effect of {record}, whose dead letter was sent meanwhile")
        self.handled += not record.unit.handled
        record.unit.handled = True
        if any(run.blind and run.member == member for run in record.unit.runs):
            record.excused = True  # of a topic made again, marked as the deleted one's: its next owner begins anew
        self._committed[number] = _Effect(member, self._now())

    def store_forgets(self) -> None:
        """The database is about to lose commits."""
        super().store_forgets()
        self._had = Counter(self.effects())

    def store_forgot(self) -> None:
        """The database has lost commits: their effects are to come again."""
        super().store_forgot()
        for number in sorted(self._had - self.effects()):
            record = self._book.records[number]
            if record.unit.handled:
                self.handled -= 1
                record.unit.handled = False
                if self._sight.done(record):  # a reset was lost as well, which had it handled again
                    record.excused = True
                else:
                    self._to_do[record] = self._now()
            if record.lane is not None:
                record.lane.first = min(record.lane.first, record.turn)
        for log in self._forgot[-1].logs:
            self._epochs.pop(log, None)

    @property
    def complete(self) -> bool:
        """Whether all effects that were lost are there again."""
        self._to_do = {record: at_s for record, at_s in self._to_do.items() if not record.over}
        return not self._to_do

    # ---- other rules here
    def lettered(self, member: str, session: str, record: Placed, attempts: int, *, blind: bool = False) -> None:
        """The broker took a dead letter."""
        record.failures += _idled(record.unit.runs)
        super().lettered(member, session, record, attempts, blind=blind)
        self._letters[record.number] = self._now()
        effect = self._committed.get(record.number)
        if record.unit.handled and record.handling.transaction and effect is not None and effect.member == member:
            self.broken("BOTH", f"{member} sends {record} away, and has committed its effect: {effect}")

    def overran(self, member: str, record: Placed, *, hurried: bool, starving: bool) -> None:
        """The engine reports that a handler, or the COMMIT after it, outlived the drain."""
        last = self._last.get((member, record))
        for run in last.together if last is not None else ():
            run.left = run.tx is not None
        super().overran(member, record, hurried=hurried, starving=starving)

    def _ended_well(self, record: Placed) -> None:
        if not record.handling.transaction:
            super()._ended_well(record)

    def _took_away(self, log: LogName) -> bool:
        """Whether the database has lately lost commits: who finds out takes all of its partitions over anew."""
        return any(self._now() - lost.at_s < LOOKS_BACK_S for lost in self._forgot)

    def _was_handled(self, record: Placed) -> bool:
        return self._now() - self._to_do.get(record, -math.inf) < LOOKS_BACK_S

    def _note_unacked(self, runs: Sequence[Run]) -> None:
        """What has ended in a transaction is there, or undone: a crash repeats none of it. What ran before a partition
        was taken over anew runs again."""
        unacked = self._unacked[runs[0].session]
        anew = self._took_away(runs[0].record.log)
        unacked -= {run for run in unacked if anew or (run.tx is not None and run.ended_at is not None)}
        super()._note_unacked(runs)

    def _runs_on(self, run: Run) -> bool:
        return run.tx is not None and run.tx.is_open

    def _known(self, record: Placed, session: str, since: float) -> bool:
        return self._sight.done(record) and not self._lost_since(since, record)

    def _fence(self, run: Run, epoch: int) -> None:
        if run.record.handling.transaction and not _in_vain(run):
            highest, session = self._epochs.get(run.record.log, (0, ""))
            if epoch < highest and session != run.session and not run.blind:
                self.broken("FENCE", f"{run.record} starts at {run.member} with fence {epoch}, after {highest}")
            self._epochs[run.record.log] = max((epoch, run.session), (highest, session))

    def _in_order(self, new: Run) -> None:
        if not _in_vain(new):
            super()._in_order(new)

    def _repeated(self, new: Run) -> None:
        """In a transaction: no handler is called for what is done. Without one: not by who has done it itself."""
        record = new.record
        done = self._sight.done(record) and not new.blind
        own = [run for run in record.unit.runs if run.session == new.session and run.ended_at is not None]
        self.repeats += len(record.unit.runs)
        if _in_vain(new):
            pass
        elif done and record.handling.transaction:
            self.broken("REPEATED", f"{record} starts at {new.member}, and is done in the database")
        elif done and own and not self._lost_since(own[0].claimed_at, record):
            self.broken("REPEATED", f"{record} starts again at {new.member}, and is done in the database")
        record.failures += _idled(own)
        for run in own:
            self._drop(run)


def _in_vain(run: Run) -> bool:
    """Whether its transaction is over since the database has said that it is open: none of it will be committed."""
    return run.tx is not None and not run.tx.is_open


def _idled(runs: Iterable[Run]) -> int:
    """How many of these count as failed because the server has ended their transaction, in which nothing happened."""
    return sum(run.tx is not None and run.tx.idled for run in runs)
