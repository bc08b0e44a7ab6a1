"""What is written is safe for terminals, fit for programs, and tells of long work."""

from __future__ import annotations

import io
import json
import logging
import re
from dataclasses import dataclass

import pytest

from holdfast.adapters.cli.letters import StoredLetter, Summary, Wanted
from holdfast.adapters.cli.output import LogLines, Output, of_bytes, shown, size, span
from holdfast.adapters.cli.progress import Progress
from holdfast.plugin.event_line import EventLine
from holdfast.records import Partition
from holdfast.testing.records import make_record
from holdfast.tools.movement import movement
from tests.harness.clocks import HandClock
from tests.harness.waiting import until


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def letter(**headers: str | None) -> StoredLetter:
    found = [(f"holdfast-{name.replace('_', '-')}", value and value.encode()) for name, value in headers.items()]
    return StoredLetter.of(
        make_record(b"v", topic="dlq", partition=1, offset=7, key=b"k\xff", headers=found, timestamp_ms=1000)
    )


def test_strangers_text_cannot_steer_a_terminal() -> None:
    assert shown("a\x1b[2Jb\nc\u202ed") == "a\\x1b[2Jb\\nc\\u202ed"
    assert shown("x" * 100, 10) == "x" * 9 + "…"


EVIL = "X\x1b]0;owned\x07\x1b[2J\x1b[Hno letters\nEXTRA LINE\r\x9b2J\u202e\x85\u2028"


def harmless(text: str, lines: int) -> bool:
    """Nothing but letters that are shown, in so many lines."""
    return text.count("\n") == lines and text.replace("\n", "").isprintable()


def test_whatever_a_command_writes_of_strangers_is_one_line_and_steers_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setenv("NO_COLOR", "1")
    out, err = Terminal(), Terminal()
    output = Output(as_json=False, out=out, err=err)
    output.say(EVIL)
    output.table((EVIL, "B"), [(EVIL, 1), (None, 2)])
    output.say_all([EVIL, EVIL])
    assert harmless(out.getvalue(), 6)
    output.note(f"holdfast: {EVIL}")
    output.confirm(EVIL, Terminal("n\n"))
    assert harmless(err.getvalue(), 2)
    assert "\n  EXTRA LINE" in err.getvalue()  # of several lines the others are set in
    with Progress(err, EVIL, None, HandClock()) as progress:
        progress._rewrite(progress._text)
    assert err.getvalue().replace("\n", "").replace("\r", "").isprintable()


def test_nor_does_json_which_is_still_the_same_text() -> None:
    out = io.StringIO()
    Output(as_json=True, out=out, err=io.StringIO()).json({EVIL: [EVIL, "\ud800", "grün 😀"]})
    assert harmless(out.getvalue(), 1)
    assert "grün 😀" in out.getvalue()
    assert json.loads(out.getvalue()) == {EVIL: [EVIL, "\ud800", "grün 😀"]}


@pytest.mark.parametrize("theirs", [False, True])
def test_nor_does_a_log(*, theirs: bool) -> None:
    lines = LogLines("%(levelname)s %(name)s: %(message)s", theirs=theirs)

    def logged(name: str) -> str:
        error = ValueError(EVIL)
        return lines.format(logging.LogRecord(name, logging.ERROR, "", 1, "a %s", (EVIL,), (ValueError, error, None)))

    found = logged("holdfast.kafka")
    first, *below = found.split("\n")
    assert first.startswith("ERROR holdfast.kafka: a X")
    assert all(line.isprintable() for line in (first, *below))
    assert all(line.startswith("  ") for line in below)
    assert (EVIL in logged("shop")) == theirs  # an application colours its own lines


def test_nor_does_the_line_of_an_event() -> None:
    @dataclass(frozen=True)
    class Told(EventLine):
        group: str
        by: dict[str, str]
        partitions: tuple[Partition, ...]

    assert str(Told(EVIL, {EVIL: EVIL}, (Partition(EVIL, 0),))).isprintable()


