"""A reset's plan says what would run again and what would be skipped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.cli.arguments import Target
from holdfast.adapters.cli.reset_moves import Move, Position, plan
from holdfast.errors import SettingError
from holdfast.records import Partition

P = Partition("orders", 0)


def move(
    target: Target,
    *,
    committed: int | None = 50,
    watermark: int = 50,
    done: frozenset[int] = frozenset(),
    first: int = 10,
    last: int = 100,
    at: int = 70,
) -> Move:
    [found] = plan(
        target,
        committed={P: committed},
        positions={P: Position(watermark=watermark, done=done)},
        firsts={P: first},
        lasts={P: last},
        at_time={P: at},
    )
    return found


@pytest.mark.parametrize(
    ("target", "new", "again", "skipped"),
    [
        (Target(kind="earliest"), 10, 40, 0),
        (Target(kind="latest"), 100, 0, 50),
        (Target(kind="offset", value=60), 60, 0, 10),
        (Target(kind="time"), 70, 0, 20),
        (Target(kind="shift", value=-5), 45, 5, 0),
        (Target(kind="shift", value=5), 55, 0, 5),
    ],
)
def test_each_target_leads_somewhere(target: Target, new: int, again: int, skipped: int) -> None:
    found = move(target)
    assert (found.new, found.again, found.skipped, found.moved_into_log) == (new, again, skipped, False)


def test_an_offset_that_the_log_does_not_have_becomes_the_nearest() -> None:
    for value, new in ((5, 10), (1000, 100)):
        found = move(Target(kind="offset", value=value))
        assert (found.new, found.moved_into_log) == (new, True)


def test_a_group_that_is_nowhere_cannot_be_shifted_and_repeats_nothing() -> None:
    found = move(Target(kind="earliest"), committed=None, watermark=0)
    assert (found.at, found.again, found.skipped) == (None, None, None)
    with pytest.raises(SettingError, match=r"\+5"):
        move(Target(kind="shift", value=5), committed=None, watermark=0)


@given(
    committed=st.none() | st.integers(0, 60),
    watermark=st.integers(0, 60),
    above=st.frozensets(st.integers(1, 30)),
    new=st.integers(0, 60),
)
def test_what_runs_again_was_done_and_what_is_skipped_was_not(
    committed: int | None, watermark: int, above: frozenset[int], new: int
) -> None:
    """Against the definition, offset by offset."""
    done = frozenset(watermark + each for each in above)
    found = move(Target(kind="offset", value=new), committed=committed, watermark=watermark, done=done, first=0)
    if found.at is None:
        assert committed is None
        assert not watermark
        assert not done
        return
    # As a takeover begins: below the higher of the two, everything counts as done.
    known = set(range(max(committed or 0, watermark))) | done
    assert found.again == len({offset for offset in known if offset >= new})
    assert found.skipped == len({offset for offset in range(new) if offset not in known})
