"""P3, P4: a death repeats at most what was in hand, and who was taken over does no more harm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.harness.group.config import KAFKA
from tests.stories import stories_crash as stories

if TYPE_CHECKING:
    from tests.stories.conftest import Tell

#: Here the broker decides, and by another rule in each protocol.
_each_protocol = pytest.mark.parametrize("protocol", KAFKA, indirect=True)


@_each_protocol
def test_kill_9_repeats_at_most_what_was_in_hand(tell: Tell) -> None:
    tell(stories.kill)


def test_a_takeover_with_a_backlog_is_no_spike(tell: Tell) -> None:
    tell(stories.takeover_with_a_backlog)


@_each_protocol
def test_a_stall_past_the_session_repeats_at_most_what_was_in_hand(tell: Tell) -> None:
    tell(stories.stall)


@pytest.mark.full
def test_a_business_key_runs_once_through_duplicates_a_join_and_a_crash(tell: Tell) -> None:
    tell(stories.business_keys_through_a_crash)


@pytest.mark.full
def test_without_a_store_a_crash_loses_nothing(tell: Tell) -> None:
    tell(stories.kill_without_store)


@pytest.mark.full
def test_without_a_store_a_rolling_restart_loses_nothing(tell: Tell) -> None:
    tell(stories.rolling_restart_without_store)


def test_kill_9_under_a_backlog_repeats_at_most_what_was_in_hand(tell: Tell) -> None:
    tell(stories.kill_under_backlog)