def test_kinds_of_errors_are_told_apart_within_a_bound() -> None:
    summary = Summary()
    for number in range(5_000):
        summary.add(letter(error_type=f"{number}" + "x" * 5_000, failed_at_ms=f"{number}"))
    assert summary.by_error.total() == 5_000
    assert len(summary.by_error) == len(summary.oldest_ms) == 101
    assert max(map(len, summary.by_error)) <= 200
    assert summary.newest_ms["(other types)"] == 4_999


def test_a_member_s_name_has_no_line_of_its_own_in_a_plan() -> None:
    @dataclass
    class Member:
        id: str
        weight: int = 1

    moved = movement(
        {Partition("o", 0): "a"}, {Partition("o", 0): "b"}, had=[Member("a")], has=[Member("a"), Member("b")]
    )
    told = moved.describe({"a": "till-1", "b": EVIL})
    assert harmless(told, moved.describe({"a": "till-1", "b": "x"}).count("\n"))


@pytest.mark.parametrize(("seconds", "told"), [(0, "0s"), (61, "1m 1s"), (86_400 * 6 + 3600 * 23 + 5, "6d 23h")])
def test_times_are_told_by_their_two_largest_units(seconds: float, told: str) -> None:
    assert span(seconds) == told


def test_sizes_are_told_in_their_unit() -> None:
    assert [size(each) for each in (0, 1023, 1536, 5 << 20, 3 << 30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 MiB",
        "3.0 GiB",
    ]


def test_bytes_that_are_no_text_are_hex_in_json() -> None:
    assert [of_bytes(each) for each in (None, b"a", b"\xff")] == [{"text": None}, {"text": "a"}, {"hex": "ff"}]


def test_results_are_for_people_or_for_programs() -> None:
    for as_json in (True, False):
        out = io.StringIO()
        output = Output(as_json=as_json, out=out, err=io.StringIO())
        output.say("for people")
        output.table(("A", "B"), [("x", 1000), ("long", None)])
        output.json({"for": "programs"})
        if as_json:
            assert json.loads(out.getvalue()) == {"for": "programs"}
        else:
            assert out.getvalue() == "for people\nA         B\nx     1,000\nlong      -\n"


def told(*, as_json: bool = False, colours: bool = True, terminal: bool = True) -> str:
    out = Terminal() if terminal else io.StringIO()
    output = Output(as_json=as_json, out=out, err=io.StringIO(), colours=colours)
    output.say("all is well", tone="good")
    output.table(("A", "B"), [("x", 1), (EVIL, 2), ("y", 3)], tones=["bad", "warning", None])
    output.json({"a": 1})
    return out.getvalue()


COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.mark.usefixtures("_terminal")
def test_a_terminal_has_colours_and_each_line_ends_its_own() -> None:
    lines = told().splitlines()
    assert lines[0] == "\x1b[32mall is well\x1b[0m"
    assert [line[:5] for line in lines[1:]] == ["\x1b[1mA", "\x1b[31m", "\x1b[33m", "y    "]
    assert all(line.count("\x1b") in (0, 2) and COLOUR.sub("", line).isprintable() for line in lines)
    assert COLOUR.sub("", told()) == told(terminal=False)


@pytest.mark.usefixtures("_terminal")
def test_nothing_else_has(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = told(terminal=False)
    assert "\x1b" not in plain
    assert told(colours=False) == plain
    assert told(as_json=True) == '{"a": 1}\n'
    monkeypatch.setenv("TERM", "dumb")
    assert told() == plain
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert told() == plain


def test_progress_rewrites_a_line_on_a_terminal_and_writes_some_elsewhere() -> None:
    terminal, log, clock = Terminal(), io.StringIO(), HandClock()
    with Progress(terminal, "read", 10_000, clock) as there, Progress(log, "read", None, clock) as here:
        for done in range(0, 10_000, 100):
            clock.sleep(0.125)
            there.at(done)
            here.at(done, "some sent")
    assert "\r" in terminal.getvalue()
    assert "\n" not in terminal.getvalue()
    assert terminal.getvalue().endswith("\r")
    assert "read: 9,900 of 10,000" in terminal.getvalue()
    assert log.getvalue() == "read: 3,900, some sent\nread: 7,900, some sent\n"


def test_quick_work_says_nothing_of_its_progress() -> None:
    log = io.StringIO()
    with Progress(log, "read", None, HandClock()) as progress:
        progress.at(1)
    assert log.getvalue() == ""


def test_work_that_waits_says_on_a_terminal_that_it_goes_on() -> None:
    terminal, clock = Terminal(), HandClock()
    with Progress(terminal, "asking about billing", None, clock) as progress:
        clock.sleep(1.5)
        progress.beat()
        assert terminal.getvalue() == ""
        clock.sleep(1.5)
        progress.beat()
        assert terminal.getvalue() == "\rasking about billing, 3 s"
        progress.at(7)
        clock.sleep(2.5)
        progress.beat()
        assert terminal.getvalue().endswith("asking about billing: 7, 6 s")
    assert terminal.getvalue().endswith("\r")
    said = terminal.getvalue()
    progress.beat()
    assert terminal.getvalue() == said  # nothing after its end


def test_a_terminal_hears_of_work_without_being_asked() -> None:
    terminal, clock = Terminal(), HandClock()
    with Progress(terminal, "asking", None, clock):
        clock.sleep(3.0)
        until(lambda: "asking, 3 s" in terminal.getvalue())


def test_a_line_of_the_result_stands_alone() -> None:
    terminal = Terminal()
    output = Output(as_json=False, out=terminal, err=terminal)
    with output.progress("asking") as progress:
        progress._rewrite("asking, 3 s")
        output.say("orders-0")
        output.note("a note")
    assert terminal.getvalue() == "\rasking, 3 s\r           \rorders-0\na note\n"


def test_a_person_is_asked_only_at_a_terminal() -> None:
    output = Output(as_json=False, out=io.StringIO(), err=io.StringIO())
    assert output.confirm("Sure?", io.StringIO("y\n")) is None
    answers = {"y\n": True, "YES\n": True, "n\n": False, "\n": False, "": False}
    assert {said: output.confirm("Sure?", Terminal(said)) for said in answers} == answers


def test_a_letter_is_what_its_headers_say_and_nothing_where_they_are_broken() -> None:
    found = letter(origin_topic="orders", origin_partition="3", origin_offset="9", attempts="2", failed_at_ms="500")
    assert (found.origin, found.attempts, found.when_ms, found.handler) == ("orders-3@9", 2, 500, None)
    foreign = letter(attempts="two", failed_at_ms=None, origin_offset="9")
    assert (foreign.origin, foreign.attempts, foreign.when_ms) == (None, None, 1000)
    assert foreign.as_json(values=True)["key"] == {"hex": "6bff"}
    assert len(foreign.row(2000, values=False)) == 9


def test_numbers_of_any_length_do_no_harm() -> None:
    digits = "9" * 5_000
    found = letter(origin_topic="orders", origin_partition=digits, attempts=digits, failed_at_ms=digits)
    assert (found.origin_partition, found.attempts, found.when_ms) == (None, None, 1000)
    assert letter(failed_at_ms="9" * 18).row(2000, values=False)
    assert letter(attempts="\u0663", origin_offset="-1").attempts is None


def test_letters_are_chosen_by_what_befell_them() -> None:
    found = letter(error_type="shop.errors.Declined", handler="bill", origin_topic="orders", failed_at_ms="500")
    wanted = [Wanted(), Wanted(error_type="Declined"), Wanted(error_type="shop.errors.Declined"), Wanted(since_ms=500)]
    assert all(each(found) for each in wanted)
    others = [
        Wanted(error_type="eclined"),
        Wanted(handler="b"),
        Wanted(origins=frozenset({"order"})),
        Wanted(since_ms=501),
    ]
    assert not any(each(found) for each in others)
