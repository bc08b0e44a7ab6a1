"""The broker starts again: records come again, and nothing is lost or runs twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contracts.kafka.share.lab import Field, Gate
from tests.harness.servers.kafka import KafkaServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.let_go()


def values(first: int, end: int) -> list[str]:
    return [f"x{number}" for number in range(first, end)]


@pytest.mark.full
def test_a_broker_that_starts_again_knows_no_locks_and_nothing_runs_twice(gate: Gate) -> None:
    with KafkaServer() as kafka:
        field = Field(kafka, lock_s=60)
        gate.hold("x3")
        field.fill(values(0, 50))
        with field.app(gate):
            gate.wait(lambda: "x3" in gate.started)
            kafka.restart()
            field.fill(values(50, 60))
            gate.wait_for(set(values(0, 60)) - {"x3"})
            gate.let_go()
            gate.wait_for(["x3"])
        assert gate.twice == []
        assert field.left() == []
