"""The audit of files, which needs no Spark: groups with planted faults; it finds each of them, and no other."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections import Counter
from contextlib import closing
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.sqlite.tables import SqliteTables
from holdfast.errors import SettingError
from holdfast.tools.audit_report.judge import reading
from holdfast.tools.audit_report.judge.reading import judged_files, lines_of
from holdfast.tools.audit_report.judge.settings import AuditSettings
from holdfast.tools.audit_report.judge.sorting import Sorter
from holdfast.tools.audit_report.judge.unread import NOTHING
from holdfast.tools.audit_report.pages.build import audit_of
from holdfast.tools.audit_report.pages.model import Audit
from holdfast.tools.audit_report.pages.page import page
from holdfast.tools.audit_report.pages.words import clock, mood
from holdfast.tools.audit_report.tables import TABLES
from tests.spark.audit import streamed
from tests.spark.audit.planted import NAMELESS, Case, cases, documented, said, wrong
from tests.spark.audit.synthetic import MIXES, Group, moved_to, played, stood_still

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.tools.audit_report.pages.model import GroupAudit

    Row = dict[str, Any]

_RUN = ("run", "started_ms", "ended_ms", "ended", "complete", "handled", "unreported")
_OWNED = ("partition", "run", "trigger", "from_ms", "to_ms", "ended_by", "position", "said", "first", "next", "records")
_ENDS = ("done", "left", "alive")
_SEEDS = 3
_END_MS = 1_700_001_000_000


def judged(*places: object, asked: AuditSettings | None = None) -> dict[str, list[Row]]:
    """Rows by table."""
    found: dict[str, list[Row]] = {name: [] for name in TABLES}
    for table, row in judged_files([str(each) for each in places], asked or AuditSettings()):
        assert row.keys() & set(TABLES[table].names), table
        found[table].append(row)
    return found


class Judged:
    """Groups, and the tables of their audit."""

    def __init__(self, folder: Path) -> None:
        self.groups = [
            played(f"{mix}-{seed}", seed, mix, _ENDS[seed % len(_ENDS)]) for mix in MIXES for seed in range(_SEEDS)
        ]
        self.still, self.still_at_ms = stood_still("still")
        self.idle, self.idle_at_ms = stood_still("idle", waits=False)
        for group in (*self.groups, self.still, self.idle):
            if group not in (self.still, self.idle):  # who is silent while others are not was killed
                group.lines = moved_to(group.lines, _END_MS)
            (folder / f"{group.name}.jsonl").write_text("\n".join(group.lines) + "\n")
        one, two = self.groups[:2]
        (folder / "below").mkdir()
        (folder / "below" / f"{one.name}.jsonl.gz").write_bytes(gzip.compress("\n".join(one.lines).encode()))
        with (folder / f"{two.name}.jsonl").open("a") as file:  # of a later version, and cut
            file.write(two.lines[-1].replace('"v": 1', '"v": 99') + "\n")
            file.write(two.lines[-1][: two.lines[-1].index('"seq"')])  # it still says whose it was
        self.tables = judged(folder)

    def of(self, table: str, group: Group) -> list[Row]:
        return [each for each in self.tables[table] if each["group"] == group.name]

    def records(self, row: Row, group: Group) -> set[tuple[str, int]]:
        """Those in a range: the log has holes."""
        return set(streamed.records(row, group))


@pytest.fixture(scope="module")
def all_of_them(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    return Judged(tmp_path_factory.mktemp("audit"))


@pytest.mark.parametrize("verdict", ["lost", "unknown", "left", "pending"])
def test_each_gap_gets_its_verdict_and_there_is_no_other(all_of_them: Judged, verdict: str) -> None:
    for group in all_of_them.groups:
        rows = [each for each in all_of_them.of("gaps", group) if each["verdict"] == verdict]
        found = set().union(*(all_of_them.records(each, group) for each in rows))
        assert found == getattr(group.truth, verdict), group.name


def test_each_repetition_is_found_with_its_cause_and_there_is_no_other(all_of_them: Judged) -> None:
    for group in all_of_them.groups:
        found: dict[tuple[str, int], tuple[int, Counter[str | None]]] = {}
        for row in all_of_them.of("duplicates", group):
            for record in all_of_them.records(row, group):
                found.setdefault(record, (row["executions"], Counter()))[1][row["cause"]] += row["repeats"]
        assert found == group.truth.repeated(), group.name


def test_each_key_that_was_executed_twice_is_found(all_of_them: Judged) -> None:
    for group in all_of_them.groups:
        found = {each["key"]: each["executions"] for each in all_of_them.of("duplicate_keys", group)}
        assert found == {key: times for key, times in group.truth.keys.items() if times > 1}, group.name
        sent_twice = {each["key"] for each in all_of_them.of("duplicate_keys", group) if each["cause"] != "repeat"}
        assert sent_twice == {key for key in found if key.startswith("twice-")}, group.name


def test_the_summary_says_the_same(all_of_them: Judged) -> None:
    for group in all_of_them.groups:
        [row] = all_of_them.of("summary", group)
        assert row["handled"] == sum(each.told for all_ in group.truth.executed.values() for each in all_), group.name
        assert row["killed"] == group.truth.killed, group.name
        assert (row["lost"] > 0) == bool(group.truth.lost), group.name
        assert row["unreadable"] == 2
        sent_twice = [each for each in all_of_them.of("duplicate_keys", group) if each["cause"] != "repeat"]
        assert row["producer"] == sum(each["offsets"] - 1 for each in sent_twice)  # 0, where keys came


def test_events_that_come_twice_count_once(all_of_them: Judged) -> None:
    [row] = all_of_them.of("summary", all_of_them.groups[0])
    assert row["events"] == len(all_of_them.groups[0].lines)


def test_members_say_how_they_ended_and_what_is_missing_of_them(all_of_them: Judged) -> None:
    for group in all_of_them.groups:
        members = all_of_them.of("members", group)
        assert sum(each["ended"] == "killed" for each in members) == group.truth.killed, group.name
        lossy = group.name.startswith(("events", "drops"))
        assert any(not each["complete"] and each["ended"] == "clean" for each in members) <= lossy, group.name
        if lossy and group.truth.unknown:
            assert sum(each["missing"] + each["dropped"] for each in members), group.name


def test_shares_are_of_what_was_done_while_a_member_was_at_work(all_of_them: Judged) -> None:
    for group in all_of_them.groups:
        shares = [(each["share"], each["skew"]) for each in all_of_them.of("members", group) if each["share"]]
        assert all(0 < share <= 1 + 1e-9 and skew > 0 for share, skew in shares)
    of_two = [each["share"] for each in all_of_them.of("members", all_of_them.still)]
    assert abs(sum(of_two) - 1) < 0.02  # both were there all the time


def test_a_stream_of_the_same_events_comes_to_the_same(all_of_them: Judged) -> None:
    for group in all_of_them.groups:
        if group.name.endswith("-2"):
            continue  # it goes on: here it is pending; there it is silent for so long that it was killed
        whole = {name: all_of_them.of(name, group) for name in TABLES}
        stream = streamed.without_spark(group)
        for verdict in ("lost", "unknown"):
            assert streamed.gaps(stream, group, verdict) == streamed.gaps(whole, group, verdict), (group.name, verdict)
        assert streamed.repeats(stream, group) == streamed.repeats(whole, group), group.name
        [summary] = whole["summary"]
        summed = streamed.sums(stream["summary"], streamed.SUMMED)
        if summary["over"] and not summary["left"]:
            assert summed == {name: summary[name] for name in streamed.SUMMED}, group.name
        for row in whole["coverage"]:
            parts = [each for each in stream["coverage"] if each["partition"] == row["partition"]]
            assert streamed.sums(parts, streamed.COVERED) == {name: row[name] for name in streamed.COVERED}, group.name
            last = {name: parts[-1][name] for name in ("begin", "position", "end", "lag")}
            assert last == {name: row[name] for name in last}, group.name
        for name, columns in (("members", _RUN), ("ownership", _OWNED)):
            told = Counter(tuple(each[column] for column in columns) for each in stream[name])
            assert told == Counter(tuple(each[column] for column in columns) for each in whole[name]), group.name


def test_where_nothing_waited_nothing_stood_still(all_of_them: Judged) -> None:
    group, at_ms = all_of_them.idle, all_of_them.idle_at_ms
    row = next(each for each in all_of_them.of("rebalances", group) if each["began_ms"] == at_ms)
    assert (row["moved"], row["lag"]) == (2, 0)
    assert row["stop_ms"] is None


def test_a_standstill_is_as_long_as_it_was(all_of_them: Judged) -> None:
    group, at_ms = all_of_them.still, all_of_them.still_at_ms
    ended = sorted({each.at_ms for all_ in group.truth.executed.values() for each in all_})
    still_ms = min(each for each in ended if each > at_ms) - max(each for each in ended if each <= at_ms)
    row = next(each for each in all_of_them.of("rebalances", group) if each["began_ms"] == at_ms)
    assert row["moved"] == 2
    assert abs(row["stop_ms"] - still_ms) <= 100
    pauses = [each for each in all_of_them.of("pauses", group) if each["rebalance"] == row["rebalance"]]
    assert [each["waiting"] for each in pauses] == [True, True]
    assert all(abs(each["pause_ms"] - still_ms) <= 200 for each in pauses)
    assert all(0 < each["recovered_ms"] < 8_000 for each in pauses)


def test_a_spike_of_intake_is_seen_against_the_rate_before(all_of_them: Judged) -> None:
    at_ms = all_of_them.still_at_ms
    row = next(each for each in all_of_them.of("rebalances", all_of_them.still) if each["began_ms"] == at_ms)
    assert 2.4 < row["peak_ratio"] < 3.6
    assert 24 < row["steady_per_s"] < 36


def test_members_own_reports_are_of_the_last_rebalance_that_had_begun(tmp_path: Path) -> None:
    group = played("calm-0", 0, "calm")
    whole = judged(written(tmp_path / "before", group.lines))["rebalances"]
    stamp = json.loads(group.lines[-1]) | {"kind": "rebalance", "run": "reporter", "seq": 0, "records": None}
    numbers = {"drained": 5, "abandoned": 1, "handed_back": 2, "duplicates_suppressed": 3}
    told = [
        stamp | {"at_ms": whole[1]["ended_ms"] + 1} | numbers,
        stamp | {"at_ms": whole[0]["began_ms"] - 1, "seq": 1},
    ]
    rows = judged(written(tmp_path / "after", [*group.lines, *map(json.dumps, told)]))["rebalances"]
    names = ("drained", "abandoned", "handed_back", "suppressed")
    assert [tuple(each[name] for name in names) for each in rows] == [(None,) * 4, (5, 1, 2, 3)]


def test_what_is_left_over_is_lost_where_all_had_to_be_consumed(tmp_path: Path) -> None:
    group = played("calm-1", 1, "calm", "left")
    folder = written(tmp_path, group.lines)
    gaps, complete = judged(folder)["gaps"], judged(folder, asked=AuditSettings(complete=True))["gaps"]
    assert {each["verdict"] for each in gaps} == {"left"}
    assert [(each["first"], each["next"], "lost") for each in gaps] == [
        (each["first"], each["next"], each["verdict"]) for each in complete
    ]


def written(folder: Path, lines: list[str]) -> Path:
    """A folder with a file of them."""
    folder.mkdir(exist_ok=True)
    (folder / "events.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def test_no_room_for_what_is_sorted_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sorter.__init__, "__defaults__", (2_000,))

    def full(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("holdfast.tools.audit_report.judge.sorting.TemporaryFile", full)
    with pytest.raises(SettingError, match=r"TMPDIR.*No space left"):
        judged(written(tmp_path, played("calm-0", 0, "calm").lines))
    tables = SqliteTables()
    tables._database.execute("PRAGMA max_page_count = 20")
    with pytest.raises(SettingError, match=r"TMPDIR.*full"):
        tables.add(("intake", {"member": "m" * 9_000}) for _ in range(99))
    tables.close()


# -- who was killed, and where the group stands at the end -------------------------------------------------------------


class Teller:
    """A member's process that tells what the test says, in seconds."""

    def __init__(self, name: str, lines: list[str]) -> None:
        self._lines, self._name, self._seq = lines, name, 0

    def tells(self, at_s: float, kind: str, position: int = 0, **fields: object) -> None:
        place = {"topic": "orders", "partition": "0", "epoch": 1, "position": position, "end": 100, "in_flight": 0}
        of_places = {"partitions": [place]} if kind in {"assigned", "progress", "revoked"} else {}
        stamp = {"v": 1, "kind": kind, "group": "g", "member": self._name, "run": f"run-{self._name}"}
        stamp |= {"seq": self._seq, "at_ms": _END_MS + int(at_s * 1000), "dropped": 0}
        self._seq += 1
        self._lines.append(json.dumps(stamp | of_places | fields))

    def starts(self, at_s: float) -> None:
        self.tells(at_s, "started", protocol="cooperative", source="KafkaSource", settings={})

    def stops(self, at_s: float, position: int) -> None:
        self.tells(at_s, "revoked", position, trigger="leave")
        self.tells(at_s, "stopped", clean=True, records={}, in_hand=0, error=None)


