"""Each sum that an audit shows is the ledger's, counted by other means: figures, JSON, text and page."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.adapters.cli.audit_output import _FIGURES, tell
from holdfast.adapters.cli.output import Output
from holdfast.adapters.parquet.tables import ParquetTables
from holdfast.adapters.parquet.writing import write_tables
from holdfast.adapters.sqlite.tables import SqliteTables
from holdfast.plugin.audit.schema import COVERING, NO_RECORDS, Outcome
from holdfast.plugin.audit.spans import SpanMerger
from holdfast.tools.audit_report.judge.live import LiveGroup
from holdfast.tools.audit_report.judge.overview import Overview
from holdfast.tools.audit_report.judge.settings import AuditSettings
from holdfast.tools.audit_report.judge.whole import judged
from holdfast.tools.audit_report.pages import build, over_time
from holdfast.tools.audit_report.pages.build import audit_of
from holdfast.tools.audit_report.pages.page import page
from holdfast.tools.audit_report.pages.words import remarks
from holdfast.tools.audit_report.verdicts import Cause, Verdict
from tests.tiers import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.tools.audit_report.pages.model import Audit, GroupAudit

    Row = dict[str, Any]

_AT_MS = 1_700_000_000_000
#: The last two have one name where topic and partition are put together.
_PLACES = (("orders", "0"), ("orders", "1"), ("t", "a-1"), ("t-a", "1"))
_RUNS = tuple(f"{number + 1:016x}" for number in range(3))
_ENDED = (Outcome.HANDLED, Outcome.SKIPPED_POSITION, Outcome.SKIPPED_KEY, Outcome.DEAD_LETTERED, Outcome.SENT_BACK)
_BESIDE = (Outcome.FAILED, Outcome.CLIENT_SKIPPED)
_LONG = 8


class Turn(NamedTuple):
    """A run has a partition for a while."""

    place: int
    run: int
    begin: int
    #: From `begin` on: what became of each record. None: it was passed over.
    ends: tuple[tuple[Outcome, ...] | None, ...]
    #: So many offsets are told at once.
    flush: int
    trigger: str
    given: str | None
    waits_ms: int


@dataclass(slots=True)
class Ledger:
    """The events of a group, and what they come to: counted here, record by record, and nowhere else."""

    name: str
    logs: tuple[tuple[bool, ...], ...]
    now: int = _AT_MS
    runs: dict[str, list[Row]] = field(default_factory=dict, repr=False)
    told: list[tuple[str, tuple[str, str], int, Outcome]] = field(default_factory=list)
    reached: dict[tuple[str, str], int] = field(default_factory=dict)
    begins: dict[tuple[str, str], int] = field(default_factory=dict)

    def say(self, run: str, kind: str, **fields: Any) -> None:
        events = self.runs.setdefault(run, [])
        self.now += 7
        stamp = {"v": 1, "kind": kind, "group": self.name, "member": f"m{run[-1]}", "run": run}
        events.append(stamp | {"seq": len(events), "at_ms": self.now, "dropped": 0} | fields)

    def play(self, turn: Turn, epoch: int) -> None:
        where, run, log = _PLACES[turn.place], _RUNS[turn.run], self.logs[turn.place]
        if run not in self.runs:
            self.say(run, "started", protocol="eager", source="loop", settings={})
        self.now += turn.waits_ms
        at: Row = {"topic": where[0], "partition": where[1], "epoch": epoch, "end": _LONG, "in_flight": 0}
        self.say(run, "assigned", trigger=turn.trigger, partitions=[at | {"position": turn.begin}])
        self.begins[where] = min(self.begins.get(where, turn.begin), turn.begin)
        self.reached[where] = max(self.reached.get(where, 0), turn.begin)
        position = turn.begin
        for first in range(0, len(turn.ends), turn.flush):
            merger, began = SpanMerger(), self.now
            for ends in turn.ends[first : first + turn.flush]:
                self.now += 11
                for outcome in (Outcome.ABSENT,) if ends is not None and not log[position] else ends or ():
                    merger.add(outcome, range(position, position + 1), (began, self.now))
                    self.told.append((run, where, position, outcome))
                position += 1
            spans = [
                {name: getattr(each, name) for name in ("first", "next", "outcome", "records", "began_ms", "ended_ms")}
                for each in merger.take()
            ]
            names = {"topic": where[0], "partition": where[1], "epoch": epoch}
            self.say(run, "span", **names, spans=spans, keys=None, ordered=True)
            self.say(run, "progress", partitions=[at | {"position": position}])
            self.reached[where] = max(self.reached[where], position)
        if turn.given:
            self.say(run, "revoked", trigger=turn.given, partitions=[at | {"position": position}])

    def stop(self, run: str) -> None:
        self.say(run, "stopped", clean=True, records=self.by_outcome(run), in_hand=0, error=None)

    # -- what it comes to ----------------------------------------------------------------------------------------------

    def by_outcome(self, run: str | None = None) -> dict[str, int]:
        counted = Counter(outcome.value for each, _, _, outcome in self.told if run in (None, each))
        counted.pop(Outcome.ABSENT.value, None)
        return dict(counted)

    def handled(self) -> Counter[tuple[tuple[str, str], int]]:
        return Counter((where, offset) for _, where, offset, outcome in self.told if outcome is Outcome.HANDLED)

    def uncovered(self, *, to_the_end: bool) -> int:
        covered = {(where, offset) for _, where, offset, outcome in self.told if outcome in COVERING}
        ends = {where: _LONG if to_the_end else reached for where, reached in self.reached.items()}
        every = {(where, offset) for where, end in ends.items() for offset in range(self.begins[where], end)}
        return len(every - covered)

    def lines(self) -> list[Row]:
        return [json.loads(json.dumps(each)) for run in sorted(self.runs) for each in self.runs[run]]


@st.composite
def ledgers(draw: st.DrawFn, *, holes: bool) -> Ledger:
    """Args: holes: logs may have offsets without a record."""
    here = st.just(True) if not holes else st.booleans()
    logs = tuple(tuple(draw(here) for _ in range(_LONG)) for _ in _PLACES)
    ledger = Ledger(draw(st.sampled_from(["billing", "a<b>&c", "third"])), logs)
    ends = st.lists(st.sampled_from(_BESIDE), max_size=1).flatmap(
        lambda beside: st.lists(st.sampled_from(_ENDED), min_size=1, max_size=2).map(lambda each: (*beside, *each))
    )
    turns = draw(st.lists(_turns(ends), min_size=1, max_size=6))
    last: dict[int, int] = {}
    for epoch, turn in enumerate(turns, 1):
        begin = turn.begin if turn.trigger == "reset" else min(turn.begin, last.get(turn.place, 0))
        ledger.play(turn._replace(begin=begin, ends=turn.ends[: _LONG - begin]), epoch)
        last[turn.place] = min(begin + len(turn.ends), _LONG)
    for run in sorted(ledger.runs):
        if draw(st.booleans()):
            ledger.stop(run)
    return ledger


def _turns(ends: st.SearchStrategy[tuple[Outcome, ...]]) -> st.SearchStrategy[Turn]:
    return st.builds(
        Turn,
        place=st.integers(0, len(_PLACES) - 1),
        run=st.integers(0, len(_RUNS) - 1),
        begin=st.integers(0, _LONG - 1),
        ends=st.lists(st.one_of(ends, ends, st.none()), max_size=_LONG).map(tuple),
        flush=st.integers(1, _LONG),
        trigger=st.sampled_from(["assigned", "assigned", "reset"]),
        given=st.sampled_from(["revoked", "lost", None]),
        waits_ms=st.sampled_from([0, 900, 70_000]),
    )


def whole(ledgers: list[Ledger]) -> Iterator[tuple[str, Row]]:
    """As of files, which are read elsewhere."""
    last_ms = max(each.now for each in ledgers)
    seen = [(each.name, run, events[-1]["at_ms"], 0) for each in ledgers for run, events in each.runs.items()]
    for each in ledgers:
        yield from judged(each.name, each.lines(), Overview.of(seen), AuditSettings(quiet_s=(last_ms - _AT_MS) / 1000))


def streamed(ledger: Ledger, at_once: int, late: str) -> Iterator[tuple[str, Row]]:
    """As they come: by their times, but that those of one run come after all others."""
    group = LiveGroup(ledger.name)
    events = sorted(ledger.lines(), key=lambda each: (each["run"] == late, each["at_ms"]))
    for first in range(0, len(events), at_once):
        group.feed(events[first : first + at_once])
        yield from group.settle()
    yield from group.silence()


def sums(ledger: Ledger, group: GroupAudit) -> dict[str, tuple[object, object]]:
    """Name -> what the figures say, and what the ledger comes to."""
    handled, by_outcome = ledger.handled(), ledger.by_outcome()
    repeats = sum(group.repeats.values())
    return {
        "executions": (group.executions, sum(handled.values())),
        "records": (group.records, len(handled)),
        "repeats": (repeats, sum(handled.values()) - len(handled)),
        "suppressed": (
            group.suppressed,
            by_outcome.get("skipped_position", 0) + by_outcome.get("skipped_key", 0),
        ),
        "dead lettered": (group.dead_lettered, by_outcome.get("dead_lettered", 0)),
        "client skipped": (group.client_skipped, by_outcome.get("client_skipped", 0)),
        "processes": (group.processes, len(ledger.runs)),
        "partitions": (group.partitions, len(ledger.begins)),
    }


def wrong(pairs: dict[str, tuple[object, object]]) -> dict[str, tuple[object, object]]:
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


_SLOW = [HealthCheck.too_slow]


@settings(max_examples=examples(120), suppress_health_check=_SLOW)
@given(ledgers(holes=False))
def test_the_figures_of_files_are_the_ledgers(ledger: Ledger) -> None:
    with SqliteTables() as tables:
        tables.add(whole([ledger]))
        [group] = audit_of(tables).groups
        figures = sums(ledger, group)
    assert not (fault := wrong(figures | lists(ledger, group))), fault
    assert sum(group.gaps.values()) == ledger.uncovered(to_the_end=True)


@settings(max_examples=examples(120), suppress_health_check=_SLOW)
@given(ledgers(holes=True))
def test_where_logs_have_holes_repetitions_are_told_at_most_and_records_at_least(ledger: Ledger) -> None:
    with SqliteTables() as tables:
        tables.add(whole([ledger]))
        [group] = audit_of(tables).groups
    handled, repeats = ledger.handled(), sum(group.repeats.values())
    assert bool(handled) <= group.records <= len(handled)
    assert repeats >= sum(handled.values()) - len(handled)
    exact = {"records", "repeats"}
    assert {name for name in wrong(sums(ledger, group)) if name not in exact} == set()
    assert sum(group.gaps.values()) == ledger.uncovered(to_the_end=True)


@settings(max_examples=examples(120), suppress_health_check=_SLOW)
@given(ledgers(holes=False), st.integers(1, 30), st.sampled_from(["", *_RUNS]))
def test_the_figures_of_a_stream_are_the_ledgers_though_it_takes_nothing_back(
    ledger: Ledger, at_once: int, late: str
) -> None:
    with SqliteTables() as tables:
        tables.add(streamed(ledger, at_once, late))
        [group] = audit_of(tables).groups
    assert {each.run: each.handled for each in group.runs.rows} == by_run(ledger, Outcome.HANDLED)
    assert (len(group.runs.rows), group.runs.total) == (len(ledger.runs), len(ledger.runs))
    assert not (fault := wrong(sums(ledger, group))), fault
    assert sum(group.gaps.values()) >= ledger.uncovered(to_the_end=False), "what was said to be lost stays said"


@settings(max_examples=examples(45), suppress_health_check=_SLOW)
@given(st.tuples(ledgers(holes=False), ledgers(holes=True)).filter(lambda two: two[0].name != two[1].name))
def test_the_figures_do_not_hang_on_how_much_is_listed_nor_on_where_the_tables_are(
    both: tuple[Ledger, Ledger],
) -> None:
    with SqliteTables() as tables, TemporaryDirectory() as folder:
        tables.add(whole(list(both)))
        write_tables(Path(folder), tables.rows)
        audit = audit_of(tables)
        other = audit_of(ParquetTables(folder))
        for one, two in zip(audit.groups, other.groups, strict=True):
            for name in one.__slots__:
                assert getattr(one, name) == getattr(two, name), (name, getattr(one, name), getattr(two, name))
        with (
            patch.multiple(build, **_FEW),
            patch.object(over_time, "_MOST_OWNED", 1),
        ):
            few = audit_of(tables)
    assert figures_of(few) == figures_of(audit)
    said = told(few)
    for group, all_of_it in zip(few.groups, audit.groups, strict=True):
        assert unnamed(group) == unnamed(all_of_it)
        [head] = [each for each in said if each["type"] == "group" and each["group"] == group.group]
        rows = Counter(each["type"] for each in said if each.get("group") == group.group)
        if group.detailed:
            assert rows["run"] + head["left_out"].get("run", 0) == group.processes
            assert rows["rebalance"] + head["left_out"].get("rebalance", 0) == group.rebalances.total


@settings(max_examples=examples(60), suppress_health_check=_SLOW)
@given(st.tuples(ledgers(holes=False), ledgers(holes=False)).filter(lambda two: two[0].name != two[1].name))
def test_json_text_and_page_show_the_same_figures(both: tuple[Ledger, Ledger]) -> None:
    with SqliteTables() as tables:
        tables.add(whole(list(both)))
        audit = audit_of(tables)
    cells, said = Cells(page(audit)), told(audit)
    for ledger in both:
        [group] = [each for each in audit.groups if each.group == ledger.name]
        [head] = [each for each in said if each["type"] == "group" and each["group"] == ledger.name]
        pairs = sums(ledger, group)
        assert {name: head[name] for name in _IN_JSON} == {name: pairs[_IN_JSON[name]][1] for name in _IN_JSON}
        assert sum(head["repeats"].values()) == pairs["repeats"][1]
        assert sum(head[each] for each in Verdict) == ledger.uncovered(to_the_end=True)
        mine = [each for each in said if each.get("group") == ledger.name]
        for row in (each for each in mine if each["type"] == "lag"):
            assert row["lag"] == max(row["end"] - row["position"], 0)
        assert sum(row["records"] for row in mine if row["type"] == "gap") == sum(
            head[each] for each in (Verdict.LOST, Verdict.EXPIRED, Verdict.UNKNOWN)
        )
        assert sum(row["records"] * row["repeats"] for row in mine if row["type"] == "duplicate") == pairs["repeats"][1]
        on_page = cells.figures[[each.group for each in audit.worst_first].index(ledger.name)]
        assert on_page["ran again"] == f"{sum(head['repeats'].values()) - head['repeats'][Cause.RESET]:,}"
        assert (on_page["lost"], on_page["unknown"]) == (f"{head['lost']:,}", f"{head['unknown']:,}")
        assert on_page["known, skipped"] == f"{head['suppressed']:,}"
    [of_all] = [rows for name, rows in cells.tables if name == "Groups"]
    assert of_all == [
        [each.group, *(f"{number:,}" for number in (each.processes, each.partitions, each.records, each.lost))]
        + [f"{number:,}" for number in (each.unknown, each.repeated, each.behind, each.rebalances.total)]
        for each in audit.worst_first
    ]
    records = f"{sum(len(each.handled()) for each in both):,} record"
    assert f"of {records}" in cells.heading
    assert cells.heading == said[0]["verdict"]


def test_of_a_compacted_log_that_ran_again_and_again_something_ran() -> None:
    """A record in ten: each owner handles three, and the next one begins at the second of them."""
    ledger = Ledger("compacted", (tuple(offset % 10 == 0 for offset in range(200)),))
    for epoch in range(10):
        ledger.play(Turn(0, 0, epoch * 10, ((Outcome.HANDLED,),) * 21, 30, "reset", "revoked", 0), epoch)
    with SqliteTables() as tables:
        tables.add(whole([ledger]))
        [group] = audit_of(tables).groups
    assert 0 < group.records <= len(ledger.handled())
    assert group.executions == 30


def test_an_execution_that_a_stream_hears_of_late_counts_once() -> None:
    """Between two that it has told of as one repetition."""
    ledger = Ledger("late", (((True,) * _LONG),) * len(_PLACES))
    for epoch, run in enumerate((0, 1, 2), 1):
        ledger.play(Turn(0, run, 0, ((Outcome.HANDLED,),) * _LONG, _LONG, "assigned", "revoked", 0), epoch)
        ledger.stop(_RUNS[run])
    ledger.now += 200_000
    ledger.say("f", "progress", partitions=[])  # time has passed
    group, rows = LiveGroup(ledger.name), list[tuple[str, "Row"]]()
    for runs in ((_RUNS[0], _RUNS[2]), (_RUNS[1], "f")):
        group.feed(each for each in ledger.lines() if each["run"] in runs)
        rows += group.silence()
    with SqliteTables() as tables:
        tables.add(rows)
        [told] = audit_of(tables).groups
    said = told.executions, told.records, sum(told.repeats.values())
    assert said == (3 * _LONG, _LONG, 2 * _LONG), said


def test_a_group_that_still_runs_has_its_losses_on_the_page_of_a_stream() -> None:
    ledger = Ledger("alive", (((True,) * _LONG),) * len(_PLACES))
    ledger.play(Turn(0, 0, 0, ((Outcome.HANDLED,), None, (Outcome.HANDLED,)), _LONG, "assigned", None, 0), 1)
    ledger.now += 60_000
    ledger.say(_RUNS[0], "progress", partitions=[])
    group = LiveGroup(ledger.name)
    group.feed(ledger.lines())
    with SqliteTables() as tables:
        tables.add(group.settle())
        audit = audit_of(tables)
    [told] = audit.groups
    assert (told.lost, told.runs.total, told.processes) == (1, 0, 1)
    assert [caption for caption, _ in Cells(page(audit)).tables][:1] == [
        "Records that no member is known to have handled"
    ]


# -- what else is counted ----------------------------------------------------------------------------------------------

_FEW: dict[str, Any] = dict.fromkeys(
    ("MOST_GROUPS", "_MOST_RUNS", "_MOST_FINDINGS", "_MOST_REBALANCES", "_MOST_PAUSES", "_MOST_LAGGING"), 1
)
_IN_JSON = {
    "executions": "executions",
    "records": "records",
    "suppressed": "suppressed",
    "dead_lettered": "dead lettered",
    "client_skipped": "client skipped",
    "processes": "processes",
    "partitions": "partitions",
}


def lists(ledger: Ledger, group: GroupAudit) -> dict[str, tuple[object, object]]:
    """As `sums`: of tables and curves, where nothing is left out."""
    told = Counter(outcome.value for _, _, _, outcome in ledger.told)
    ended = sum(count for outcome, count in told.items() if outcome not in NO_RECORDS)
    gaps = sum(group.gaps[each] for each in (Verdict.LOST, Verdict.EXPIRED, Verdict.UNKNOWN))
    intake = 0.0
    if group.intake is not None:
        intake = sum(value or 0 for each in group.intake.series for value in each.values) * group.intake.step_ms / 1000
    at_the_end = sum(each.lag or 0 for each in group.lagging.rows)
    return {
        "gaps": (sum(each.records for each in group.gap_rows.rows), gaps),
        "duplicates": (sum(each.records * each.repeats for each in group.duplicates.rows), sum(group.repeats.values())),
        "runs": ({each.run: each.handled for each in group.runs.rows}, by_run(ledger, Outcome.HANDLED)),
        "failed": ({each.run: each.failed for each in group.runs.rows}, by_run(ledger, Outcome.FAILED)),
        "intake": (round(intake, 6), ended),
        "lag": (0 if group.lag is None else group.lag.series[0].values[-1], at_the_end),
        "owned": (sorted(each.partition for each in group.owned.rows), sorted(map("-".join, ledger.begins))),
        "stop": (
            max((each.stop_s for each in group.rebalances.rows if each.stop_s is not None), default=None),
            group.stop_s,
        ),
        "pause": (
            max((each.pause_s for each in group.rebalances.rows if each.pause_s is not None), default=None),
            group.pause_s,
        ),
    }


def by_run(ledger: Ledger, outcome: Outcome) -> dict[str, int]:
    return {run: ledger.by_outcome(run).get(outcome.value, 0) for run in ledger.runs}


def unnamed(group: GroupAudit) -> list[str]:
    """The remarks on a group, without members' names: a list of members that is cut has fewer."""
    return [each.partition(": m")[0] for each in remarks(group)]


