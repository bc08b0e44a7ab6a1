"""The same promises for a loop of the application's own around KafkaConsumer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.stories import stories_crash, stories_graceful

if TYPE_CHECKING:
    from tests.harness.group.story import Story
    from tests.stories.conftest import Tell

_also = partial(pytest.param, marks=pytest.mark.full)
_STORIES = [
    stories_graceful.rolling_restart,
    stories_crash.kill,
    _also(stories_crash.stall),
    _also(stories_graceful.slow_loops),
    _also(stories_crash.business_keys_through_a_crash),
]


@pytest.mark.parametrize("story", _STORIES, ids=lambda story: story.name)
def test_a_loop_keeps_its_grip(tell: Tell, story: Story) -> None:
    tell(story, "loop")