def page_of(group: GroupAudit) -> str:
    return page(Audit(groups=[group]))


def shown(folder: Path, lines: list[str]) -> GroupAudit:
    with SqliteTables() as kept:
        kept.add((name, row) for name, rows in judged(written(folder, lines)).items() for row in rows)
        [group] = audit_of(kept).groups
    return group


@pytest.mark.parametrize("ends_s", [12.0, 60.0], ids=["short before the end", "long before the end"])
def test_who_lost_its_partition_without_a_word_was_killed_and_is_drawn_until_it_was_heard_last(
    ends_s: float, tmp_path: Path
) -> None:
    lines: list[str] = []
    killed, other = Teller("killed", lines), Teller("other", lines)
    killed.starts(0)
    killed.tells(0, "assigned", trigger="assigned")
    killed.tells(4, "progress", 40)
    other.starts(1)
    other.tells(10, "assigned", 40, trigger="assigned")
    other.tells(ends_s, "progress", 100)
    group = shown(tmp_path, lines)
    assert {run.member: run.ended for run in group.runs.rows} == {"killed": "killed", "other": "alive"}
    assert group.killed == 1
    [row] = group.owned.rows
    drawn = [(each.from_ms - _END_MS, each.to_ms - _END_MS, each.silent) for each in row.stretches]
    assert drawn == [(0, 4_000, True), (10_000, int(ends_s * 1000), False)]
    text = page_of(group)
    assert "killed (fell silent)" in text
    assert f"{clock(_END_MS + 4_000)}, when it was heard last" in text
    assert f"{clock(_END_MS + 4_000)} (heard last)" in text


