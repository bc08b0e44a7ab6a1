"""Rules that are broken on purpose: each stands where its list says, and a change that moves one is seen at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.broken.rules import RULES, Broken

_PACKAGE = Path(__file__).resolve().parents[2] / "holdfast"


@pytest.mark.parametrize("rule", RULES, ids=[rule.name for rule in RULES])
def test_a_rule_to_break_stands_where_it_is_looked_for_once(rule: Broken) -> None:
    text = (_PACKAGE / rule.file).read_text()
    assert text.count(rule.rule) == 1
    assert rule.broken(text) != text
    compile(rule.broken(text), rule.file, "exec")  # what is no Python is caught by nobody, or by everybody
