"""docs/explanation/timing.md has the defaults that `holdfast doctor` goes by, which are the clients' own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.tools.advice.rules.conf import DEFAULTS, Client

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "timing.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| `")]


def said(cell: str) -> str:
    return cell.replace(",", "").replace(" ms", "").lower()


@pytest.mark.parametrize(("column", "client"), [(1, Client.LIBRDKAFKA), (2, Client.JAVA), (3, Client.HOLDFAST)])
def test_kafkas_defaults_are_those_of_the_clients(column: int, client: Client) -> None:
    compared = 0
    for row in ROWS:
        if len(row) < 5:
            continue  # another table's
        [name] = re.findall(r"^`([\w.]+)`", row[0])
        default, cell = DEFAULTS[client].get(name), row[column]
        if default is None or not re.fullmatch(r"[\d,]+|true|false|largest|latest|earliest", cell):
            continue
        assert said(cell) == default, name
        compared += 1
    assert compared > 4


def test_rocketmqs_defaults_are_those_of_the_client() -> None:
    compared = 0
    for row in ROWS:
        name = re.sub(r"([A-Z])", lambda found: "_" + found[1].lower(), row[0].strip("`"))
        default = DEFAULTS[Client.ROCKETMQ].get(name)
        if default is not None and row[1].endswith(" ms"):
            assert said(row[1]) == default, name
            compared += 1
    assert compared > 2