def test_who_goes_on_without_a_partition_that_it_gave_up_is_alive(tmp_path: Path) -> None:
    lines: list[str] = []
    first, other = Teller("first", lines), Teller("other", lines)
    first.starts(0)
    first.tells(0, "assigned", trigger="assigned")
    first.tells(4, "revoked", 40, trigger="revoked")
    other.starts(1)
    other.tells(5, "assigned", 40, trigger="assigned")
    other.tells(12, "progress", 100)
    group = shown(tmp_path, lines)
    assert {run.ended for run in group.runs.rows} == {"alive"}
    assert group.killed == 0


def test_the_lag_at_the_end_is_one_wherever_the_page_tells_it(tmp_path: Path) -> None:
    lines: list[str] = []
    member = Teller("a", lines)
    member.starts(0)
    member.tells(0, "assigned", trigger="assigned")
    member.tells(2, "progress", 20)  # the last sample; the rest is done before it stops
    member.stops(5, 90)
    group = shown(tmp_path, lines)
    assert [each.lag for each in group.lagging.rows] == [10]
    assert group.lag is not None
    assert [series.values[-1] for series in group.lag.series] == [10, 10]
    assert "10 at the end" in page_of(group)


# -- damaged files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", cases(), ids=[case.group for case in cases()])
def test_what_was_told_and_cannot_be_read_is_unknown(case: Case, tmp_path: Path) -> None:
    for name, content in case.files.items():
        (tmp_path / name).write_bytes(content)
    tables = judged(tmp_path)
    with SqliteTables() as kept:
        kept.add((name, row) for name, rows in tables.items() for row in rows)
        how = mood(audit_of(kept))
    assert wrong(case, tables["gaps"], how) == []
    assert documented()[case.group][0] == said(case, tables["gaps"]), "docs/operations/audit.md"
    if case.name in ("no fault", "twice the same") and not case.lost:
        assert how == "good"


