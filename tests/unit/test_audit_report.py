"""The audit's report: from its tables to a verdict, tables and a page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.parquet.tables import ParquetTables
from holdfast.errors import SettingError
from holdfast.tools.audit_report import tables as t
from holdfast.tools.audit_report.pages import tables as shown
from holdfast.tools.audit_report.pages.build import MOST_GROUPS, audit_of
from holdfast.tools.audit_report.pages.page import page, pictures
from holdfast.tools.audit_report.pages.reading import Steps
from holdfast.tools.audit_report.pages.style import AT_LEAST_PX
from holdfast.tools.audit_report.pages.words import mood, remarks, verdict
from holdfast.tools.audit_report.verdicts import KeyCause
from tests.docs.sample_audit import GROUP, TOPIC, at, row, sample, sample_audit, write

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from holdfast.tools.audit_report.columns import Table
    from holdfast.tools.audit_report.pages.model import Audit

_WEEK_S = 7 * 86_400


def summary(group: str = GROUP, **changed: Any) -> dict[str, Any]:
    [one] = sample()[t.SUMMARY]
    none = dict.fromkeys(("lost", "unknown", "crash", "hand_over", "redelivery", "reset", "killed", "missing"), 0)
    return {**one, **none, "group": group, **changed}


def judged(folder: Path, **changed: Any) -> Audit:
    return audit_of(ParquetTables(write(folder, {t.SUMMARY: [summary(**changed)]})))


class TestVerdict:
    def test_what_is_wrong_is_said_with_its_causes(self, tmp_path: Path) -> None:
        audit = audit_of(ParquetTables(write(tmp_path, sample())))
        assert verdict(audit) == "1 lost, 12 unknown, 3 repeated (3 by crash), of 14,401 records that ran"
        assert mood(audit) == "bad"

    def test_a_group_in_which_all_went_well_is_said_to_have(self, tmp_path: Path) -> None:
        audit = judged(tmp_path)
        assert verdict(audit) == "Nothing lost, nothing repeated, of 14,404 records that ran"
        assert mood(audit) == "good"

    def test_who_was_killed_leaves_records_that_are_unknown_and_not_lost(self, tmp_path: Path) -> None:
        audit = judged(tmp_path, unknown=7, killed=1)
        assert verdict(audit).startswith("Nothing lost, 7 unknown, nothing repeated")
        assert mood(audit) == "unsure"

    def test_what_was_reset_was_asked_for(self, tmp_path: Path) -> None:
        audit = judged(tmp_path, reset=400)
        assert "nothing repeated, 400 repeated on demand (reset)" in verdict(audit)
        assert mood(audit) == "good"

    def test_events_that_never_came_are_told_of(self, tmp_path: Path) -> None:
        audit = judged(tmp_path, missing=3)
        assert mood(audit) == "unsure"
        assert any("3 events never came" in each for each in remarks(audit.groups[0]))

    @pytest.mark.parametrize("untold", ["unheard", "unreported"])
    def test_where_something_is_missing_nobody_is_told_that_nothing_is_lost(self, untold: str, tmp_path: Path) -> None:
        audit = judged(tmp_path, **{untold: 2})
        assert mood(audit) == "unsure"
        assert verdict(audit).startswith("Nothing known to be lost, nothing repeated")
        assert any(
            each.startswith(("no event of 2 processes", "2 records are counted in stop events"))
            for each in remarks(audit.groups[0])
        )

    def test_a_group_of_which_nothing_can_be_read_is_named(self, tmp_path: Path) -> None:
        dark = [dict.fromkeys(t.SUMMARY.names) | {"group": name, "unheard": 1} for name in ("dark", "")]
        audit = audit_of(ParquetTables(write(tmp_path, {t.SUMMARY: [summary(), *dark]})))
        assert mood(audit) == "unsure"
        assert {each.group for each in audit.groups if each.unsure} == {"dark", "(no name)"}
        assert "dark" in page(audit)

    def test_a_key_that_was_sent_twice_and_ran_twice_is_wrong(self, tmp_path: Path) -> None:
        audit = judged(tmp_path, producer=2)
        assert mood(audit) == "bad"
        assert "2 run twice because they were sent twice" in verdict(audit)

    def test_without_events_nothing_is_known(self, tmp_path: Path) -> None:
        audit = audit_of(ParquetTables(write(tmp_path, {t.SUMMARY: []})))
        assert (verdict(audit), mood(audit)) == ("No events: nothing is known", "unsure")


class TestGroups:
    def test_groups_in_which_most_is_wrong_have_the_details(self, tmp_path: Path) -> None:
        names = [f"group-{number:02}" for number in range(MOST_GROUPS + 5)]
        rows = {
            t.SUMMARY: [summary(name, lost=int(name == "group-16")) for name in names],
            t.MEMBERS: [{**sample_run(), "group": name} for name in names],
        }
        audit = audit_of(ParquetTables(write(tmp_path, rows)))
        assert audit.worst_first[0].group == "group-16"
        assert sum(each.detailed for each in audit.groups) == MOST_GROUPS
        assert verdict(audit).startswith("1 lost")
        assert verdict(audit).endswith(f"in {len(names)} groups")
        said = page(audit)
        assert all(name in said for name in names)
        assert f"for the first {MOST_GROUPS} of them" in said

    def test_one_group_can_be_asked_for(self, tmp_path: Path) -> None:
        write(tmp_path, {t.SUMMARY: [summary("one"), summary("other", lost=1)]})
        audit = audit_of(ParquetTables(tmp_path), ["one"])
        assert [each.group for each in audit.groups] == ["one"]


def sample_run() -> dict[str, Any]:
    return dict(next(iter(sample()[t.MEMBERS])))


class Parsed(HTMLParser):
    """Elements, what is open, and attributes by name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes what is not open"


