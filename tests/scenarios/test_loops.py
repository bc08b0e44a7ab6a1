"""The same promises for a loop of the application's own around KafkaConsumer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.scenarios import stories_crash, stories_graceful

if TYPE_CHECKING:
    from tests.scenarios.conftest import Tell
    from tests.scenarios.story import Story

_also = partial(pytest.param, marks=pytest.mark.full)
_STORIES = [
    _also(stories_graceful.join),
    stories_graceful.rolling_restart,
    stories_crash.kill,
    _also(stories_crash.stall),
]
#: Of these the protocol changes little; `make chaos` plays them on all.
_ON_ONE_PROTOCOL = [
    stories_graceful.leave,
    stories_graceful.slow_loops,
    stories_crash.business_keys_through_a_crash,
]


@pytest.mark.parametrize("story", _STORIES, ids=lambda story: story.name)
def test_a_loop_keeps_its_grip(tell: Tell, story: Story) -> None:
    tell(story, "loop")


@pytest.mark.full
@pytest.mark.parametrize("story", _ON_ONE_PROTOCOL, ids=lambda story: story.name)
@pytest.mark.parametrize("protocol", ["consumer"], indirect=True)
def test_a_loop_keeps_its_grip_also(tell: Tell, story: Story) -> None:
    tell(story, "loop")
