"""P7: while the store gives no answer nothing runs twice; afterwards the group goes on by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stories import stories_crash as stories

if TYPE_CHECKING:
    from tests.stories.conftest import Tell


@pytest.mark.full
def test_a_store_that_stalls_repeats_nothing(tell: Tell) -> None:
    tell(stories.store_stalls)


def test_a_store_that_is_killed_and_restarted_with_its_data_repeats_nothing(tell: Tell) -> None:
    tell(stories.store_restarts)


@pytest.mark.full
def test_a_rebalance_during_an_outage_of_the_store_repeats_nothing(tell: Tell) -> None:
    tell(stories.join_while_store_stalls)
