"""The page about the simulated world names what there is: each rule that is broken on purpose, and each judge."""

from __future__ import annotations

import re
from pathlib import Path

from tests.simulation.broken.rules import RULES

_ROOT = Path(__file__).resolve().parents[2]
_PAGE = (_ROOT / "docs" / "project" / "simulation.md").read_text()
_OF_RULES, _OF_JUDGES = _PAGE.split("<!-- broken: begin -->")[1].split("<!-- broken: end -->")
#: How a judge tells what it has found.
_BROKEN = re.compile(r'broken\(\s*"([A-Z][A-Z ]+)"')


def test_each_rule_that_is_broken_on_purpose_has_its_line() -> None:
    lines = re.findall(r"^\| ([a-z0-9-]+) \| (\d+|-) \|", _OF_RULES, re.MULTILINE)
    assert sorted(name for name, _ in lines) == sorted(rule.name for rule in RULES)
    caught = sum(after != "-" for _, after in lines)
    assert f"{caught} of {len(lines)} were caught" in _OF_RULES


def test_each_judge_has_something_that_shows_that_it_can_fail() -> None:
    lines = re.findall(r"^\| ([A-Z][A-Z ]+) \| (.*) \|$", _OF_JUDGES, re.MULTILINE)
    judges = {
        name
        for folder in ("judging", "playing")
        for path in (_ROOT / "tests" / "simulation" / folder).glob("*.py")
        for name in _BROKEN.findall(path.read_text())
    }
    assert sorted(name for name, _ in lines) == sorted(judges)
    assert f"Of all {len(lines)} judges" in _OF_JUDGES
    shown = {each for _, by in lines for each in re.findall(r"`([^`]+)`", by)}
    assert not {each for each in shown if "/" not in each} - {rule.name for rule in RULES}
