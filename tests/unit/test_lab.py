"""The lab's judge and page: from evidence alone, without a broker or a consumer."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from tests.lab import __main__ as lab
from tests.lab import page, table, timeline
from tests.lab.__main__ import Cell, cells, report
from tests.lab.consumers import CONSUMERS
from tests.lab.evidence import Evidence, Life, Line, Look, Mark, Sent
from tests.lab.faults import FAULTS
from tests.lab.judge import Verdict

if TYPE_CHECKING:
    from pathlib import Path

_PIDS = {"a": 1, "b": 2}


def ran(member: str, offset: int, began: float, ended: float | None, partition: int = 0) -> list[Line]:
    """A handler's two lines; without an end the first alone."""
    pid = _PIDS[member]
    lines = [Line(began, member, pid, "start", partition, offset)]
    return lines if ended is None else [*lines, Line(ended, member, pid, "end", partition, offset)]


def evidence(*runs: list[Line], **given: Any) -> Evidence:
    """Ten records, one a second, in one partition; `runs` is what was done with them."""
    ledger = tuple(sorted((line for run in runs for line in run), key=lambda line: line.at))
    facts: dict[str, Any] = {
        "consumer": "bare-careful",
        "fault": "kill -9",
        "seed": 1,
        "versions": {"confluent-kafka": "2.16.1"},
        "sent": tuple(Sent(float(offset), 0, offset) for offset in range(10)),
        "ledger": ledger,
        "lives": (Life("a", 1, -1.0, 13.0, "left", (), 0.5), Life("b", 2, -1.0, 13.0, "left", (), 0.5)),
        "marks": (Mark(2.0, "kill -9 a", "harm"),),
        "looks": (),
        "committed": {0: 10},
        "over": 12.0,
    }
    return Evidence(**facts | given)


def each_once(besides: tuple[int, ...] = ()) -> list[list[Line]]:
    """By a, when it comes; `besides` are left to the test."""
    return [ran("a", offset, offset + 0.1, offset + 0.2) for offset in range(10) if offset not in besides]


def test_records_that_are_handled_once_each_are_no_finding() -> None:
    verdict = Verdict(evidence(*each_once()))
    assert (verdict.records, verdict.lost, verdict.left, verdict.again) == (10, [], 0, [])
    assert (verdict.effects_twice, verdict.at_once, verdict.memberships_lost, verdict.died) == (0, 0, 0, 0)
    assert verdict.recovery_s == 0.0
    assert verdict.cpu_ms == pytest.approx(100.0)


def test_what_nobody_has_ended_is_lost_below_the_committed_offset_and_left_above_it() -> None:
    runs = each_once((3, 9))
    verdict = Verdict(evidence(*runs, committed={0: 9}))
    assert [each.offset for each in verdict.lost] == [3]
    assert verdict.left == 1
    assert verdict.recovery_s == 0.0  # one record open is what comes in a second


def test_a_record_that_was_begun_and_never_ended_is_not_handled() -> None:
    verdict = Verdict(evidence(*each_once((3,)), ran("a", 3, 3.1, None)))
    assert [each.offset for each in verdict.lost] == [3]


def test_a_record_that_runs_twice_is_told_from_one_that_a_killed_process_had_in_hand() -> None:
    killed = (Life("a", 1, -1.0, 5.15, "killed"), Life("b", 2, -1.0, 13.0, "left"))
    runs = [ran("a", each, each + 0.1, each + 0.2) for each in range(5)] + [ran("a", 5, 5.1, None)]
    later = [ran("b", each, each + 3.0, each + 3.1) for each in range(5, 10)]
    in_hand = Verdict(evidence(*runs, *later, lives=killed))
    assert (len(in_hand.again), in_hand.not_in_hand, in_hand.effects_twice) == (1, 0, 0)
    before_too = Verdict(evidence(*runs, *later, ran("b", 3, 7.9, 8.0), lives=killed))
    assert (len(before_too.again), before_too.not_in_hand, before_too.effects_twice) == (2, 1, 1)


def test_effects_of_a_consumer_with_a_database_are_those_in_it() -> None:
    runs = [*each_once(), ran("b", 3, 7.9, 8.0)]
    assert Verdict(evidence(*runs)).effects_twice == 1
    assert Verdict(evidence(*runs, effects=tuple((0, offset) for offset in range(10)))).effects_twice == 0
    assert Verdict(evidence(*runs, effects=((0, 3), (0, 3), (0, 4)))).effects_twice == 1


