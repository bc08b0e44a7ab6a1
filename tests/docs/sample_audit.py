"""Tables of an audit by hand: a member joins, another is killed and comes back. docs/operations/audit.md shows it.

`python -m tests.docs.sample_audit` draws them anew.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.adapters.parquet.tables import ParquetTables
from holdfast.tools.audit_report import tables as t
from holdfast.tools.audit_report.pages.build import audit_of
from holdfast.tools.audit_report.pages.page import page, pictures

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.tools.audit_report.columns import Table
    from holdfast.tools.audit_report.pages.model import Audit

    Rows = Mapping[Table, Iterable[Mapping[str, Any]]]

FOLDER = Path(__file__).parents[2] / "docs" / "pictures" / "audit"
GROUP, TOPIC = "billing", "orders"
#: 2026-11-20, 10:00 UTC.
BEGAN_MS = 1_795_168_800_000
_LONG_S = 120
_PER_S = 20
_KINDS = {"string": pa.string(), "long": pa.int64(), "double": pa.float64(), "boolean": pa.bool_()}
#: Partition -> (member, from s, to s, how it ended). b is killed at 60 s, and found to be dead at 66 s.
_OWNED = {
    0: [("a", 0, _LONG_S, "stopped")],
    1: [("a", 0, 30, "revoked"), ("c", 30, _LONG_S, "stopped")],
    2: [("a", 0, 67, "revoked"), ("c", 67, _LONG_S, "stopped")],
    3: [("b", 1, 60, "killed"), ("a", 67, _LONG_S, "stopped")],
    4: [("b", 1, 60, "killed"), ("c", 67, 95, "revoked"), ("b", 95, _LONG_S, "stopped")],
    5: [("b", 1, 30, "revoked"), ("c", 30, 95, "revoked"), ("b", 95, _LONG_S, "stopped")],
}
_RUNS = {("a", 0): "a1", ("b", 1): "b1", ("c", 29): "c1", ("b", 94): "b2"}


def at(seconds: float) -> int:
    """Milliseconds since 1970, so long after the beginning."""
    return BEGAN_MS + round(seconds * 1000)


def row(table: Table, **values: Any) -> dict[str, Any]:
    """A row of a table; what is not named is null."""
    assert values.keys() <= set(table.names), values.keys() - set(table.names)
    return dict.fromkeys(table.names) | {"group": GROUP} | values


def write(folder: Path, rows: Rows) -> Path:
    """The tables as the audit's job writes them."""
    for table, each in rows.items():
        schema = pa.schema([(c.name, _KINDS.get(c.type, pa.list_(pa.string()))) for c in table.columns])
        (folder / table.name).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(list(each), schema=schema), folder / table.name / "part-0.parquet")
    return folder


def sample() -> Rows:
    """One lost, 12 unknown, 3 repeated by the crash."""
    return {
        t.SUMMARY: [
            row(
                t.SUMMARY,
                from_ms=at(0),
                to_ms=at(_LONG_S),
                members=4,
                killed=1,
                unheard=0,
                unreported=0,
                over=False,
                events=700,
                unreadable=0,
                missing=0,
                dropped=0,
                partitions=6,
                handled=14_404,
                skipped=41,
                dead_lettered=0,
                lost=1,
                unknown=12,
                pending=0,
                left=0,
                crash=3,
                hand_over=0,
                redelivery=0,
                reset=0,
                rebalances=4,
                moved=6,
                stop_ms=410,
                pause_ms=7_400,
            )
        ],
        t.MEMBERS: [_member(name, began, run) for (name, began), run in _RUNS.items()],
        t.COVERAGE: [
            row(
                t.COVERAGE,
                topic=TOPIC,
                partition=str(number),
                begin=0,
                covered_to=2_400,
                position=2_400,
                end=2_400,
                lag=0,
                handled=2_400,
                lost=int(number == 2),
                repeated=0,
            )
            for number in _OWNED
        ],
        t.GAPS: [_gap("3", 1_187, 1_199, "unknown", "killed", "b"), _gap("2", 1_341, 1_342, "lost", "passed", "c")],
        t.DUPLICATES: [
            row(
                t.DUPLICATES,
                topic=TOPIC,
                partition="4",
                first=1_184,
                next=1_187,
                records=3,
                executions=2,
                repeats=1,
                cause="crash",
                runs=["b1", "c1"],
                members=["b", "c"],
                first_ms=at(59.9),
                again_ms=at(67.3),
            )
        ],
        t.DUPLICATE_KEYS: [],
        t.OWNERSHIP: [
            row(
                t.OWNERSHIP,
                topic=TOPIC,
                partition=str(number),
                member=member,
                run=_run(member, begins),
                trigger="assigned",
                from_ms=at(begins),
                to_ms=at(ends),
                ended_by=how,
            )
            for number, stretches in _OWNED.items()
            for member, begins, ends, how in stretches
        ],
        t.REBALANCES: [
            _rebalance(0, 0, "assigned", {"members": 2, "moved": 0, "lag": 120, "recovered_ms": 900}),
            _rebalance(1, 30, "assigned revoked", {"members": 3, "moved": 2, "pause_ms": 350, "lag": 14}),
            _rebalance(2, 66.5, "assigned revoked", {"members": 2, "moved": 3, "pause_ms": 7_400, "lag": 290}),
            _rebalance(3, 95, "assigned revoked", {"members": 2, "moved": 2, "pause_ms": 310, "lag": 13}),
        ],
        t.MOVES: [],
        t.PAUSES: [
            _pause(1, 1, "a", "c", 29.8, 30.15),
            _pause(1, 5, "b", "c", 29.85, 30.2),
            _pause(2, 2, "a", "c", 66.8, 67.2),
            _pause(2, 3, "b", "a", 59.9, 67.3),
            _pause(2, 4, "b", "c", 59.9, 67.2),
            _pause(3, 4, "c", "b", 94.9, 95.2),
            _pause(3, 5, "c", "b", 94.9, 95.21),
        ],
        t.LAG: list(_lag()),
        t.INTAKE: list(_intake()),
    }