def figures_of(audit: Audit) -> list[dict[str, Any]]:
    """But for lists, curves and names."""
    return [
        {name: getattr(each, name) for name in (*_FIGURES, "gaps", "repeats", "sent_twice") if name != "detailed"}
        | {"rebalances": each.rebalances.total}
        for each in audit.groups
    ]


def told(audit: Audit) -> list[Row]:
    """As JSON."""
    out = io.StringIO()
    tell(audit, Output(as_json=True, out=out, err=io.StringIO()))
    return [json.loads(line) for line in out.getvalue().splitlines()]


class Cells(HTMLParser):
    """The page's heading, the figures of each group, and all tables: caption and rows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.heading = ""
        self.figures: list[dict[str, str]] = []
        self.tables: list[tuple[str, list[list[str]]]] = []
        self._in: list[str] = []
        self._name = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in.append(tag)
        if tag == "dl":
            self.figures.append({})
        elif tag == "table":
            self.tables.append(("", []))
        elif tag == "tr" and "tbody" in self._in:
            self.tables[-1][1].append([])
        elif tag in ("td", "th") and "tbody" in self._in:
            self.tables[-1][1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        while self._in and self._in.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        here = set(self._in)
        if "h1" in here:
            self.heading += data
        elif "dt" in here:
            self._name = data
        elif "dd" in here:
            self.figures[-1][self._name] = data
        elif "caption" in here:
            self.tables[-1] = (data, self.tables[-1][1])
        elif "tbody" in here and here & {"td", "th"}:
            self.tables[-1][1][-1][-1] += data
