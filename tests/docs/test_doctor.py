"""docs/operations/doctor.md has every rule, as it is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.tools.advice import doctor

if TYPE_CHECKING:
    from holdfast.tools.advice.doctor import Rule

DOC = (Path(__file__).parents[2] / "docs" / "operations" / "doctor.md").read_text(encoding="utf-8")
RULES: list[Rule[Any]] = [*doctor.CONF_RULES, *doctor.GROUP_RULES, *doctor.JOINING_RULES]


def row(rule: Rule[Any]) -> str:
    severity = "; ".join([rule.severity.value, *(f"{each.value}: {which}" for each, which in rule.also)])
    return f"| `{rule.name}` | {severity} | {rule.effect.value} | {rule.title} |"


def test_every_rule_is_in_the_table_and_nothing_else() -> None:
    rows = [line for line in DOC.splitlines() if line.startswith("| `")]
    assert rows == [row(rule) for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_says_which_other_severities_its_findings_have(rule: Rule[Any]) -> None:
    source = inspect.getsource(inspect.unwrap(rule.look)).replace("_DROPPED", "Severity.WARNING")
    assert set(re.findall(r"Severity\.(\w+)", source)) == {each.name for each, _ in rule.also}
