"""The harness sees what goes wrong: with plain loops a crash repeats work, and the referee says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stories import stories_crash, stories_graceful

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.harness.group.config import Kind, Protocol
    from tests.harness.group.outcome import Outcome
    from tests.harness.group.story import Story
    from tests.harness.servers.kafka import KafkaServer


pytestmark = pytest.mark.full


# Of this the protocol changes nothing; `make chaos` plays it on all.
@pytest.mark.parametrize(("kind", "protocol"), [("careful", "cooperative"), ("default", "consumer")])
def test_a_crash_of_a_plain_loop_repeats_work_and_is_seen(
    kafka: KafkaServer, tmp_path: Path, protocol: Protocol, kind: Kind
) -> None:
    outcomes = _told(stories_crash.kill_under_backlog, kafka, tmp_path, protocol, kind)
    assert any(_repeats_and_loses_nothing(each) for each in outcomes)


def _repeats_and_loses_nothing(outcome: Outcome) -> bool:
    assert outcome.lost == 0
    return bool(outcome.repeats)


def test_automatic_commits_repeat_more_than_was_in_hand(kafka: KafkaServer, tmp_path: Path) -> None:
    outcomes = _told(stories_crash.kill, kafka, tmp_path, "eager", "default")
    faults = (stories_crash.kill.faults(each) for each in outcomes)
    assert any("no death excuses" in fault for told in faults for fault in told)


def _told(story: Story, kafka: KafkaServer, home: Path, protocol: Protocol, kind: Kind) -> Iterator[Outcome]:
    """By one seed after the other, as they are asked for: now and then a crash comes just after a commit."""
    for seed in range(1, 5):
        (home / str(seed)).mkdir()
        yield story.tell(kafka, None, home / str(seed), protocol, seed, kind)


def test_a_careful_loop_passes_a_graceful_join(kafka: KafkaServer, tmp_path: Path) -> None:
    outcome = stories_graceful.join.tell(kafka, None, tmp_path, "consumer", 1, "careful")
    assert stories_graceful.join.faults(outcome) == []
