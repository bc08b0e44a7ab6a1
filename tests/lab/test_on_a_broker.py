"""One cell as it is played, on a real broker: its evidence is whole, and the judge can read it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.lab.consumers import CONSUMERS
from tests.lab.faults import FAULTS
from tests.lab.judge import Verdict
from tests.lab.stage import Servers, Stage

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.servers.kafka import KafkaServer


@pytest.mark.full
@pytest.mark.timeout(180)
def test_a_member_that_is_killed_leaves_evidence_of_it_and_the_others_go_on(kafka: KafkaServer, tmp_path: Path) -> None:
    consumer = next(each for each in CONSUMERS if each.name == "holdfast")
    fault = next(each for each in FAULTS if each.name == "kill -9")
    with Servers(kafka) as servers:
        stage = Stage(servers, consumer, fault, 1, sys.executable, tmp_path)
        evidence = stage.play({}, {})
    verdict = Verdict(evidence)
    assert {each.member for each in evidence.lives} == {"a", "b", "c"}
    assert [each.how for each in evidence.lives if each.member == stage.names[0]] == ["killed"]
    assert [each.label for each in evidence.marks] == [f"kill -9 {stage.names[0]}"]
    assert {member for each in evidence.looks for member in each.members} == {"a", "b", "c"}
    assert {each.member for each in verdict.runs} == {"a", "b", "c"}
    assert (verdict.lost, verdict.left, verdict.not_in_hand) == ([], 0, 0)
    assert sum(evidence.committed.values()) == verdict.records
    assert verdict.cpu_ms > 0
