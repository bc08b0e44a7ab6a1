"""Member processes that join, leave, die and stand still, more of them than partitions; the ledger is outside of
them. Nothing is lost, nothing is archived, and no more runs again than was in hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contracts.kafka.share.crew import Crew
from tests.contracts.kafka.share.lab import Field

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.servers.kafka import KafkaServer

LOCK_S = 6.0


def test_twice_as_many_members_as_partitions_all_work_and_come_and_go(
    kafka: KafkaServer, redis_url: str, tmp_path: Path
) -> None:
    field = Field(kafka, partitions=2, lock_s=60)  # what was not given back would not come again in time
    with Crew(field, redis_url, tmp_path) as crew:
        members = [crew.join(f"m{number}") for number in range(4)]
        crew.feed_until(lambda: all(len(crew.of(member, "end")) >= 20 for member in members))
        members[0].leave()
        late = crew.join("late")
        crew.feed_until(lambda: len(crew.of(late, "end")) >= 20)
        members[1].leave()
        crew.wait_for_all()
        for member in (*members[2:], late):
            member.leave()
        assert crew.twice == set()
    assert (field.left(), field.dead()) == ([], [])


def test_after_a_kill_others_have_at_once_what_it_had_and_only_that_runs_again(
    kafka: KafkaServer, redis_url: str, tmp_path: Path
) -> None:
    field = Field(kafka, lock_s=60)
    with Crew(field, redis_url, tmp_path) as crew:
        victim, other = crew.join("victim", work_s=0.3), crew.join("other", work_s=0.05)
        crew.feed_until(lambda: len(crew.of(victim, "end")) >= 6 and len(crew.of(other, "end")) >= 6)
        victim.kill()
        in_hand = crew.in_hand(victim)
        crew.wait_for_all()
        other.leave()
        assert crew.twice <= in_hand
    assert (field.left(), field.dead()) == ([], [])


@pytest.mark.full
def test_who_stands_still_past_the_lock_starts_nothing_of_what_others_have(
    kafka: KafkaServer, redis_url: str, tmp_path: Path
) -> None:
    field = Field(kafka, lock_s=LOCK_S)
    with Crew(field, redis_url, tmp_path) as crew:
        frozen, other = crew.join("frozen", work_s=0.3), crew.join("other", work_s=0.05)
        crew.feed_until(lambda: len(crew.of(frozen, "end")) >= 6 and len(crew.of(other, "end")) >= 6)
        frozen.freeze()
        in_hand = crew.in_hand(frozen)
        crew.wait_for_all()  # what it had too, after the end of its locks
        frozen.wake()
        before = len(crew.of(frozen, "end"))
        crew.feed_until(lambda: len(crew.of(frozen, "end")) >= before + 6)
        crew.wait_for_all()
        frozen.leave()
        other.leave()
        assert crew.twice <= in_hand
    assert (field.left(), field.dead()) == ([], [])


@pytest.mark.full
def test_killed_again_and_again_nothing_is_lost_and_nothing_archived(
    kafka: KafkaServer, redis_url: str, tmp_path: Path
) -> None:
    """Each kill is a delivery of all that the process has in hand: whole batches, most of them never begun. What has
    had all its deliveries is in the dead letters."""
    field = Field(kafka, lock_s=LOCK_S, deliveries=3)
    with Crew(field, redis_url, tmp_path) as crew:
        crew.feed(120, batch=10)

        def accounted_for() -> set[str]:
            ended = {entry.key for entry in crew.entries("end")}
            return ended | {(letter.value() or b"").decode() for letter in field.dead()}

        for number in range(6):
            victim = crew.join(f"victim{number}", work_s=0.1)
            crew.wait(lambda victim=victim: len(crew.of(victim, "end")) >= 5 or accounted_for() >= set(crew.fed))  # type: ignore[misc]
            victim.kill()
        last = crew.join("last")
        crew.wait(lambda: accounted_for() >= set(crew.fed))
        last.leave()
        assert any(entry.key for entry in crew.entries("end"))
    assert field.left() == []
