"""A group whose events are all there: START HERE. Its rows, in one pass over them. Pure but for temporary files.

It hears as the group of a stream does (`live.py`), and judges by the same rules; but nothing is final before the end,
so nothing is said too soon. What grows with records is sorted outside of memory; what is held are runs, ownerships and
changes of hands.

The audit's judge wants events in the order of run and number, group by group, and nothing else: no order of time, none
of files. So members' clocks decide nothing but what is told as a time. A stream's has no such order, and settles by the
clocks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from contextlib import ExitStack, closing
from itertools import groupby, islice, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.plugin.audit.schema import NO_RECORDS
from holdfast.tools.audit_report.judge.changing import Near, Turns, gathered, rows_of
from holdfast.tools.audit_report.judge.hearing import hear
from holdfast.tools.audit_report.judge.kept import OUTCOMES, Kept, by_turn
from holdfast.tools.audit_report.judge.keys import Keys
from holdfast.tools.audit_report.judge.lost_and_repeated import Rules, Sweep
from holdfast.tools.audit_report.judge.shares import Shares
from holdfast.tools.audit_report.judge.sorting import Sorter
from holdfast.tools.audit_report.judge.times import early_ms
from holdfast.tools.audit_report.judge.totals import Totals
from holdfast.tools.audit_report.tables import OWNERSHIP
from holdfast.tools.audit_report.verdicts import Ended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from holdfast.tools.audit_report.judge.changing import Rebalance
    from holdfast.tools.audit_report.judge.kept import JudgedPartition
    from holdfast.tools.audit_report.judge.overview import Overview
    from holdfast.tools.audit_report.judge.settings import AuditSettings

    Row = dict[str, Any]
    Told = Iterator[tuple[str, Row]]

Key = TypeVar("Key")

#: Events after which what they said of spans goes to be sorted.
_AT_ONCE = 512
#: Spans after which a sweep is asked for what it has found.
_SOME = 4096
_NO_RECORDS = frozenset(each.value for each in NO_RECORDS)
_OWNED = tuple(name for name in OWNERSHIP.names if name not in ("group", "topic", "partition"))


def judged(group: str, events: Iterable[Mapping[str, Any]], overview: Overview, asked: AuditSettings) -> Told:
    """Tables' names and rows.

    Args:
        group: its name.
        events: all of the group's, in the order of run and number.
        overview: of the whole input.
        asked: what is asked.
    """
    with ExitStack() as stack:
        whole = _Whole(group, overview, asked, stack)
        for table, row in whole.rows(events):
            yield table, {"group": group} | row


class _Whole:
    def __init__(self, group: str, overview: Overview, asked: AuditSettings, stack: ExitStack) -> None:
        self._group, self._overview, self._asked = group, overview, asked
        self._kept, self._totals = Kept(), Totals()
        self._reports: list[Row] = []
        self._spans, self._near = stack.enter_context(closing(Sorter())), stack.enter_context(closing(Sorter()))
        self._keys, self._shares = stack.enter_context(closing(Keys())), stack.enter_context(closing(Shares()))
        self._recent_ms = overview.last_ms - int(asked.quiet_s * 1000)
        self._overtaken: frozenset[str] = frozenset()

    def rows(self, events: Iterable[Mapping[str, Any]]) -> Told:
        """All of them, without the group's name."""
        coming = iter(events)
        while some := list(islice(coming, _AT_ONCE)):
            yield from self._heard(some)
        for table, row in self._judged():
            self._totals.add(table, row)
            yield table, row
        for row in self._shares.rows():
            yield "intake", {"member": self._kept.member(row["run"])} | row
        row = self._totals.row(self._kept) | self._overview.summary(self._group)
        yield "summary", row if self._keys.asked_for else row | {"producer": None}

    def _heard(self, events: Sequence[Mapping[str, Any]]) -> Told:
        kept = self._kept
        for what, row in hear(kept, events):
            if what == "lag":
                yield what, row
            elif what == "keys":
                self._keys.add(row)
            else:
                self._reports.append(row)
        for where, place in kept.places.items():
            self._spans.extend(
                [
                    (*where, first, run, seq, next_, outcome, records, began, ended, epoch)
                    for first, next_, outcome, records, began, ended, run, epoch, seq, _ in place.spans
                ]
            )
            place.spans.clear()
            place.hear(float("inf"))
        for (run, second_ms), sums in kept.intake.items():
            self._shares.add(run, second_ms, *sums)
        kept.intake.clear()

    # -- when all is heard ---------------------------------------------------------------------------------------------

    def _judged(self) -> Told:
        kept = self._kept
        for run in kept.runs.values():
            run.complete = run.complete and run.sound  # something may have come after its last word
        self._overtaken = frozenset(_overtaken(kept))
        rules, rebalances = self._rules(), gathered(kept.changes, self._asked)
        near = _Nearness(rebalances, self._near)
        for where, spans in _each(sorted(kept.places), self._spans, itemgetter(0, 1)):
            at = {"topic": where[0], "partition": where[1]}
            for table, row in self._place(kept.places[where], spans, rules, near):
                yield table, at | row
        turns = Turns(kept.places)
        reports = self._reported(rebalances)
        for number, rows in _each(range(len(rebalances)), self._near, itemgetter(0)):
            spans_near = [Near(*row[1:]) for row in rows]
            for table, row in rows_of(rebalances[number], number, turns, spans_near):
                yield table, row | reports[number] if table == "rebalances" else row
        for row in self._keys.rows():
            yield "duplicate_keys", row
        kept.counts["killed"] = sum(self._how(each) is Ended.KILLED for each in kept.runs)
        shares = self._shares.of({name: (each.from_ms, each.last_ms) for name, each in kept.runs.items()})
        for name, run in kept.runs.items():
            yield "members", run.row(name, self._how(name)) | shares[name]

    def _place(self, place: JudgedPartition, spans: Iterable[tuple[Any, ...]], rules: Rules, near: _Nearness) -> Told:
        """Args: spans: in the order of their offsets."""
        place.close(self._kept.runs)
        for owner in place.owners:
            owner.unread()
            run = self._kept.runs[owner.run]
            if owner.ended_by is None and self._how(owner.run) is Ended.KILLED:
                owner.to_ms, owner.ended_by = run.last_ms, "killed"
        sweep = Sweep(place.owners, rules)
        last_name, last_seq, last_epoch = "", -1, None
        for number, (*where, first, name, seq, next_, outcome, records, began, ended, epoch) in enumerate(spans, 1):
            if seq != last_seq or name != last_name or epoch != last_epoch:  # most come event by event
                owner = sweep.owner(name, epoch, seq)
                last_name, last_seq, last_epoch = name, seq, epoch
            sweep.span(owner, first, next_, outcome, records, began, ended, False)
            if outcome not in _NO_RECORDS and (rebalances := near.of(ended)):
                near.add(rebalances, Near(early_ms(began, ended, records), ended, name, where[0], where[1], records))
            if number % _SOME == 0:
                yield from sweep.take()
        coverage = sweep.close()
        yield from sweep.take(all_of_it=True)
        for each in place.owners:
            yield "ownership", {name: getattr(each, name) for name in _OWNED}
        yield "coverage", coverage | {name: place.records.get(name, 0) for name in OUTCOMES}

    def _how(self, name: str) -> Ended:
        run = self._kept.runs[name]
        if run.stopped:
            return Ended.CLEAN if run.clean else Ended.UNCLEAN
        alive = run.last_ms >= self._recent_ms and name not in self._overtaken
        return Ended.ALIVE if alive else Ended.KILLED

    def _rules(self) -> Rules:
        runs = self._kept.runs.items()
        ends = [self._how(name) for name, _ in runs]
        doubted = any(
            not run.complete and (how is not Ended.ALIVE or not run.sound or name in self._overview.cut)
            for (name, run), how in zip(runs, ends, strict=True)
        )
        return Rules(
            over=all(how is Ended.CLEAN for how in ends),
            all_of_it=self._asked.complete,
            unheard=self._overview.casts_doubt_on(self._group),
            doubted=doubted,
        )

    def _reported(self, rebalances: Sequence[Rebalance]) -> list[Row]:
        """The members' own reports of each rebalance: they are told when all is over, so they are of the last one that
        had begun."""
        names = ("drained", "abandoned", "handed_back", "suppressed")
        found: list[Row] = [dict.fromkeys(names) for _ in rebalances]
        begins = [each.began_ms for each in rebalances]
        for report in self._reports:
            number = bisect_right(begins, report["at_ms"]) - 1
            for name in names if number >= 0 else ():
                found[number][name] = (found[number][name] or 0) + report[name]
        return found