@pytest.fixture(scope="module")
def audit() -> Audit:
    return sample_audit()


class TestPage:
    def test_it_is_well_formed_and_needs_nothing_else(self, audit: Audit) -> None:
        text = page(audit)
        parsed = Parsed(text)
        assert parsed.open == []
        assert {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in parsed.elements} == set()
        assert not re.search(r"(src|href)=\"(?!#)|@import|url\((?!#)", text)

    def test_pictures_and_tables_can_be_read_without_being_seen(self, audit: Audit) -> None:
        parsed = Parsed(page(audit))
        ids = [each["id"] for _, each in parsed.elements if "id" in each]
        assert len(ids) == len(set(ids))
        images = [each for tag, each in parsed.elements if tag == "svg" and each.get("role") == "img"]
        assert len(images) == 4
        for image in images:
            assert set(str(image["aria-labelledby"]).split()) <= set(ids)
        assert sum(tag == "table" for tag, _ in parsed.elements) == sum(tag == "caption" for tag, _ in parsed.elements)
        assert all("scope" in each for tag, each in parsed.elements if tag == "th")

    def test_the_verdict_is_its_heading_and_all_findings_are_on_it(self, audit: Audit) -> None:
        text = page(audit)
        assert f"<h1>{verdict(audit)}</h1>" in text
        for words in ("its owner&#x27;s position passed it", "1,187-1,198", "1,184-1,186", ">crash<", "7.4 s"):
            assert words in text

    def test_who_owned_what_is_drawn_with_each_change(self, audit: Audit) -> None:
        drawn = {each.name: "".join(each.shapes) for each in pictures(audit.groups[0])}
        assert set(drawn) == {"ownership", "lag", "intake", "offsets"}
        assert drawn["ownership"].count('<rect class="m') == 13 + 3  # stretches, and the legend's members
        assert "orders-3: no record for 7.4 s" in drawn["ownership"]
        assert 'class="lost"' in drawn["offsets"]
        assert 'class="repeated"' in drawn["offsets"]

    def test_on_a_screen_of_500_pixels_what_is_too_wide_says_that_it_scrolls(self, audit: Audit) -> None:
        said = page(audit)
        [narrower_than] = re.findall(r"max-width:(\d+)px\)\{\.scrolls::before\{display:block\}", said)
        assert 500 < AT_LEAST_PX + 32 == int(narrower_than) + 1
        regions = re.findall(r'<div class="([^"]+)"[^>]*><table>(.*?)</table>', said, re.DOTALL)
        columns = [(kind, table.count('scope="col"')) for kind, table in regions]
        assert len(columns) >= 5
        assert {kind for kind, number in columns if number > 5} == {"wide scrolls"}
        assert "scrolls" not in {word for kind, number in columns if number <= 5 for word in kind.split()}
        assert '"wide"><svg' not in said

    def test_names_are_anybodys_text(self, tmp_path: Path) -> None:
        evil = '<script>alert("\x1b[31m")</script>'
        rows = {table: [{**each, **_renamed(each, evil)} for each in rows] for table, rows in sample().items()}
        text = page(audit_of(ParquetTables(write(tmp_path, rows))))
        assert "<script" not in text
        assert "\x1b" not in text
        assert Parsed(text).open == []

    def test_a_week_of_ten_thousand_partitions_gives_a_page_that_can_be_sent(self, tmp_path: Path) -> None:
        audit = audit_of(ParquetTables(write(tmp_path, large())))
        text = page(audit)
        assert len(text) < 2_000_000
        assert "9,960 partitions more are not shown" in text
        group = audit.groups[0]
        assert group.owned.rows[1].partition == "orders-100", "those that moved most are shown"
        assert group.lag is not None
        assert max(each or 0 for each in group.lag.series[0].values) == 10_000 * 50


def _renamed(each: Any, name: str) -> dict[str, str]:
    return {key: name for key in ("group", "topic", "member", "from_member", "to_member") if each.get(key)}


