"""P6: who hangs is cut off; who keeps the interpreter lock loses what a death would lose, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stories import stories_hung as stories

if TYPE_CHECKING:
    from tests.stories.conftest import Tell

#: What happens here is between handlers, threads and the store: how partitions move makes no difference. `make chaos`
#: plays these on all protocols.
_one_protocol = pytest.mark.parametrize("protocol", ["consumer"], indirect=True)


@_one_protocol
def test_a_record_whose_handler_hangs_goes_to_the_dead_letter_once_and_the_others_go_on(tell: Tell) -> None:
    tell(stories.hang)


@pytest.mark.full
def test_a_record_that_hangs_while_its_partition_moves_runs_once(tell: Tell) -> None:
    tell(stories.hang_through_a_hand_over)


@pytest.mark.full
@_one_protocol
def test_without_a_dead_letter_the_process_ends_and_its_successor_waits_for_the_lease(tell: Tell) -> None:
    tell(stories.hang_without_a_dead_letter)


@pytest.mark.full
@_one_protocol
def test_handlers_that_compute_in_python_for_long_cost_no_membership_and_no_session(tell: Tell) -> None:
    tell(stories.spin)


@pytest.mark.full
@_one_protocol
def test_the_interpreter_lock_held_for_less_than_the_lease_repeats_nothing(tell: Tell) -> None:
    tell(stories.lock_for_less_than_the_lease)


@_one_protocol
def test_the_interpreter_lock_held_for_longer_than_the_lease_repeats_at_most_what_was_in_hand(tell: Tell) -> None:
    tell(stories.lock_for_longer_than_the_lease)


@pytest.mark.full
@_one_protocol
def test_the_interpreter_lock_held_past_the_poll_interval_repeats_at_most_what_was_in_hand(tell: Tell) -> None:
    tell(stories.lock_for_longer_than_the_poll_interval)
