"""A group's events as they come: the rows that are final, and a state that stays small. START HERE. Pure; one thread.

The clock is the events' own. Each member tells all it does in its order, so what is older than the last word of each
member that is waited for, by `lateness_s`, is settled. Spans that are settled and no more needed for a rebalance are
merged, run by run, so that what is kept grows with rebalances and repetitions, not with records; and what is older
than `remember_s` is forgotten.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.plugin.audit.schema import NO_RECORDS, Outcome
from holdfast.tools.audit_report.judge.changing import Near, Turns, gathered, rows_of
from holdfast.tools.audit_report.judge.compact import merged
from holdfast.tools.audit_report.judge.hearing import hear, pass_over
from holdfast.tools.audit_report.judge.kept import FIRST, OLD, OUTCOMES, RUN, SEQ, Kept, LiveSettings
from holdfast.tools.audit_report.judge.lost_and_repeated import Rules, Sweep
from holdfast.tools.audit_report.judge.owner import Owner
from holdfast.tools.audit_report.judge.times import early_ms
from holdfast.tools.audit_report.judge.totals import Totals
from holdfast.tools.audit_report.tables import OWNERSHIP
from holdfast.tools.audit_report.verdicts import Ended, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.tools.audit_report.judge.changing import Rebalance
    from holdfast.tools.audit_report.judge.kept import JudgedPartition, Run

    Row = dict[str, Any]

_COVERS = Outcome.ABSENT.value


class LiveGroup:
    """Feed it, then ask what is final."""

    def __init__(self, group: str, settings: LiveSettings | None = None) -> None:
        self.group = group
        self.settings = settings or LiveSettings()
        self._kept = Kept()
        self._rows: list[tuple[str, Row]] = []

    def feed(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Events of the group, those of a run in their order; what is not beyond the last one is a repetition. A stamp
        has to be whole."""
        for what, row in hear(self._kept, events):
            if what == "lag":  # all keys would have to be kept; and reports come long after their rebalance
                self._tell(what, row)

    def unreadable(self, runs: Iterable[str]) -> None:
        """Lines of the group that are no events: the run of each, "" where it does not say it. A run of which nothing
        else comes may have done anything: from now on nothing is lost, it is unknown."""
        pass_over(self._kept, runs)

    def settle(self) -> list[tuple[str, Row]]:
        """Tables' names and rows that have become final."""
        kept, quiet_ms = self._kept, _ms(self.settings.quiet_s)
        recent_ms = kept.newest_ms - quiet_ms
        waited_for = [each.last_ms for each in kept.runs.values() if not each.stopped and each.last_ms >= recent_ms]
        return self._settle(min(waited_for, default=kept.newest_ms) - _ms(self.settings.lateness_s), recent_ms)

    def silence(self) -> list[tuple[str, Row]]:
        """Judge the rest as final. Call it when no event has come for so long that none will."""
        newest_ms, after_s = self._kept.newest_ms, self.settings.gather_s + self.settings.after_s
        return self._settle(newest_ms + _ms(after_s) + 1000, newest_ms + 1)

    def state(self) -> dict[str, Any]:
        """For JSON, at once: see `Kept.state`."""
        return {"group": self.group} | self._kept.state()

    @classmethod
    def restored(cls, state: Mapping[str, Any], settings: LiveSettings) -> LiveGroup:
        """Read what `state` gave.

        Raises:
            SettingError: another version of holdfast gave it.
        """
        made = cls(state["group"], settings)
        made._kept = Kept.restored(state)
        return made

    # -- rows out ------------------------------------------------------------------------------------------------------

    def _settle(self, until_ms: int, recent_ms: int) -> list[tuple[str, Row]]:
        """`recent_ms`: a run without an event since then counts as dead."""
        kept = self._kept
        if until_ms > kept.settled_ms:
            kept.settled_ms = until_ms
            self._settle_intake()
            self._settle_rebalances()
            for where, place in kept.places.items():
                self._settle_place({"topic": where[0], "partition": where[1]}, place, recent_ms)
            for name, run in kept.runs.items():
                self._settle_run(name, run, recent_ms)
            self._sum_up()
            self._forget()
        elif not kept.runs and kept.counts:
            self._sum_up()
        rows, self._rows = self._rows, []
        return rows

    def _tell(self, table: str, row: Row) -> None:
        self._rows.append((table, {"group": self.group} | row))

    def _settle_intake(self) -> None:
        kept = self._kept
        for run, second in [each for each in kept.intake if each[1] + 1000 <= kept.settled_ms]:
            records, handled = kept.intake.pop((run, second))
            row = {"member": kept.member(run), "run": run, "second_ms": second}
            self._tell("intake", row | {"records": records, "handled": handled})

    def _sum_up(self) -> None:
        totals = Totals()
        for table, row in self._rows:
            totals.add(table, row)
        self._tell("summary", totals.row(self._kept) | {"producer": None})
        self._kept.counts = {}

    def _settle_rebalances(self) -> None:
        kept, turns = self._kept, Turns(self._kept.places)
        for each in gathered(kept.changes, self.settings):
            if each.ended_ms <= kept.told_ms:
                continue
            waiting = each.last and each.ended_ms + _ms(self.settings.gather_s) > kept.settled_ms
            if waiting or each.until_ms > kept.settled_ms:
                break
            for table, row in rows_of(each, each.began_ms, turns, self._near(each)):
                self._tell(table, row)
            kept.told_ms = each.ended_ms

    def _near(self, rebalance: Rebalance) -> list[Near]:
        found = []
        for where, place in self._kept.places.items():
            for _, _, outcome, records, began, ended, run, *_ in place.spans:
                if outcome not in NO_RECORDS and rebalance.from_ms <= ended <= rebalance.until_ms:
                    found.append(Near(early_ms(began, ended, records), ended, run, *where, records))
        return sorted(found)

    def _settle_run(self, name: str, run: Run, recent_ms: int) -> None:
        settled = run.last_ms < self._kept.settled_ms and (run.stopped or run.last_ms < recent_ms)
        if run.ended or not settled:
            return
        run.ended = True
        how = Ended.KILLED
        if run.stopped:
            how = Ended.CLEAN if run.clean else Ended.UNCLEAN
        else:
            self._kept.count("killed")
        self._tell("members", run.row(name, how))

    def _settle_place(self, at: Row, place: JudgedPartition, recent_ms: int) -> None:
        heard = place.hear(self._kept.settled_ms)
        place.close(self._kept.runs)
        if heard or place.records or any(not each[OLD] for each in place.spans):
            self._sweep(at, place, self._rules(recent_ms))
        for owner in place.owners:
            self._settle_owner(at, place, owner, recent_ms)
        asked = self.settings
        keep_ms = self._kept.settled_ms - _ms(asked.before_s + asked.after_s)
        remember_ms = self._kept.settled_ms - _ms(asked.remember_s)
        place.spans, place.floor = merged(place.spans, place.floor, keep_ms, remember_ms)

    def _rules(self, recent_ms: int) -> Rules:
        kept = self._kept
        doubted = any(
            not each.complete and (each.stopped or not each.sound or each.last_ms < recent_ms)
            for each in kept.runs.values()
        )
        return Rules(final=False, unheard=bool(kept.unheard), doubted=doubted)

    def _sweep(self, at: Row, place: JudgedPartition, rules: Rules) -> None:
        settled_ms = self._kept.settled_ms
        found = [replace(each) for each in place.owners if each.from_ms < settled_ms]
        for owner in found:
            owner.unread()
        sweep = Sweep(found, rules)
        place.spans.sort(key=lambda each: (each[FIRST], each[RUN], each[SEQ]))
        nobody = Owner(run="", member="", turn=0, complete=True)
        if place.floor:
            sweep.span(nobody, 0, place.floor, _COVERS, 0, 0, 0, True)
        for each in place.spans:
            first, next_, outcome, records, began, ended, run, epoch, seq, old = each
            owner = sweep.owner(run, epoch, seq)
            if ended >= settled_ms:
                outcome = _COVERS  # its executions count when it is settled
            else:
                each[OLD] = True
            sweep.span(owner, first, next_, outcome, records, began, ended, old)
        coverage = sweep.close()
        place.begin = coverage["begin"] if place.begin is None else place.begin
        for row in sweep.gaps:
            self._tell("gaps", at | row)
            place.spans.append([row["first"], row["next"], _COVERS, 0, 0, settled_ms - 1, "", None, 0, True])
        for row in sweep.duplicates:
            self._tell("duplicates", at | row)
        since = {outcome: place.records.get(outcome, 0) for outcome in OUTCOMES}
        place.records.clear()
        nothing = {Verdict.PENDING.value: None}  # a later owner reads from the positions
        self._tell("coverage", at | coverage | since | nothing | {"begin": place.begin})

    def _settle_owner(self, at: Row, place: JudgedPartition, owner: Owner, recent_ms: int) -> None:
        run = self._kept.runs.get(owner.run)
        to_ms, ended_by = owner.to_ms, owner.ended_by
        if ended_by is None and run is not None and run.last_ms < recent_ms:
            to_ms, ended_by = run.last_ms, "killed"
        key = [owner.run, owner.from_seq]
        if ended_by is None or to_ms is None or to_ms >= self._kept.settled_ms or key in place.told:
            return
        place.told.append(key)
        row = {name: getattr(owner, name) for name in OWNERSHIP.names if name not in ("group", "topic", "partition")}
        self._tell("ownership", at | row | {"to_ms": to_ms, "ended_by": ended_by})

    # -- what is kept --------------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        kept, asked = self._kept, self.settings
        old_ms = kept.settled_ms - _ms(asked.remember_s)
        kept.runs = {run: each for run, each in kept.runs.items() if each.heard_ms >= old_ms}
        kept.unheard = {run: at_ms for run, at_ms in kept.unheard.items() if at_ms >= old_ms}
        recent_ms = kept.told_ms - _ms(asked.gather_s + asked.before_s)
        kept.changes = [each for each in kept.changes if each.at_ms >= recent_ms]
        for place in kept.places.values():
            last = place.owners[-1:]
            place.owners = [each for each in place.owners[:-1] if self._is_recent(each, old_ms)] + last
            known = [[each.run, each.from_seq] for each in place.owners]
            place.told = [each for each in place.told if each in known]

    def _is_recent(self, owner: Owner, old_ms: int) -> bool:
        run = self._kept.runs.get(owner.run)
        if owner.to_ms is None or run is None:
            return run is not None
        return owner.to_ms + run.heard_ms - run.last_ms >= old_ms


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
