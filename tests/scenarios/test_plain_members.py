"""The harness sees what goes wrong: with plain loops a crash repeats work, and the referee says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.scenarios import stories_crash, stories_graceful

if TYPE_CHECKING:
    from pathlib import Path

    from tests.scenarios.config import Kind, Protocol
    from tests.servers.kafka import KafkaServer


# Of this the protocol changes nothing; `make chaos` plays it on all.
@pytest.mark.parametrize(("kind", "protocol"), [("careful", "cooperative"), ("default", "consumer")])
def test_a_crash_of_a_plain_loop_repeats_work_and_is_seen(
    kafka: KafkaServer, tmp_path: Path, protocol: Protocol, kind: Kind
) -> None:
    outcome = stories_crash.kill_under_backlog.tell(kafka, None, tmp_path, protocol, 1, kind)
    assert outcome.repeats
    assert outcome.lost == 0


def test_automatic_commits_repeat_more_than_was_in_hand(kafka: KafkaServer, tmp_path: Path) -> None:
    outcome = stories_crash.kill.tell(kafka, None, tmp_path, "eager", 1, "default")
    assert any("no death excuses" in each for each in stories_crash.kill.faults(outcome))


def test_a_careful_loop_passes_a_graceful_join(kafka: KafkaServer, tmp_path: Path) -> None:
    outcome = stories_graceful.join.tell(kafka, None, tmp_path, "consumer", 1, "careful")
    assert stories_graceful.join.faults(outcome) == []
