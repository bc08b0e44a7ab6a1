"""Terminals of any width: no word is cut, no cell is left out, and a line that is too long is one word."""

from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.cli import lag, status
from holdfast.adapters.cli.lag_rates import Rates, lines_of
from holdfast.adapters.cli.layout import columns, table, wrapped
from holdfast.adapters.cli.letters import COLUMNS, StoredLetter
from holdfast.adapters.cli.output import Output
from holdfast.records import Partition
from holdfast.testing.records import make_record
from holdfast.tools.advice.group_view import GroupView, MemberView, Node, PartitionView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.cli.status_request import App

LONG = "eu-central-1.production.payments.orders.confirmed.v2"
MEMBER = "payments-worker-7f9c6d5b8-x2k4q"
NAMES = ("PARTITION", "LAG", "WAITS FOR")
ROWS = [
    (f"{LONG}-0", 12, "its key, which another member has claimed"),
    ("b-1", 1_300, "价格 不能 为负数"),
    ("c", 7, ""),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def flat(blocks: Sequence[Sequence[str]]) -> list[str]:
    return [line for block in blocks for line in block]


@pytest.mark.parametrize("width", [8, 20, 40, 60, 80, 120, 200])
def test_every_word_is_whole_and_only_a_word_is_longer_than_the_terminal(width: int) -> None:
    lines = flat(table(NAMES, ROWS, width))
    words = [
        word
        for cells in (NAMES, *ROWS)
        for cell in cells
        for word in (f"{cell:,}" if cell == 1_300 else str(cell)).split()
    ]
    assert sorted(" ".join(lines).split()) == sorted(words)
    assert all(columns(line) <= width or len(line.split()) == 1 for line in lines)


def test_a_table_that_fits_has_a_line_a_row() -> None:
    assert table(("A", "B"), [("x", 1_000), ("long", None)], 12) == [["A         B"], ["x     1,000"], ["long      -"]]
    assert [len(each) for each in table(NAMES, ROWS, None)] == [1, 1, 1, 1]


def test_columns_without_room_stand_below_their_row_and_one_that_says_nothing_takes_no_line() -> None:
    rows = [("orders-0", 12, "its key, which another has"), ("orders-1", 7, ""), ("orders-2", 0, "-")]
    assert table(("PARTITION", "LAG", "WAITS FOR"), rows, 30) == [
        ["PARTITION  LAG", "  WAITS FOR"],
        ["orders-0    12", "  its key, which another has"],
        ["orders-1     7"],
        ["orders-2     0"],
    ]


def test_a_sentence_goes_on_set_in_and_keeps_its_spaces() -> None:
    assert wrapped("  found  one two three", 14, 4) == ["  found  one", "    two three"]
    assert wrapped("short", 5, 2) == ["short"]
    assert wrapped("a " * 50, None, 2) == ["a " * 50]


def test_wide_letters_count_twice_and_accents_nothing() -> None:
    assert [columns(each) for each in ("abc", "价格", "é", "e\u0301")] == [3, 4, 1, 1]
    assert table(("A", "B"), [("价格", "x"), ("abcd", "y")], None)[1:] == [["价格  x"], ["abcd  y"]]


def test_elsewhere_a_row_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    log = io.StringIO()
    output = Output(as_json=False, out=log, err=io.StringIO())
    output.say("a sentence that is longer than twenty columns")
    output.table(NAMES, ROWS)
    assert log.getvalue().count("\n") == 1 + 1 + len(ROWS)


# ---- commands
def group() -> GroupView:
    node = Node("1", "kafka-1.internal:9092")
    partitions = {
        each: PartitionView(partition=each, committed=1_200_000 + each.number, first=0, end=1_300_000, leader=node)
        for each in (Partition(LONG, number) for number in range(40))
    }
    partitions[Partition(LONG, 40)] = PartitionView(partition=Partition(LONG, 40), first=0, end=1_300_000, leader=node)
    members = tuple(
        MemberView(
            id=name, client_id=f"{MEMBER}{name}", host="/10.0.12.1", protocol="classic", partitions=frozenset(mine)
        )
        for name, mine in (("a", [*partitions][:20]), ("b", [*partitions][20:]))
    )
    said = "the brokers do not say how long they keep offsets: this user may not describe their configuration"
    return GroupView(
        kind="kafka", group="billing", state="stable", protocol="classic", assignor="cooperative-sticky",
        coordinator=node, members=members, partitions=partitions, notes=(said,),
    )  # fmt: skip


def app(partitions: int) -> App:
    lowest = {"for_s": 75, "handler": "billing.handlers.confirm", "waits_for": "its key, which another has claimed"}
    figures = {
        "phase": "owned",
        "watermark": 120_000,
        "log_end": 121_000,
        "lag": 1_000,
        "in_flight": 12,
        "lowest": lowest,
    }
    rows = [{"partition": f"{LONG}-{each}", "waiting_for_claims": 0, **figures} for each in range(partitions)]
    return {
        "group": "billing", "state": "running", "uptime_s": 7_300, "live": True, "ready": False, "store": {"up": True},
        "records": {"handled": 12_345_678, "suppressed_by_position": 3, "suppressed_by_key": 5, "dead_lettered": 2},
        "load": {"in_flight": 48, "running": 16}, "partitions": rows,
        "reasons": [f"{LONG}-3 has not moved for 75 s: it waits for its key, which another member has claimed"],
    }  # fmt: skip


def letter() -> StoredLetter:
    said = {
        "origin-topic": LONG, "origin-partition": "3", "origin-offset": "120000", "attempts": "5",
        "handler": "billing.handlers.confirm_payment", "error-type": "shop.errors.PaymentDeclined",
        "error-message": "the bank declined the payment: insufficient funds on the account 4711 of this customer: "
        "let the customer choose another card",
    }  # fmt: skip
    headers = [(f"holdfast-{name}", value.encode()) for name, value in said.items()]
    return StoredLetter.of(make_record(b"v", topic="dlq", partition=0, offset=7, key=b"customer-0815", headers=headers))


@pytest.fixture(params=[80, 200])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("COLUMNS", str(request.param))
    monkeypatch.setenv("NO_COLOR", "1")
    width: int = request.param
    return width


def seen(terminal: Terminal, width: int) -> str:
    lines = terminal.getvalue().removeprefix("\x1b[H\x1b[J").splitlines()
    assert [line for line in lines if columns(line) > width] == []
    return " ".join(" ".join(lines).split())


def test_the_lag_of_long_names_fits_a_terminal(width: int) -> None:
    terminal, view = Terminal(), group()
    lag._tell(view, lines_of(view), Output(as_json=False, out=terminal, err=None))
    told = seen(terminal, width)
    assert all(f"{each}" in told for each in view.partitions)
    assert f"{MEMBER}a" in told
    assert view.notes[0] in told
    assert "classic protocol with cooperative-sticky, coordinator 1 (kafka-1.internal:9092)" in told


@pytest.mark.parametrize("height", [24, 40])
def test_a_watched_group_fits_the_screen(width: int, height: int) -> None:
    terminal, view, rates = Terminal(), group(), Rates()
    rates.add(0.0, view)
    lag._tell(view, lines_of(view, rates), Output(as_json=False, out=terminal, err=None), watching=True, height=height)
    assert "partitions more" in seen(terminal, width)
    assert terminal.getvalue().count("\n") < height
    assert terminal.getvalue().count("\n") > height - 6  # and its room is used


def test_the_status_of_long_names_fits_a_terminal(width: int) -> None:
    terminal = Terminal()
    status._tell([app(3)], Output(as_json=False, out=terminal, err=None))
    told = seen(terminal, width)
    assert all(f"{LONG}-{each} " in told for each in range(3))
    assert told.count("its key, which another has claimed") == 3
    assert told.count("billing.handlers.confirm ") == 3


def test_a_watched_process_fits_the_screen(width: int) -> None:
    terminal = Terminal()
    status._tell([app(40), app(40)], Output(as_json=False, out=terminal, err=None), 48)
    assert seen(terminal, width).count("partitions more") == 2
    assert terminal.getvalue().count("\n") < 48


def test_a_partition_that_is_wrong_and_a_process_that_is_not_ready_catch_the_eye(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    told, lost = Terminal(), Partition(LONG, 3)
    output = Output(as_json=False, out=told, err=None)
    seen, view = app(2), group()
    seen["partitions"][1] = {**seen["partitions"][1], "phase": "assigned"}
    status._tell([seen], output)
    view.partitions[lost] = dataclasses.replace(view.partitions[lost], first=1_250_000)  # type: ignore[index]
    lag._tell(view, lines_of(view), output)
    lines = told.getvalue().splitlines()
    assert lines[0].startswith("\x1b[33mbilling: running")
    assert [line.startswith("\x1b[33m") for line in lines if line.rstrip("\x1b[0m").endswith("has claimed")][:2] == [
        False,
        True,
    ]
    assert [line for line in lines if line.startswith("\x1b[31m")] == [line for line in lines if "lost:" in line]


def test_what_a_letter_says_that_the_next_command_needs_is_whole(width: int) -> None:
    terminal = Terminal()
    Output(as_json=False, out=terminal, err=None).table(COLUMNS, [letter().row(0, values=False)])
    told = seen(terminal, width)
    for each in (
        f"{LONG}-3@120000",
        "billing.handlers.confirm_payment",
        "shop.errors.PaymentDeclined",
        "customer-0815",
    ):
        assert each in told
    assert (
        told.count("insufficient funds on the account 4711 of this customer: let the customer choose another card") == 1
    )