def test_whose_nobody_knows_casts_doubt_on_all_that_is_judged_with_it(tmp_path: Path) -> None:
    lost = [case for case in cases() if case.lost]
    dark = next(case for case in lost if case.name in NAMELESS)
    for number, case in enumerate((dark, next(case for case in lost if case.name == "no fault"))):
        (tmp_path / str(number)).mkdir()
        for name, content in case.files.items():
            of_case = content.replace(b'"run":"00000000', f'"run":"{number:08x}'.encode())
            (tmp_path / str(number) / name.replace("-00000000", f"-{number:08x}")).write_bytes(of_case)
    tables = judged(tmp_path)
    assert {each["verdict"] for each in tables["gaps"]} == {"unknown"}
    assert [each["unheard"] for each in tables["summary"]] == [1, 1]


def test_of_a_group_of_which_nothing_can_be_read_there_is_a_row(tmp_path: Path) -> None:
    lines = ['{"v": 2, "group": "dark", "run": "a"}', '{"v": 2, "group": "dark", "run": "b"}', '{"v": 2, "group": "da']
    [row] = judged(written(tmp_path, [*played("calm-0", 0, "calm").lines, *lines[:2]]))["summary"][1:]
    assert (row["group"], row["unheard"], row["unreadable"], row["members"]) == ("dark", 2, 2, 0)
    assert {each["unheard"] for each in judged(written(tmp_path, lines))["summary"]} == {3}


