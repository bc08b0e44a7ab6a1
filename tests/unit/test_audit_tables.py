"""The audit's tables, and the page that explains them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.tools.audit_report.tables import TABLES

if TYPE_CHECKING:
    from holdfast.tools.audit_report.columns import Table

_PAGE = Path(__file__).parents[2] / "docs" / "operations" / "audit.md"


def as_markdown(table: Table) -> str:
    """As the page has it."""
    lines = [f"**`{table.name}`**: {table.about}.", "", "| column | type | |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| `{each.name}` | {each.type} | {each.about} |" for each in table.columns)])


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_the_page_has_the_columns_of_each_table(table: Table) -> None:
    assert as_markdown(table) in _PAGE.read_text()
