"""What a handler logs says which record it was about."""

from __future__ import annotations

import asyncio
import logging
import logging.config
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import LogPlace, Settings
from tests.harness.engine import Bench

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast import Record

_log = logging.getLogger("shop")


class Lines(logging.Handler):
    """What was logged, in the thread in which it was."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def fields(self, *names: str) -> list[tuple[Any, ...]]:
        return [tuple(getattr(each, name) for name in names) for each in self.records]


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    handler.addFilter(LogPlace())
    _log.addHandler(handler)
    yield handler
    _log.removeHandler(handler)


def played(handler: Any, records: int, **handling: Any) -> None:
    with Bench() as bench:
        bench.broker.produce("orders", 0, *(f"r{number}" for number in range(records)))
        settings = Settings(workers=4, commit_interval_s=0.01)
        member = bench.member(handler=handler, settings=settings, start=False, **handling)
        member.app.use(LogPlace())
        member.start()
        bench.wait_committed(records)
        member.stop()


def test_each_call_has_its_own_place_and_attempt(lines: Lines) -> None:
    failed: set[int] = set()

    def handle(record: Record) -> None:
        _log.warning("%d", record.offset)
        if record.offset == 1 and not failed:
            failed.add(record.offset)
            raise ValueError("once")

    played(handle, 3, key=lambda record: record.value.decode())
    found = sorted(lines.fields("message", "topic", "partition", "offset", "key", "handler", "attempt", "records"))
    assert found == [
        ("0", "orders", 0, 0, "r0", "handle", 1, None),
        ("1", "orders", 0, 1, "r1", "handle", 1, None),
        ("1", "orders", 0, 1, "r1", "handle", 2, None),
        ("2", "orders", 0, 2, "r2", "handle", 1, None),
    ]


def test_coroutines_that_run_at_the_same_time_do_not_mix(lines: Lines) -> None:
    here: list[int] = []
    all_here = asyncio.Event()

    async def handle(record: Record) -> None:
        here.append(record.offset)
        if len(here) == 3:
            all_here.set()
        await all_here.wait()
        _log.warning("%d", record.offset)
        await asyncio.to_thread(_log.warning, "%d", record.offset)

    played(handle, 3)
    assert sorted(lines.fields("message", "place")) == [
        (str(offset), f"orders-0@{offset}") for offset in range(3) for _ in range(2)
    ]


def test_outside_of_a_handler_there_is_no_place(lines: Lines) -> None:
    _log.warning("outside")
    assert lines.fields("place", "topic", "offset", "attempt") == [("-", None, None, None)]


def test_what_the_application_says_itself_stays(lines: Lines) -> None:
    played(lambda record: _log.warning("here", extra={"key": "mine"}), 1, key=lambda record: "theirs")
    assert lines.fields("key", "offset") == [("mine", 0)]


def test_a_configuration_of_logging_can_name_it() -> None:
    configurator = logging.config.DictConfigurator({"version": 1})
    made: Any = configurator.configure_filter({"()": "holdfast.LogPlace"})
    said: list[str] = []

    class Said(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(self.format(record))

    handler = Said()
    handler.addFilter(made)
    handler.setFormatter(logging.Formatter("%(place)s %(handler)s %(message)s"))
    _log.addHandler(handler)
    try:
        _log.warning("outside")
        played(lambda record: _log.warning("inside"), 1)
    finally:
        _log.removeHandler(handler)
    assert said == ["- None outside", "orders-0@0 handle inside"]
