"""The harness sees what goes wrong on RocketMQ: with rocketmq-client-python's PushConsumer alone work is repeated, or
lost, where nobody dies, and the referee says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.harness.group.field import FieldError
from tests.stories import stories_crash, stories_graceful

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.group.outcome import Outcome
    from tests.harness.group.story import Story
    from tests.harness.servers.rocketmq import RocketMQServer


pytestmark = pytest.mark.full


def _told(rocketmq: RocketMQServer, home: Path, story: Story, seed: int = 1) -> Outcome:
    home.mkdir()
    try:
        outcome = story.tell(rocketmq, None, home, "rocketmq", seed, "push")
    except FieldError as error:  # now and then it leaves queues alone for a minute
        if error.outcome is None:
            raise
        outcome = error.outcome
    print(f"{story.name}: {len(outcome.repeats)} repeats, {outcome.lost} lost, of {len(outcome.produced)}")
    return outcome


def test_a_push_consumer_repeats_or_loses_work_while_nobody_dies(rocketmq: RocketMQServer, tmp_path: Path) -> None:
    stories = [stories_graceful.join, stories_graceful.leave, stories_graceful.rolling_restart]
    told = [_told(rocketmq, tmp_path / each.name, each) for each in stories]
    assert any(each.repeats or each.lost for each in told)


def test_a_crash_of_a_push_consumer_repeats_more_than_its_threads_had_in_hand(
    rocketmq: RocketMQServer, tmp_path: Path
) -> None:
    kill = stories_crash.kill_under_backlog  # now and then it comes just after offsets were stored, every 5 s
    told = (_told(rocketmq, tmp_path / f"kill-{seed}", kill, seed) for seed in range(1, 5))
    assert any(len(each.repeats) > 16 for each in told)