def _overtaken(kept: Kept) -> Iterator[str]:
    """Runs of which a partition went to another, and of which nothing was heard from then on, not even that it went:
    however late in the events that is."""
    for place in kept.places.values():
        for owner, next_ in pairwise(by_turn(place.owners)):
            run = kept.runs.get(owner.run)
            if run is not None and owner.ended_by is None and owner.run != next_.run and run.last_ms < next_.from_ms:
                yield owner.run


class _Nearness:
    """Spans, to those rebalances that they are near."""

    def __init__(self, rebalances: Sequence[Rebalance], near: Sorter) -> None:
        self._from = [each.from_ms for each in rebalances]
        self._until = [each.until_ms for each in rebalances]
        self._near = near

    def of(self, ended_ms: int) -> range:
        """To which of them a span is near."""
        return range(bisect_left(self._until, ended_ms), bisect_right(self._from, ended_ms))

    def add(self, rebalances: range, span: Near) -> None:
        """In any order."""
        for number in rebalances:
            self._near.add((number, *span))


def _each(
    keys: Iterable[Key], rows: Iterable[tuple[Any, ...]], key: Callable[[tuple[Any, ...]], Key]
) -> Iterator[tuple[Key, Iterable[tuple[Any, ...]]]]:
    """Each key, and its rows; both ascend."""
    groups = groupby(rows, key)
    upcoming = next(groups, None)
    for each in keys:
        if upcoming is not None and upcoming[0] == each:
            yield each, upcoming[1]
            upcoming = next(groups, None)
        else:
            yield each, ()