def large() -> dict[Table, Iterable[dict[str, Any]]]:
    """A rebalance an hour, and 100 partitions that move four times a day."""
    names = [f"member-{number}" for number in range(40)]
    hours = range(0, _WEEK_S, 3_600)

    def owned() -> Iterable[dict[str, Any]]:
        for number in range(10_000):
            step = 6 * 3_600 if number % 100 == 0 else _WEEK_S
            for i, begins in enumerate(range(0, _WEEK_S, step)):
                who = {"member": names[(number + i) % 40], "run": str(number % 40)}
                where = {"topic": TOPIC, "partition": str(number)}
                yield row(t.OWNERSHIP, from_ms=at(begins), to_ms=at(min(begins + step, _WEEK_S)), **who, **where)

    return {
        t.SUMMARY: [summary(to_ms=at(_WEEK_S), partitions=10_000, rebalances=len(hours))],
        t.MEMBERS: [{**sample_run(), "member": name, "run": str(i), "handled": i} for i, name in enumerate(names)],
        t.OWNERSHIP: owned(),
        t.REBALANCES: [
            row(t.REBALANCES, rebalance=i, began_ms=at(second), ended_ms=at(second + 1), triggers=["assigned"])
            for i, second in enumerate(hours)
        ],
        t.LAG: [
            row(t.LAG, topic=TOPIC, partition=str(number), at_ms=at(second), lag=50)
            for number in range(10_000)
            for second in (0, _WEEK_S // 2)
        ],
        t.INTAKE: [
            row(t.INTAKE, member=name, second_ms=at(second), records=10.0)
            for name in names
            for second in range(0, _WEEK_S, 4 * 3_600)
        ],
    }


class TestTables:
    """`ParquetTables`, as `TableReader` has it."""

    def test_the_largest_are_the_same_whatever_the_order(self, tmp_path: Path) -> None:
        rows = [row(t.GAPS, topic=TOPIC, partition=str(i % 7), first=i, offsets=i % 10) for i in range(100)]
        some = [ParquetTables(write(tmp_path / name, {t.SUMMARY: [], t.GAPS: each})) for name, each in _both(rows)]
        found = [reader.largest(t.GAPS, "offsets", 15, {"topic": TOPIC}) for reader in some]
        assert found[0] == found[1]
        assert [each["offsets"] for each in found[0].rows] == [9] * 10 + [8] * 5
        assert found[0].total == 100

    def test_rows_without_the_value_come_last(self, tmp_path: Path) -> None:
        rows = [row(t.GAPS, first=1), row(t.GAPS, first=2, offsets=5)]
        reader = ParquetTables(write(tmp_path, {t.SUMMARY: [], t.GAPS: rows}))
        assert [each["first"] for each in reader.largest(t.GAPS, "offsets", 9, {}).rows] == [2, 1]

    def test_times_are_summed_up_in_steps(self, tmp_path: Path) -> None:
        rows = [row(t.INTAKE, member="a", second_ms=at(second), records=2.0) for second in range(10)]
        reader = ParquetTables(write(tmp_path, {t.SUMMARY: [], t.INTAKE: rows}))
        steps = Steps("second_ms", at(0), 4_000)
        found = reader.grouped(t.INTAKE, ("member",), value="records", how="sum", where={"group": GROUP}, steps=steps)
        assert sorted(found) == [("a", 0, 8.0), ("a", 1, 8.0), ("a", 2, 4.0)]

    def test_a_table_that_was_not_written_has_no_rows(self, tmp_path: Path) -> None:
        reader = ParquetTables(write(tmp_path, {t.SUMMARY: []}))
        assert reader.largest(t.GAPS, "offsets", 5, {}) == ([], 0)
        assert list(reader.grouped(t.LAG, ("topic",), value="lag", how="max", where={})) == []

    def test_a_folder_without_tables_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SettingError, match="no folder 'summary'"):
            ParquetTables(tmp_path)

    def test_a_file_that_is_no_parquet_is_named(self, tmp_path: Path) -> None:
        folder = write(tmp_path, {t.SUMMARY: []})
        (folder / "summary" / "part-0.parquet").write_text("no")
        with pytest.raises(SettingError, match="summary"):
            ParquetTables(folder).largest(t.SUMMARY, "handled", 1, {})


def _both(rows: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    return [("there", rows), ("back", rows[::-1])]


def test_of_keys_that_ran_again_those_are_listed_that_were_sent_again(tmp_path: Path) -> None:
    rows = [
        row(t.DUPLICATE_KEYS, topic=TOPIC, key=cause, executions=2, cause=cause, partition="0", again_partition="1")
        for cause in KeyCause
    ]
    [group] = audit_of(ParquetTables(write(tmp_path, {**sample(), t.DUPLICATE_KEYS: rows}))).groups
    assert {each.key for each in group.duplicate_keys.rows} == {"producer", "both"}


def test_all_tables_have_as_many_cells_as_headings(tmp_path: Path) -> None:
    [group] = audit_of(ParquetTables(write(tmp_path, sample()))).groups
    made = [*shown.wrong(group), shown.rebalances(group), shown.pauses(group), shown.lagging(group)]
    for table in [*made, shown.members(group), shown.of_all([group])]:
        assert table is not None
        assert {len(each) for each in table.rows} == {len(table.headings)}
