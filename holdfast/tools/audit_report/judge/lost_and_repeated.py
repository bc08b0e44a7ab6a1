"""One partition's spans, in the order of their offsets: what no span covers, and what more than one executed.

Pure, and in one pass: what is held is the ownerships of the partition, and the spans that lie over one offset.

A run of which the audit can read nothing casts doubt on its whole group: it may have had any partition. A known run
with missing events casts doubt only on partitions that may have had an unknown owner: a hole in the epochs shows that.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from holdfast.plugin.audit.schema import COVERS_NOTHING, Outcome
from holdfast.tools.audit_report.judge.owner import Owner
from holdfast.tools.audit_report.verdicts import Cause, Reason, Verdict

_COVERS_NOTHING = frozenset(each.value for each in COVERS_NOTHING)
_ABSENT, _HANDLED = Outcome.ABSENT.value, Outcome.HANDLED.value
_new = tuple.__new__
#: More than a sweep may still make longer.
_GROWING = 64


class Execution(NamedTuple):
    """A span of executions."""

    next: int
    first: int
    records: int
    owner: Owner
    ended_ms: int
    old: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules that a sweep judges by."""

    over: bool = False  #: all runs of the group have stopped cleanly
    all_of_it: bool = False  #: everything up to the log's end had to be consumed
    final: bool = True  #: no more will come; else what is pending is not told
    unheard: bool = False  #: no event of some run of the group can be read: it may have done anything
    doubted: bool = False  #: events of some run are missing: it may have had partitions that are not known


