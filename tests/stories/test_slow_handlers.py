"""P2, P6: slow handlers cost no membership, and a handler that outlives the drain is waited for, not repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stories import stories_graceful as stories

if TYPE_CHECKING:
    from tests.stories.conftest import Tell


def test_a_handler_longer_than_the_poll_interval_runs_once(tell: Tell) -> None:
    tell(stories.handler_longer_than_poll_interval)


def test_a_handler_that_outlives_the_drain_runs_once(tell: Tell) -> None:
    tell(stories.handler_outlives_the_drain)


@pytest.mark.full
def test_poison_ends_in_the_dead_letter_once_while_members_restart(tell: Tell) -> None:
    tell(stories.poison_in_rolling_restart)
