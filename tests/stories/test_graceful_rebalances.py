"""P1, P2, P5: while nobody dies nothing is lost, nothing runs twice, order holds and the log's end gets committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.harness.group.config import KAFKA
from tests.stories import stories_graceful as stories

if TYPE_CHECKING:
    from tests.stories.conftest import Tell


@pytest.mark.full
def test_scaling_from_two_to_four_to_one_repeats_nothing(tell: Tell) -> None:
    tell(stories.scale)


@pytest.mark.parametrize("protocol", KAFKA, indirect=True)
def test_a_rolling_restart_repeats_nothing(tell: Tell) -> None:
    tell(stories.rolling_restart)


def test_leaving_in_the_middle_of_a_pending_rebalance_repeats_nothing(tell: Tell) -> None:
    tell(stories.leave_in_pending_rebalance)


@pytest.mark.full
def test_a_new_topic_that_matches_the_pattern_is_consumed(tell: Tell) -> None:
    tell(stories.new_topic_matches)


@pytest.mark.full
def test_partitions_that_are_added_are_consumed_from_their_begin(tell: Tell) -> None:
    tell(stories.partitions_are_added)