def test_what_no_table_has_room_for_is_no_event(tmp_path: Path) -> None:
    lines = played("calm-0", 0, "calm").lines
    last = json.loads(lines[-1]) | {"run": "odd", "seq": 0}
    odd = [last | {"at_ms": 10**30}, last | {"seq": -1}, last | {"member": "half a \ud800"}]
    tables = judged(written(tmp_path, [*lines, *map(json.dumps, odd)]))
    assert [(each["unreadable"], each["unheard"]) for each in tables["summary"]] == [(3, 1)]
    span = next(json.loads(line) for line in lines if '"span"' in line)
    broken = span | {"run": "odd", "seq": 0, "spans": [span["spans"][0] | {"next": 10**30}]}
    [row] = [
        each for each in judged(written(tmp_path, [*lines, json.dumps(broken)]))["members"] if each["run"] == "odd"
    ]
    assert not row["complete"]


# -- files -------------------------------------------------------------------------------------------------------------


def test_the_order_of_lines_and_their_files_says_nothing(tmp_path: Path) -> None:
    group = played("losses-and-repeats-0", 0, "losses-and-repeats")
    lines = list(group.lines)
    group.random.shuffle(lines)
    (tmp_path / "many").mkdir()
    for number in range(5):
        (tmp_path / "many" / f"{9 - number}.jsonl").write_text("\n".join(lines[number::5] + lines[:number]))
    one, many = judged(written(tmp_path / "one", group.lines)), judged(tmp_path / "many")
    for name in TABLES:
        assert sorted(map(str, one[name])) == sorted(map(str, many[name])), name