def _run(member: str, at_s: float) -> str:
    return [run for (name, began), run in _RUNS.items() if name == member and began <= at_s + 1][-1]


def _member(name: str, began: int, run: str) -> dict[str, Any]:
    killed = run == "b1"
    handled = round(sum(each["records"] for each in _intake() if each["run"] == run))
    ends = {
        "started_ms": at(began),
        "ended_ms": at(60 if killed else _LONG_S),
        "ended": "killed" if killed else "clean",
    }
    counts = {"events": 180, "missing": 0, "dropped": 0, "skipped_position": 41 if run == "c1" else 0, "failed": 0}
    judged = {"handled": handled, "share": handled / 14_404, "skew": 1.1 if name == "a" else 0.95}
    return row(t.MEMBERS, member=name, run=run, complete=not killed, source="KafkaSource", **ends, **counts, **judged)


def _gap(partition: str, first: int, following: int, verdict: str, reason: str, member: str) -> dict[str, Any]:
    where = {"topic": TOPIC, "partition": partition, "first": first, "next": following, "offsets": following - first}
    return row(t.GAPS, **where, verdict=verdict, reason=reason, members=[member], runs=[member], after_ms=at(59.7))


def _rebalance(number: int, seconds: float, triggers: str, values: dict[str, Any]) -> dict[str, Any]:
    usual = {"recovered_ms": 1_800, "stop_ms": 140 + 90 * number, "steady_per_s": 60.0, "peak_per_s": 84.0}
    times = {"began_ms": at(seconds), "ended_ms": at(seconds + 0.6), "triggers": triggers.split()}
    return row(t.REBALANCES, rebalance=number, peak_ratio=1.4, **times, **{**usual, **values})


def _pause(rebalance: int, partition: int, old: str, new: str, last: float, first: float) -> dict[str, Any]:
    where = {"rebalance": rebalance, "topic": TOPIC, "partition": str(partition), "from_member": old, "to_member": new}
    times = {"last_ms": at(last), "first_ms": at(first), "pause_ms": round((first - last) * 1000)}
    return row(t.PAUSES, waiting=True, **where, **times)


def _lag() -> Iterable[dict[str, Any]]:
    """Each member every five seconds, and each of its partitions: what was sent while nobody had it is worked off."""
    for number, stretches in _OWNED.items():
        for member, begins, ends, _ in stretches:
            behind = 140 if begins == 67 and number > 2 else 6
            for second in range(begins, ends, 2):
                lag = max(behind - 22 * (second - begins), 2 + (second * 7 + number * 3) % 5)
                where = {"topic": TOPIC, "partition": str(number), "member": member, "run": _run(member, begins)}
                yield row(
                    t.LAG, at_ms=at(second), position=_PER_S * second - lag, end=_PER_S * second, lag=lag, **where
                )


def _intake() -> Iterable[dict[str, Any]]:
    for number, stretches in _OWNED.items():
        for member, begins, ends, _ in stretches:
            for second in range(begins, ends):
                ahead = 8.0 if begins == 67 and number > 2 and second < 82 else 0.0
                records = _PER_S + ahead + (second * 5 + number) % 4
                who = {"member": member, "run": _run(member, begins)}
                yield row(t.INTAKE, second_ms=at(second), records=records, handled=records, **who)


def sample_audit() -> Audit:
    """Of those tables."""
    with TemporaryDirectory() as folder:
        return audit_of(ParquetTables(write(Path(folder), sample())))


def drawn() -> dict[str, str]:
    """File name -> content."""
    audit = sample_audit()
    shown = {f"{each.name}.svg": each.alone() for each in pictures(audit.groups[0])}
    return shown | {"sample.html": page(audit)}


def main() -> None:
    """Draw all of them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, content in drawn().items():
        (FOLDER / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