def test_two_processes_with_one_record_at_once_are_seen_unless_the_first_was_dead() -> None:
    runs = [*each_once((3,)), ran("a", 3, 3.1, None), ran("b", 3, 6.0, 6.1)]
    alive = Verdict(evidence(*runs))
    assert alive.at_once == 1
    dead = (Life("a", 1, -1.0, 5.0, "killed"), Life("b", 2, -1.0, 13.0, "left"))
    assert Verdict(evidence(*runs, lives=dead)).at_once == 0
    # One process that runs it twice at once is a repeat, and no two processes.
    assert Verdict(evidence(*each_once((3,)), ran("a", 3, 3.1, None), ran("a", 3, 6.0, 6.1))).at_once == 0


def test_a_pause_counts_where_records_waited_and_one_that_never_ends_does_too() -> None:
    # Offsets 4 to 8 wait from 4.0 on and are begun together at 8.5.
    runs = each_once((4, 5, 6, 7, 8)) + [ran("b", offset, 8.5, 8.6) for offset in range(4, 9)]
    ended = Verdict(evidence(*runs))
    assert ended.longest_pause_s == pytest.approx(4.5)
    assert [(each.partition, each.began, each.ended) for each in ended.pauses if each.seconds > 1] == [(0, 4.0, 8.5)]
    never = Verdict(evidence(*each_once((4, 5, 6, 7, 8, 9)), committed={0: 4}))
    assert never.longest_pause_s == pytest.approx(8.0)
    assert never.left == 6


def test_recovery_counts_from_the_harm_and_from_the_return_of_a_server_that_was_away() -> None:
    runs = each_once((4, 5, 6, 7)) + [ran("b", offset, 8.3, 8.4) for offset in range(4, 8)]
    assert Verdict(evidence(*runs)).recovery_s == pytest.approx(6.4)
    healed = (Mark(2.0, "store killed", "harm"), Mark(7.0, "store is back", "heal"))
    assert Verdict(evidence(*runs, marks=healed)).recovery_s == pytest.approx(1.4)
    never = each_once((4, 5, 6, 7))
    twice = (Mark(2.0, "b joins", "harm"), Mark(7.0, "c joins", "harm"))
    assert Verdict(evidence(*runs, marks=twice)).recovery_s == pytest.approx(4.0)  # up to a second before the next
    assert Verdict(evidence(*never, committed={0: 4})).recovery_s == inf


def test_a_membership_is_lost_where_the_process_was_there_and_nobody_had_asked_it_to_leave() -> None:
    looks = (Look(0.5, ("a", "b")), Look(3.0, ("b",)), Look(5.0, ("a", "b")))
    assert Verdict(evidence(*each_once(), looks=looks)).memberships_lost == 1
    leaves = (Mark(2.0, "a leaves", "harm"),)
    assert Verdict(evidence(*each_once(), looks=looks, marks=leaves)).memberships_lost == 0
    killed = (Life("a", 1, -1.0, 2.5, "killed"), Life("b", 2, -1.0, 13.0, "left"))
    assert Verdict(evidence(*each_once(), looks=looks, lives=killed)).memberships_lost == 0


def test_processes_that_fell_and_that_would_not_leave_are_counted() -> None:
    lives = (Life("a", 1, -1.0, 5.0, "died"), Life("b", 2, -1.0, 25.0, "stuck"))
    verdict = Verdict(evidence(*each_once(), lives=lives))
    assert (verdict.died, verdict.stuck) == (1, 1)


def test_evidence_is_the_same_when_it_is_read_again(tmp_path: Path) -> None:
    whole = evidence(
        *each_once(),
        lives=(Life("a", 1, -1.0, 13.0, "left", ((2.0, 3.0),), 0.5),),
        looks=(Look(0.5, ("a",)),),
        effects=((0, 1),),
        machine={"cores": "2"},
    )
    whole.save(tmp_path / "cell.json.gz")
    assert Evidence.load(tmp_path / "cell.json.gz") == whole
    assert [each.name for each in tmp_path.iterdir()] == ["cell.json.gz"]


def test_the_timeline_shows_work_pauses_repeats_and_losses_where_they_were() -> None:
    frozen = (Life("a", 1, -1.0, 13.0, "left", ((4.0, 8.0),)), Life("b", 2, -1.0, 9.5, "killed"))
    runs = each_once((4, 5, 6, 7, 8)) + [ran("b", offset, 8.5, 8.6) for offset in (5, 6, 7, 8, 3)]
    runs.append(ran("a", 4, 4.1, None))
    looks = (Look(0.5, ("a", "b")), Look(7.0, ("b",)), Look(8.0, ("b",)))
    rows = {each.name: each.pieces for each in timeline.rows(Verdict(evidence(*runs, lives=frozen, looks=looks)))}
    assert list(rows) == ["a", "b", "0"]
    assert [(each.began, each.ended) for each in rows["a"] if each.kind == "frozen"] == [(4.0, 8.0)]
    assert [(each.began, each.ended) for each in rows["a"] if each.kind == "out"] == [(7.0, 8.0)]
    assert [each.began for each in rows["b"] if each.kind == "dead"] == [9.5]
    assert [(each.began, each.ended) for each in rows["0"] if each.kind == "pause"] == [(5.0, 8.5)]
    assert [each.began for each in rows["0"] if each.kind == "again"] == [8.5]
    assert [each.began for each in rows["0"] if each.kind == "lost"] == [4.1]
    assert {each.member for each in rows["0"] if each.kind == "work"} == {"a", "b"}


