"""docs/doctor.md has every rule, as it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.plugin import doctor

if TYPE_CHECKING:
    from holdfast.plugin.doctor import Rule

DOC = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text(encoding="utf-8")


def row(rule: Rule[Any]) -> str:
    return f"| `{rule.name}` | {rule.severity.value} | {rule.effect.value} | {rule.title} |"


def test_every_rule_is_in_the_table_and_nothing_else() -> None:
    rules: list[Rule[Any]] = [*doctor.CONF_RULES, *doctor.GROUP_RULES, *doctor.JOINING_RULES]
    rows = [line for line in DOC.splitlines() if line.startswith("| `")]
    assert rows == [row(rule) for rule in rules]