def test_what_has_no_room_in_memory_is_judged_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path, played("repeats-1", 1, "repeats").lines)
    before = judged(folder)
    monkeypatch.setattr(Sorter.__init__, "__defaults__", (2_000,))
    files: list[Any] = []

    def made(**how: Any) -> Any:
        files.append(TemporaryFile(**how))  # noqa: SIM115 - the sorter closes it
        return files[-1]

    monkeypatch.setattr("holdfast.tools.audit_report.judge.sorting.TemporaryFile", made)
    assert judged(folder) == before
    assert len(files) >= 4
    assert all(each.closed for each in files)


def test_what_is_read_again_needs_little_room_however_long_its_rows_are() -> None:
    room, row = 1 << 20, 100_000
    with closing(Sorter(room)) as rows:
        for number in range(200):
            rows.add((number * 7 % 200, "x" * row), row)
        tracemalloc.start()
        try:
            numbers = [number for number, _ in rows]
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert numbers == list(range(200))
    assert most < 200 * row / 3


def test_a_span_that_says_that_nothing_was_handled_is_not_believed(tmp_path: Path) -> None:
    stamp = {"v": 1, "group": "g", "member": "m", "run": "1", "seq": 0, "at_ms": _END_MS, "dropped": 0}
    span = {"first": 0, "next": 5, "outcome": "handled", "records": 0, "began_ms": _END_MS, "ended_ms": _END_MS}
    event = stamp | {"kind": "span", "topic": "t", "partition": "0", "epoch": 1, "spans": [span], "keys": None}
    found = judged(written(tmp_path, [json.dumps(event)]))
    assert (found["members"][0]["complete"], found["members"][0]["share"]) == (False, None)
    assert not found["coverage"]


def test_what_files_have(tmp_path: Path) -> None:
    run = "0123456789abcdef"
    (tmp_path / f"a-{run}-0000.jsonl").write_bytes(b"one\r\n\r\n \ntwo")
    (tmp_path / f"b-{run}-0001.jsonl.gz").write_bytes(
        gzip.compress(b"three\n" * 20_000)[:-9]
    )  # it ends where it is cut
    (tmp_path / f"c-{run}-0002.jsonl").write_bytes(b"\n")
    (tmp_path / "plain").write_bytes(b"\xff\n")
    (tmp_path / ".hidden").write_bytes(b"four\n")
    (tmp_path / "_SUCCESS").write_bytes(b"")
    (tmp_path / "again").symlink_to(tmp_path)  # in a circle
    found = list(lines_of([str(tmp_path), str(tmp_path / "plain")]))
    assert found[:2] == [("one", run), ("two", run)]
    assert set(found[2:-2]) == {("three", run)}
    assert found[-2:] == [(NOTHING, run), ("\ufffd", "")]


def test_files_that_cannot_be_read_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="no such file or folder"):
        judged(tmp_path / "absent")
    (tmp_path / "broken").symlink_to(tmp_path / "absent")
    with pytest.raises(SettingError, match="no such file or folder"):
        judged(tmp_path)
    (tmp_path / "broken").unlink()
    written(tmp_path, ["{}"])

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(reading, "open", refused, raising=False)
    with pytest.raises(SettingError, match="cannot be read"):
        judged(tmp_path)
