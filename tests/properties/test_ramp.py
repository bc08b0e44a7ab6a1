"""The ramp on its own: whatever is behind, produced, ended and left unused, it holds, goes up, and ends."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Ramp
from holdfast.errors import SettingError
from holdfast.plugin.engine.flow.ramp_rate import Climb, Pace

RAMP = Ramp(floor_per_s=50.0, headroom=1.4, over_s=30.0)
#: Seconds, part of the room that is used, lag, what is produced, part of what was admitted that has ended.
STEPS = st.lists(
    st.tuples(
        st.sampled_from([0.001, 0.005, 0.1, 0.5]),
        st.floats(0, 1),
        st.sampled_from([11.0, 100.0, 1e6, math.inf]),
        st.none() | st.floats(0, 1e4),
        st.floats(0, 1),
    ),
    max_size=200,
)
HISTORY = st.sampled_from([0.0, 10.0, 1_000.0])


@given(steps=STEPS, history=HISTORY)
def test_no_more_is_admitted_than_the_rate_allows_and_it_falls_with_what_is_produced_alone(
    steps: list,  # type: ignore[type-arg]
    history: float,
) -> None:
    climb, now, total, ended = Climb(RAMP), 0.0, 0, 0.0
    climb.begin(now, total, 0, history)
    allowed, least, steady = 0.0, climb.rate, climb.steady
    for seconds, used, lag, produced, part in steps:
        rate = climb.rate
        now += seconds
        allowed += rate * seconds
        total += int(climb.room(now, total) * used)
        ended += (total - ended) * part
        assert total <= allowed + 1
        climb.look(now, total, int(ended), lag=lag, produced_per_s=produced)
        assert climb.rate >= least >= RAMP.floor_per_s
        assert climb.rate >= rate or (climb.steady or 0.0) < (steady or 0.0)
        steady = climb.steady


@given(steps=STEPS, history=HISTORY, known=st.floats(40, 1e4))
def test_with_a_steady_intake_it_stays_below_its_cap_for_as_long_as_it_holds(
    steps: list,  # type: ignore[type-arg]
    history: float,
    known: float,
) -> None:
    climb, now, total = Climb(RAMP), 0.0, 0
    climb.begin(now, total, 0, history)
    most = known
    for seconds, used, lag, produced, _ in steps:
        now += seconds
        if now >= RAMP.over_s:
            break
        most = max(most, produced or 0.0)
        climb.look(now, total, total, lag=lag, produced_per_s=max(known, produced or 0.0))
        assert climb.rate <= max(RAMP.floor_per_s, history, most * RAMP.headroom)
        total += int(climb.room(now, total) * used)


@given(steps=STEPS, history=HISTORY, produced=st.none() | st.floats(0, 1e4))
def test_it_ends_though_nothing_is_ever_worked_off(steps: list, history: float, produced: float | None) -> None:  # type: ignore[type-arg]
    climb, now, total = Climb(RAMP), 0.0, 0
    climb.begin(now, total, 0, history)
    for seconds, used, lag, _, _ in [*steps, (2 * RAMP.over_s, 0.0, 1e9, None, 0.0)]:
        now += seconds
        total += int(climb.room(now, total) * used)
        climb.look(now, total, 0, lag=lag, produced_per_s=produced)
    assert climb.over
    assert climb.lasted_s(now + 100) <= 2 * RAMP.over_s + now


@given(history=HISTORY, lag=st.integers(0, 10))
def test_it_ends_at_once_where_nothing_is_behind(history: float, lag: int) -> None:
    climb = Climb(RAMP)
    climb.begin(0.0, 0, 0, history)
    climb.look(0.0, 0, 0, lag=lag, produced_per_s=None)
    assert climb.over


def test_while_nobody_can_tell_the_lag_it_ends_once_it_has_held_nothing_back_for_a_while() -> None:
    climb = Climb(RAMP)
    climb.begin(0.0, 0, 0, 0.0)
    now, total = 0.0, 0
    while now < 5.0:  # all that is let through is taken
        now += 0.05
        total += climb.room(now, total)
        climb.look(now, total, 0, lag=None, produced_per_s=None)
    assert not climb.over
    for _ in range(30):  # nothing comes any more
        now += 0.05
        climb.room(now, total)
        climb.look(now, total, 0, lag=None, produced_per_s=None)
    assert climb.over


def test_without_a_policy_nothing_begins() -> None:
    climb = Climb(None)
    climb.begin(0.0, 0, 0, 0.0)
    assert climb.over


def test_partitions_that_come_in_the_middle_neither_lower_the_rate_nor_begin_anew_below_it() -> None:
    climb = Climb(RAMP)
    climb.begin(0.0, 0, 0, 0.0)
    climb.look(1.0, 0, 0, lag=1e6, produced_per_s=1_000.0)
    climb.begin(2.0, 0, 0, 0.0)
    assert climb.rate == 1_400.0


def test_the_meter_knows_the_mean_of_late_and_the_best_second() -> None:
    pace, total = Pace(), 0
    for tenth in range(200):
        total += 50 if 100 <= tenth < 110 else 10
        pace.look(tenth / 10, total)
    assert pace.peak_per_s == pytest.approx(500)
    assert pace.of_late_per_s == pytest.approx(140, rel=0.05)
    pace.begin()
    for tenth in range(210, 300):
        pace.look(tenth / 10, total + 10 * (tenth - 210))
    assert pace.peak_per_s == pytest.approx(100)


@pytest.mark.parametrize("name", ["floor_per_s", "headroom", "over_s"])
@pytest.mark.parametrize("value", [0, -1, True, "1", math.nan, math.inf])
def test_a_ramp_that_cannot_work_is_refused(name: str, value: float) -> None:
    with pytest.raises(SettingError, match=f"^ramp.{name}="):
        Ramp(**{name: value})


#: Seconds, what those that stay take, part of the room that is used.
TURNS = st.lists(
    st.tuples(st.sampled_from([0.001, 0.005, 0.05]), st.integers(0, 200), st.floats(0, 1)), min_size=1, max_size=200
)


@given(turns=TURNS)
def test_those_that_came_never_have_more_than_the_rate_and_the_floor(turns: list) -> None:  # type: ignore[type-arg]
    climb, now, total, came = Climb(RAMP), 0.0, 0, 0
    climb.begin(now, total, 0, 1_000.0)
    for seconds, stay, used in turns:
        now += seconds
        total += stay
        taken = int(climb.room_for_new(now, total, came) * used)
        total, came = total + taken, came + taken
        assert came <= (1_000 + RAMP.floor_per_s) * now + 1


@given(steps=st.lists(st.sampled_from([0.005, 0.01, 0.05]), min_size=1, max_size=200))
def test_those_that_came_have_the_floor_though_the_others_take_everything(steps: list[float]) -> None:
    climb, now, total, came = Climb(RAMP), 0.0, 0, 0
    climb.begin(now, total, 0, 1_000.0)
    for seconds in steps:
        now += seconds
        total += 10_000
        taken = climb.room_for_new(now, total, came)
        total, came = total + taken, came + taken
    assert RAMP.floor_per_s * now * 0.75 - 1.001 <= came <= RAMP.floor_per_s * now + 1