class _Tags(HTMLParser):
    """What a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def some() -> list[Verdict]:
    """A cell of each fault and consumer that can be played, and one that could not be."""
    found = [
        Verdict(replace(evidence(*each_once((3,))), consumer=cell.consumer.name, fault=cell.fault.name))
        for cell in cells([1], [], [])
    ]
    return [*found, Verdict(replace(found[0].evidence, seed=2, error="no <b>index</b>"))]


def test_the_page_has_a_row_and_a_timeline_for_each_cell_and_loads_nothing() -> None:
    verdicts = some()
    text = page.html(verdicts)
    tags = _Tags(text).tags
    assert sum(tag == "article" for tag, _ in tags) == len(verdicts)
    assert sum(attrs.get("role") == "img" for _, attrs in tags) == len(verdicts) - 1
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in tags}
    assert not re.search(r"https?://|@import|url\(", text)
    assert all(0 <= float(attrs["x"] or 0) <= 1000 for tag, attrs in tags if tag == "rect" and "x" in attrs)
    assert "no &lt;b&gt;index" in text
    assert "$" not in text
    for name in (*(each.title for each in CONSUMERS if each.broker == "Kafka"), *(each.name for each in FAULTS)):
        assert escape(name) in text


def test_the_table_names_each_column_and_lets_a_finding_stand_out() -> None:
    text = table.markdown(some())
    assert all(f"*{each.head}*" in text for each in table.COLUMNS)
    row = next(line for line in text.splitlines() if line.startswith("| holdfast, Redis | 10 |"))
    assert "| **1** |" in row
    [join, *others] = text.split("\n\n| ")[1:]
    assert "could not be played" in join
    # A column for the seed where there are several of that fault.
    assert "| bare client, defaults | 2 |" in join
    assert not any("seed" in each for each in others)


def test_only_a_consumer_with_a_store_can_lose_it() -> None:
    assert {each.consumer.name for each in cells([1], ["store"], [])} == {"holdfast", "holdfast-sql"}
    assert len(cells([1, 2], [], ["arroyo"])) == 2 * (len(FAULTS) - 1)


def test_consumers_on_kafka_are_played_where_none_is_chosen() -> None:
    assert {each.consumer.broker for each in cells([1], [], [])} == {"Kafka"}
    assert {each.consumer.name for each in cells([1], [], ["rocketmq"])} == {
        "rocketmq-push",
        "rocketmq-grpc",
        "rocketmq-holdfast",
    }


def test_a_cell_is_played_again_only_where_it_could_not_be_played(tmp_path: Path) -> None:
    cell = Cell(FAULTS[3], CONSUMERS[1], 1)
    assert not cell.played(tmp_path)
    evidence(error="no index").save(cell.file(tmp_path))
    assert not cell.played(tmp_path)
    evidence(*each_once()).save(cell.file(tmp_path))
    assert cell.played(tmp_path)


def test_a_run_that_is_stopped_keeps_what_it_has_and_goes_on_with_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played: list[str] = []

    def play(cell: Cell, _: object) -> Evidence:
        played.append(cell.consumer.name)
        if played == ["bare-default", "bare-careful"]:
            raise KeyboardInterrupt
        return replace(evidence(*each_once()), consumer=cell.consumer.name)

    monkeypatch.setattr(lab, "play", play)
    monkeypatch.setattr("sys.argv", ["lab", "--only", "kill", "--on", "bare", "--out", str(tmp_path)])
    assert lab.main() == 130
    assert "bare client, defaults" in (tmp_path / "lab.md").read_text()
    assert lab.main() == 0
    assert played == ["bare-default", "bare-careful", "bare-careful", "bare-kip-848"]
    assert "goes on with the cells that are missing" in capsys.readouterr().err


def test_a_report_is_made_of_what_is_there(tmp_path: Path) -> None:
    cell = Cell(FAULTS[3], CONSUMERS[1], 1)
    evidence(*each_once()).save(cell.file(tmp_path))
    assert "bare client, with care" in report(tmp_path)
    assert "<svg" in (tmp_path / "lab.html").read_text()
    assert (tmp_path / "lab.md").read_text() == report(tmp_path)
