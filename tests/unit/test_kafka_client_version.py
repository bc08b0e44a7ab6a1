"""Clients that lose records are refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import libversion

from holdfast.adapters.kafka.quirks.client_version import check
from holdfast.errors import ClientUnusable


@pytest.mark.parametrize(("version", "number"), [("2.6.0", 0x020600FF), ("2.12.2", 0x020C02FF), ("2.13.0", 0x020D00FF)])
def test_a_client_that_skips_records_is_refused(version: str, number: int) -> None:
    with pytest.raises(ClientUnusable, match=re.escape(f"librdkafka {version} can skip a record")):
        check(version, number)


def test_the_first_that_does_not_is_taken_and_so_is_ours() -> None:
    check("2.13.2", 0x020D02FF)
    check(*libversion())


def test_the_extras_ask_for_no_older_one() -> None:
    asked = re.findall(r'"confluent-kafka[^">]*>=([\d.]+)"', (Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert asked == ["2.13.2"] * 3
