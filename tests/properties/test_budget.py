"""The rules of times, held against what they say: a remedy that is followed helps, and asks no more than it takes."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import SettingError
from holdfast.plugin.budget import (
    GROUP_SESSION,
    GROUP_SESSION_RANGE_MS,
    PollBudget,
    drain_fits,
    heartbeat_fits,
    heartbeat_for,
    restart_fits,
    session_allowed,
    session_below_poll,
    turn_fits,
)

SESSIONS = st.integers(3, 2_000_000)
SECONDS = st.floats(0, 10_000).map(lambda number: round(number, 3))
TURNS = st.builds(
    PollBudget,
    handler_s=SECONDS,
    workers=st.integers(1, 64),
    batch=st.integers(1, 2_000),
    drain_s=SECONDS,
    polls_meanwhile=st.booleans(),
)


def number(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text)
    return None if found is None else int(found[1].replace(",", ""))


@given(SESSIONS)
def test_a_third_of_the_session_is_the_longest_heartbeat(session_ms: int) -> None:
    assert heartbeat_fits(session_ms // 3, session_ms) is None
    assert heartbeat_fits(heartbeat_for(session_ms), session_ms) is None
    too_long = heartbeat_fits(session_ms // 3 + 1, session_ms)
    assert too_long is not None
    assert number(r"use at most (\d+)", too_long.remedy) == session_ms // 3
    assert heartbeat_fits(0, session_ms) is not None


@given(TURNS, st.integers(1, 400_000))
@example(PollBudget(handler_s=0.0, workers=1, batch=1, drain_s=0.01), 1)
def test_each_way_out_of_a_turn_that_is_too_long_is_one(turn: PollBudget, limit_ms: int) -> None:
    misfit = turn_fits(turn, limit_ms)
    assert (misfit is None) == (turn.batch_s + turn.drain_s + turn.commit_s < limit_ms / 1000)
    if misfit is None:
        return
    batch = number(r"at most ([\d,]+) records", misfit.remedy)
    if batch is not None:
        smaller = PollBudget(handler_s=turn.handler_s, workers=turn.workers, batch=batch, drain_s=turn.drain_s)
        assert turn_fits(smaller, limit_ms) is None
        one_more = PollBudget(handler_s=turn.handler_s, workers=turn.workers, batch=batch + 1, drain_s=turn.drain_s)
        assert turn_fits(one_more, limit_ms) is not None
    allowed_ms = number(r"allow (\d+)", misfit.remedy)
    if allowed_ms is not None:
        assert turn_fits(turn, allowed_ms) is None


def test_a_turn_that_does_not_fit_tells_which_times_it_is_made_of() -> None:
    misfit = turn_fits(PollBudget(handler_s=20, workers=4, drain_s=10), 300_000)
    assert misfit is not None
    assert str(misfit.error()) == (
        "max.poll.interval.ms=300000: a batch of 500 records, 4 at a time, of 20 s each: 2500 s + drain: 10 s + "
        "commit: 2 s = 2512 s, which is not below 300 s: take at most 56 records a poll, or allow 2512001 or more, or "
        "poll while handlers run"
    )


def test_who_polls_while_handlers_run_has_no_batch_in_the_way() -> None:
    assert turn_fits(PollBudget(handler_s=4_000, drain_s=10, polls_meanwhile=True), 300_000) is None
    assert drain_fits(10, 300_000) is None
    misfit = drain_fits(298, 300_000)
    assert misfit is not None
    assert misfit.field == "drain_timeout_s"
    assert "less than 298 s" in misfit.remedy


@given(SESSIONS, st.floats(0.001, 3_000))
def test_a_static_members_session_outlasts_its_restart(session_ms: int, restart_s: float) -> None:
    assert (restart_fits(session_ms, restart_s) is None) == (session_ms > restart_s * 1000)


def test_without_a_word_on_restarts_ten_seconds_are_the_least() -> None:
    assert restart_fits(10_000) is None
    assert restart_fits(9_999) is not None


@pytest.mark.parametrize(
    ("session_ms", "name"),
    [(5_999, "group.min.session.timeout.ms"), (1_800_001, "group.max.session.timeout.ms"), (6_000, None)],
)
def test_brokers_have_limits_for_sessions(session_ms: int, name: str | None) -> None:
    misfit = session_allowed(session_ms)
    assert (misfit is None) == (name is None)
    assert misfit is None or str(name) in misfit.effect


def test_and_others_for_those_of_the_consumer_protocol() -> None:
    misfit = session_allowed(30_000, GROUP_SESSION_RANGE_MS, session=GROUP_SESSION)
    assert misfit is not None
    assert misfit.field == GROUP_SESSION
    assert "group.consumer.min.session.timeout.ms" in misfit.effect


def test_a_session_longer_than_the_poll_interval_is_refused_by_librdkafka() -> None:
    assert session_below_poll(45_000, 45_000) is None
    assert session_below_poll(45_001, 45_000) is not None


@pytest.mark.parametrize(
    ("name", "value"), [("handler_s", -1.0), ("workers", 0), ("batch", 1.5), ("drain_s", float("nan"))]
)
def test_times_that_cannot_be_are_named(name: str, value: float) -> None:
    with pytest.raises(SettingError, match=name):
        PollBudget(**{"handler_s": 1.0, name: value})  # type: ignore[arg-type]
