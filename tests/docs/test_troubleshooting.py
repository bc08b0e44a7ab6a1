"""The page of troubleshooting has each error and each event that a user can see, and each reason why a record waits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from holdfast.errors import HoldfastError
from holdfast.plugin.engine.partition import figures
from holdfast.plugin.events import Event
from tests.docs.test_package import kinds

PAGE = (Path(__file__).parents[2] / "docs" / "operations" / "troubleshooting.md").read_text(encoding="utf-8")
#: Of each row of a table, what stands in its first cell.
FIRST = "\n".join(re.findall(r"^\| ([^|]*)\|", PAGE, re.MULTILINE))


def test_each_error_is_there() -> None:
    public = {each for each in kinds(HoldfastError) if each.__module__ == "holdfast.errors"} - {HoldfastError}
    assert len(public) > 30
    assert {each.__name__ for each in public if f"`{each.__name__}`" not in FIRST} == set()


def test_each_event_is_there_by_the_name_that_its_line_begins_with() -> None:
    events = get_args(Event)
    assert len(events) > 25
    assert {each.line_name() for each in events if f"`{each.line_name()}`" not in FIRST} == set()


def test_no_error_and_no_event_is_there_that_the_code_does_not_have() -> None:
    known = {each.__name__ for each in kinds(HoldfastError)} | {each.line_name() for each in get_args(Event)}
    for section in ("## Log lines", "## Errors"):
        text = PAGE.split(section)[1].split("\n## ")[0]
        named = {name for cell in re.findall(r"^\| (`[^|]*)\|", text, re.MULTILINE) for name in cell.split("`")[1::2]}
        assert named - known == set()
        assert len(named) > 20


def test_each_reason_why_a_record_waits_is_there() -> None:
    said = FIRST.lower()
    assert {each for each in figures._WAITS.values() if each not in said} == set()
    for other in ("its handler", "its turn to run", "its next attempt", "its dead letter", "the client to deliver"):
        assert other in said
