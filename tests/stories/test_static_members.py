"""Static members: a restart within the session moves nothing and repeats nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stories import stories_static as stories

if TYPE_CHECKING:
    from tests.stories.conftest import Tell


def test_a_rolling_restart_of_static_members_moves_nothing_and_repeats_nothing(tell: Tell) -> None:
    tell(stories.static_rolling_restart)


@pytest.mark.full
def test_after_kill_9_the_replacement_of_the_same_name_goes_on_with_what_was_the_dead_ones(tell: Tell) -> None:
    tell(stories.static_kill)


@pytest.mark.full
@pytest.mark.parametrize("protocol", ["cooperative"], indirect=True)
def test_what_a_member_was_giving_up_when_it_was_killed_has_an_owner_soon_though_nobody_else_joins(tell: Tell) -> None:
    tell(stories.static_kill_in_drain)
