"""The README's promises by their numbers, and the tests that show each on real servers: the one list of them.

Beside these each promise has many more: the in-memory engine's campaigns, stories on other protocols, RocketMQ's table
in docs/reference/rocketmq.md.
"""

from __future__ import annotations

SHOWN_BY = {
    "P1": ("tests/stories/test_crashes.py::test_kill_9_under_a_backlog_repeats_at_most_what_was_in_hand",),
    "P2": (
        "tests/stories/test_graceful_rebalances.py::test_a_rolling_restart_repeats_nothing",
        "tests/stories/test_slow_handlers.py::test_a_handler_that_outlives_the_drain_runs_once",
    ),
    "P3": ("tests/stories/test_crashes.py::test_kill_9_repeats_at_most_what_was_in_hand",),
    "P4": ("tests/stories/test_crashes.py::test_a_stall_past_the_session_repeats_at_most_what_was_in_hand",),
    "P5": (
        "tests/contracts/kafka/test_source.py::test_a_partition_that_stays_is_handled_on_while_another_is_drained",
        "tests/contracts/kafka/test_source.py::test_a_drain_ends_where_a_partition_that_stays_has_no_records_left",
    ),
    "P6": (
        "tests/stories/test_slow_handlers.py::test_a_handler_longer_than_the_poll_interval_runs_once",
        (
            "tests/stories/test_hung_handlers.py"
            "::test_a_record_whose_handler_hangs_goes_to_the_dead_letter_once_and_the_others_go_on"
        ),
    ),
    "P7": (
        (
            "tests/stories/test_store_outages.py"
            "::test_a_store_that_is_killed_and_restarted_with_its_data_repeats_nothing"
        ),
    ),
    "P8": ("tests/stories/test_crashes.py::test_a_takeover_with_a_backlog_is_no_spike",),
    "P9": (
        "tests/contracts/kafka/test_source.py::test_a_partition_that_stays_is_handled_on_while_another_is_drained",
        (
            "tests/stories/test_static_members.py"
            "::test_a_rolling_restart_of_static_members_moves_nothing_and_repeats_nothing"
        ),
    ),
}