@dataclass(slots=True)
class Sweep:
    """Give it spans in the order of `first`, take what it has found, and end it."""

    owners: list[Owner]
    rules: Rules
    gaps: list[dict[str, Any]] = field(default_factory=list)
    duplicates: list[dict[str, Any]] = field(default_factory=list)
    offsets: dict[str, int] = field(default_factory=dict)
    repeated: int = 0

    _expired: list[tuple[int, int, Owner]] = field(default_factory=list)
    _begin: int | None = None
    _reach: int = 0
    _reach_ms: int | None = None
    _covered_to: int | None = None
    _position: int | None = None
    _end: int | None = None
    _open: list[Execution] = field(default_factory=list)
    _mark: int = 0
    _last: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)
    _by_run: dict[str, list[Owner]] = field(default_factory=dict)
    _counted: bool = False  #: epochs say in which order owners came, and whether one is missing
    _out_of_order: bool = False  #: members' clocks say so, and it cannot be

    def __post_init__(self) -> None:
        self.owners.sort(key=lambda each: each.turn)
        for each in self.owners:
            self._by_run.setdefault(each.run, []).append(each)
        for of_run in self._by_run.values():
            of_run.sort(key=lambda each: each.from_seq)
        starts = [each.position for each in self.owners if each.position is not None]
        if starts:
            self._begin = self._reach = min(starts)
        self._position = max((each.said for each in self.owners if each.said is not None), default=None)
        self._counted = all(each.epoch is not None for each in self.owners)
        self._out_of_order = not self._counted and self._goes_back()
        self._end = max((each.last_end for each in self.owners if each.last_end is not None), default=None)

    def owner(self, run: str, epoch: int | None, seq: int) -> Owner:
        """The owner of a span: by its epoch (a handler may outlive the ownership), or by what the run had said
        before."""
        of_run = self._by_run.get(run)
        if of_run is None:
            stranger = Owner(run=run, member=run, turn=0, killed=True)  # its `assigned` was lost
            self._by_run[run] = of_run = [stranger]
        if epoch is not None:
            for each in reversed(of_run):
                if each.epoch == epoch:
                    return each
        return of_run[max(bisect_right(of_run, seq, key=lambda each: each.from_seq) - 1, 0)]

    def span(  # noqa: PLR0917 - called for each of millions
        self, owner: Owner, first: int, next_: int, outcome: str, records: int, began_ms: int, ended_ms: int, old: bool
    ) -> None:
        """One span more, at or behind the last one."""
        if outcome in _COVERS_NOTHING:
            self._passed(owner, first, next_, outcome)
            return
        if self._begin is None:
            self._begin = self._reach = first
        if first > self._reach:
            self._gap(self._reach, first)
        if owner.first is None:
            owner.first = first
        if outcome != _ABSENT:
            owner.ended(first, records, began_ms, ended_ms)
        if owner.next is None or next_ > owner.next:
            owner.next = next_
        if next_ > self._reach:
            self._reach, self._reach_ms = next_, ended_ms
        if outcome == _HANDLED:
            if self._open:
                self._settle(first)
            self._mark = first
            # Execution(...) goes through a function in Python.
            self._open.append(_new(Execution, (next_, first, records, owner, ended_ms, old)))

    def _passed(self, owner: Owner, first: int, next_: int, outcome: str) -> None:
        """Note records that were deleted unread: a gap, unless another owner has handled them."""
        if outcome != Outcome.EXPIRED:
            return
        if self._begin is None:
            self._begin = self._reach = first
        owner.first = first if owner.first is None else owner.first
        owner.next = next_ if owner.next is None else max(owner.next, next_)
        self._expired.append((first, next_, owner))

    def close(self) -> dict[str, Any]:
        """There are no more. The row of `coverage`, but for where it is, and how many records there were."""
        self._settle(None)
        begin = 0 if self._begin is None else self._begin
        gone = (next_ for _, next_, _ in self._expired)
        top = max(self._reach, self._position or 0, self._end or 0, *gone)
        if top > self._reach:
            self._gap(self._reach, top)
        lag = self._end - self._position if self._end is not None and self._position is not None else None
        return {
            "begin": begin,
            "covered_to": top if self._covered_to is None else self._covered_to,
            "position": self._position,
            "end": self._end,
            "lag": lag,
            **{each.value: self.offsets.get(each.value, 0) for each in Verdict},
            "repeated": self.repeated,
        }

    def take(self, *, all_of_it: bool = False) -> list[tuple[str, dict[str, Any]]]:
        """Tables' names and rows, as far as what follows cannot change them: one of the last ranges that were executed
        twice may still grow, but when the sweep is closed."""
        over = self.duplicates[: None if all_of_it else -_GROWING]
        rows = [*(("gaps", each) for each in self.gaps), *(("duplicates", each) for each in over)]
        self.gaps.clear()
        del self.duplicates[: len(over)]
        return rows

    # -- executions ----------------------------------------------------------------------------------------------------

    def _settle(self, until: int | None) -> None:
        """Go on to that offset, or to the end, with the executions that are open."""
        open_ = self._open
        while open_:
            if len(open_) == 1:
                if until is None or open_[0].next <= until:
                    open_.clear()
                return
            border = min(each.next for each in open_)
            stop = border if until is None else min(border, until)
            if stop > self._mark:
                self._repeated(self._mark, stop)
                self._mark = stop
            if until is not None and border > until:
                return
            self._open = open_ = [each for each in open_ if each.next > border]

    def _repeated(self, first: int, next_: int) -> None:
        """All that is open lies over these."""
        open_ = sorted(self._open, key=lambda each: (each.owner.turn, each.ended_ms))
        if all(each.old for each in open_):
            return
        # At most: where the log has holes no event tells in which part of its span a record lies.
        records = min(next_ - first, *(each.records for each in open_))
        repeats: dict[Cause, int] = {}
        known = False
        for one, two in pairwise(open_):
            known = known or one.old
            if two.old and known:
                continue  # told before: the first of those that are old
            cause = self._cause(one.owner, two.owner, first)
            repeats[cause] = repeats.get(cause, 0) + 1
        self.repeated += records * sum(repeats.values())
        first_ms, again_ms = min(each.ended_ms for each in open_), max(each.ended_ms for each in open_)
        runs = [each.owner.run for each in open_]
        for cause, times in repeats.items():
            like = (cause, times, *(id(each.owner) for each in open_))
            last = self._last.get(like)
            if last is not None and last["next"] == first:
                last["next"] = next_
                last["records"] += records
                last["first_ms"] = min(last["first_ms"], first_ms)
                last["again_ms"] = max(last["again_ms"], again_ms)
                continue
            row = {
                "first": first,
                "next": next_,
                "records": records,
                "executions": len(open_),
                "repeats": times,
                "cause": cause.value,
                "runs": runs,
                "members": [each.owner.member for each in open_],
                "first_ms": first_ms,
                "again_ms": again_ms,
            }
            if len(self._last) > _GROWING // 4:
                self._last.clear()
            self._last[like] = row
            self.duplicates.append(row)

    def _cause(self, one: Owner, two: Owner, offset: int) -> Cause:
        if one is two:
            return Cause.REDELIVERY
        for each in self.owners:
            told_to = each.trigger == "reset" and each.position is not None and each.position <= offset
            if told_to and one.turn < each.turn <= two.turn:
                return Cause.RESET
        if one.killed and one.ended_by in (None, "killed"):
            return Cause.CRASH
        return Cause.HAND_OVER

    # -- gaps ----------------------------------------------------------------------------------------------------------

    def _gap(self, first: int, next_: int) -> None:
        self._expired = [each for each in self._expired if each[1] > first]
        cuts = {first, next_, *(cut for each in self._expired for cut in each[:2] if first < cut < next_)}
        for each in self.owners:
            cuts.update(cut for cut in (each.position, each.told, each.said) if cut is not None and first < cut < next_)
        row: dict[str, Any] | None = None
        for low, high in pairwise(sorted(cuts)):
            verdict, reason, readers = self._verdict(low)
            if self._covered_to is None and verdict is not Verdict.EXPIRED:
                self._covered_to = low
            if not self.rules.final and verdict in (Verdict.PENDING, Verdict.LEFT) and reason is Reason.LAG:
                row = None
                continue
            self.offsets[verdict] = self.offsets.get(verdict, 0) + high - low
            runs = [each.run for each in readers]
            if row is not None and (row["verdict"], row["reason"], row["runs"]) == (verdict.value, reason.value, runs):
                row["next"], row["offsets"] = high, high - row["first"]
                continue
            row = {
                "first": low,
                "next": high,
                "offsets": high - low,
                "verdict": verdict.value,
                "reason": reason.value,
                "runs": runs,
                "members": [each.member for each in readers],
                "after_ms": self._reach_ms,
            }
            self.gaps.append(row)

    def _verdict(self, offset: int) -> tuple[Verdict, Reason, list[Owner]]:
        """The verdict on an offset that no span covers. Call it when all spans below have been seen."""
        for first, next_, owner in self._expired:
            if first <= offset < next_:
                return Verdict.EXPIRED, Reason.RETENTION, [owner]
        readers, rules = self._readers(offset), self.rules
        reached = self._position is not None and offset < self._position
        if not reached and not (rules.all_of_it or (rules.unheard and rules.final)):
            return (Verdict.LEFT if rules.over else Verdict.PENDING), Reason.LAG, readers
        if rules.unheard:
            return Verdict.UNKNOWN, Reason.INCOMPLETE, readers
        unseen = self._may_have_had_others(readers) or (rules.doubted and not reached)
        if reached and not unseen and self._was_reset_beyond(offset, readers):
            return Verdict.LEFT, Reason.RESET, readers
        found = self._by_word(offset, readers)
        if unseen and found[1] is not Reason.PASSED and found[0] is Verdict.LOST:
            return Verdict.UNKNOWN, Reason.INCOMPLETE, readers
        return found

    def _by_word(self, offset: int, readers: list[Owner]) -> tuple[Verdict, Reason, list[Owner]]:
        """The verdict by the events of the owners that may have read the offset."""
        untold = [each for each in readers if not each.has_told(offset)]
        if untold or not readers:
            killed = any(each.killed for each in untold)
            return Verdict.UNKNOWN, Reason.KILLED if killed else Reason.INCOMPLETE, untold
        if any(each.said is not None and each.said > offset for each in readers):
            return Verdict.LOST, Reason.PASSED, readers
        reached = self._position is not None and offset < self._position
        return Verdict.LOST, Reason.JUMPED if reached else Reason.LAG, readers

    def _readers(self, offset: int) -> list[Owner]:
        """The owners that may have read an offset: the last one that was assigned at or below it and read on;
        and later ones that began beyond it, or whose beginning is not known. An earlier owner's records had to be read
        again by that last one. If the order of the owners is not known, all of them count."""
        found: list[Owner] = []
        for each in reversed(self.owners):
            if each.position is None and not each.read_below(offset):
                if not each.has_told(offset):  # its beginning has not come: it may have read there
                    found.append(each)
            elif each.position is None or each.position <= offset:
                found.append(each)
                if each.read_below(offset) and not self._out_of_order:
                    break
        return found[::-1]

    def _goes_back(self) -> bool:
        """Whether an owner began below the position of an earlier one without a reset, as when clocks differ."""
        said = 0
        for each in self.owners:
            if each.position is not None and each.position < said and each.trigger != "reset":
                return True
            said = max(said, each.said or 0)
        return False

    def _may_have_had_others(self, readers: list[Owner]) -> bool:
        """Whether there may have been owners, after the first of these, without any event: a hole in the epochs shows
        them. Without epochs, any run with missing events may have been one."""
        if not self._counted:
            return self.rules.doubted or self._out_of_order
        first = min((each.epoch or 0 for each in readers), default=0)
        epochs = {each.epoch or 0 for each in self.owners if (each.epoch or 0) >= first}
        return bool(epochs) and len(epochs) <= max(epochs) - min(epochs)

    def _was_reset_beyond(self, offset: int, readers: list[Owner]) -> bool:
        if any(each.said is not None and each.said > offset for each in readers):
            return False
        last = max((each.turn for each in readers), default=0)
        after = (each for each in self.owners if each.turn > last)
        return any(each.trigger == "reset" and (each.position or 0) > offset for each in after)
