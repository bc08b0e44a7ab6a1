"""A replay on purpose is a replay; a zombie's late commit is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stories import stories_offsets as stories

if TYPE_CHECKING:
    from tests.stories.conftest import Tell


def test_a_reset_by_hand_runs_everything_from_there_once_more(tell: Tell) -> None:
    tell(stories.reset_by_hand)


@pytest.mark.full
def test_a_zombies_rewind_of_a_group_at_rest_repeats_nothing(tell: Tell) -> None:
    tell(stories.zombie_rewinds_a_group_at_rest)


@pytest.mark.full
def test_a_zombies_rewind_of_a_live_group_repeats_nothing(tell: Tell) -> None:
    tell(stories.zombie_rewinds_a_live_group)
