"""The traceback of a failed handler: once in the log, and bounded in the letter."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NoReturn

from hypothesis import given
from hypothesis import strategies as st

from holdfast.plugin.events import LetterHookFailed
from holdfast.plugin.observe.observers import Observers
from holdfast.plugin.retrying.failures import MAX_TRACEBACK_BYTES, Failures, traceback_of
from holdfast.records import Partition
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    import pytest

ORDERS_3 = Partition("orders", 3)


def raised(error: Exception, depth: int = 0) -> Exception:
    def deep(left: int) -> NoReturn:
        body = "4711" * 4
        if left and body:
            deep(left - 1)
        raise error

    try:
        deep(depth)
    except type(error) as found:
        return found


def test_it_says_where_the_handler_failed_and_nothing_of_what_variables_held() -> None:
    told = traceback_of(raised(KeyError("adress")))
    assert told.startswith("Traceback")
    assert told.endswith("KeyError: 'adress'\n")
    assert "raise error" in told
    assert "in deep" in told
    assert "4711471147114711" not in told


@given(st.text(max_size=3 * MAX_TRACEBACK_BYTES), st.integers(0, 100))
def test_it_is_bounded_and_its_end_is_kept(text: str, depth: int) -> None:
    told = traceback_of(raised(ValueError(text), depth)).encode()
    assert len(told) <= MAX_TRACEBACK_BYTES
    assert b"ValueError" in told


def test_causes_are_told_as_far_as_there_is_room() -> None:
    error = ValueError("what came of it")
    error.__cause__ = raised(OSError("the cause"))
    told = traceback_of(error)
    assert told.index("the cause") < told.index("what came of it")


def test_an_error_that_cannot_be_printed_is_told_all_the_same() -> None:
    class Silent(Exception):
        def __str__(self) -> NoReturn:
            raise RuntimeError("not today")

    assert "Silent" in traceback_of(raised(Silent()))


def test_the_log_has_it_once_for_each_kind_and_then_counts(caplog: pytest.LogCaptureFixture) -> None:
    failures = Failures()
    with caplog.at_level(logging.ERROR, "holdfast"):
        for number in range(120):
            failures.saw("bill", ORDERS_3, number, raised(KeyError("adress")))
        failures.saw("bill", ORDERS_3, 120, raised(ValueError("other")))
        failures.saw("ship", ORDERS_3, 121, raised(KeyError("adress")))
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 5
    assert [record.exc_info is not None for record in caplog.records] == [True, False, False, True, True]
    assert caplog.messages[0].startswith("bill failed on orders-3@0 with KeyError")
    assert caplog.messages[1:3] == [
        "bill has failed with KeyError 10 times since the start",
        "bill has failed with KeyError 100 times since the start",
    ]
    assert "in deep" in caplog.text


def test_classes_without_end_are_one_kind_some_day(caplog: pytest.LogCaptureFixture) -> None:
    failures = Failures()
    with caplog.at_level(logging.ERROR, "holdfast"):
        for number in range(1_000):
            failures.saw("bill", ORDERS_3, number, type(f"Error{number}", (Exception,), {})())
    assert len(caplog.records) < 250


def test_an_observer_that_fails_on_each_event_writes_few_and_short_lines(caplog: pytest.LogCaptureFixture) -> None:
    class Picky:
        def on_event(self, event: object) -> None:
            raise ValueError("4711" * 10_000)

    observers = Observers(lambda _: None, [Picky()], SYSTEM_CLOCK)
    for offset in range(100):
        observers.tell(LetterHookFailed(partition=ORDERS_3, offset=offset, handler="handle", hook="page", error="no"))
    told = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert [each.partition(" with ")[0].partition(" failed on ")[0] for each in told][:2] == [
        f"the observer {Picky.__qualname__}",
        f"the observer {Picky.__qualname__} has failed",
    ]
    assert len(told) == 3, "the first, the tenth and the hundredth"
    assert caplog.text.count("Traceback") == 1
    assert len(caplog.text) < 50_000
