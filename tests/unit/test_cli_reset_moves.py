"""A reset's plan says what would run again and what would be skipped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.cli.arguments import Target
from holdfast.adapters.cli.reset_moves import Move, plan
from holdfast.dedup.claims import Acquired
from holdfast.errors import SettingError
from holdfast.plugin.ports import Committed
from holdfast.records import Partition

P = Partition("orders", 0)


def move(
    target: Target,
    *,
    committed: int | Committed | None = 50,
    watermark: int = 50,
    done: frozenset[int] = frozenset(),
    first: int = 10,
    last: int = 100,
    at: int = 70,
) -> Move:
    [found] = plan(
        target,
        committed={P: Committed(committed, ours=True) if isinstance(committed, int) else committed},
        known={P: Acquired(1, watermark, done, frozenset(), begun=bool(watermark))},
        firsts={P: first},
        lasts={P: last},
        at_time={P: at},
        now_ms=1_000,
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
    assert (found.new, found.again, found.skipped, found.remark) == (new, again, skipped, "")


def test_an_offset_that_the_log_has_no_more_becomes_its_first_and_that_is_said_to_programs_too() -> None:
    found = move(Target(kind="offset", value=5))
    assert found.new == 10
    assert "no such offset any more" in str(found.row()[-1])
    assert found.as_json()["remark"] == found.row()[-1]


@pytest.mark.parametrize(
    "target",
    [
        Target(kind="offset", value=101),
        Target(kind="shift", value=51),
        Target(kind="time", value=1_001),  # in the future
        Target(kind="time", value=900),  # no record since
    ],
)
def test_what_lies_beyond_the_log_is_refused_unless_latest_is_said(target: Target) -> None:
    with pytest.raises(SettingError, match="say latest"):
        move(target, at=100 if target.value == 900 else 70)


def test_a_time_of_which_one_partition_has_no_record_is_its_end_and_says_so() -> None:
    quiet = Partition("orders", 1)
    nothing = Acquired(1, 0, frozenset(), frozenset())
    moves = plan(
        Target(kind="time", value=900),
        committed={P: None, quiet: None},
        known={P: nothing, quiet: nothing},
        firsts={P: 0, quiet: 0},
        lasts={P: 100, quiet: 100},
        at_time={P: 70, quiet: 100},
        now_ms=1_000,
    )
    assert [(each.new, "no record since" in each.remark) for each in moves] == [(70, False), (100, True)]


def test_an_offset_that_another_tool_has_set_is_where_the_group_is() -> None:
    foreign = Committed(30, ours=False)
    assert move(Target(kind="shift", value=-5), committed=foreign, watermark=50).new == 25
    found = move(Target(kind="latest"), committed=foreign, watermark=50, done=frozenset({60}))
    assert (found.at, found.skipped) == (30, 70)
    assert "another tool" in found.remark


def test_an_offset_without_a_mark_below_what_is_done_is_not_counted_from() -> None:
    """RocketMQ's: a reset by its own tool, or a late commit. Both may be."""
    unmarked = Committed(30, ours=True, marked=False)
    with pytest.raises(SettingError, match="name an offset or a time"):
        move(Target(kind="shift", value=5), committed=unmarked)
    assert move(Target(kind="latest"), committed=unmarked).skipped == 70
    assert move(Target(kind="shift"), committed=unmarked).new == 50


def test_a_shift_goes_from_the_higher_offset_where_none_has_a_mark() -> None:
    """Other members have gone on meanwhile: `--to +0` takes their offsets over (examples/rocketmq_move)."""
    ahead = Committed(80, ours=True, marked=False)
    assert [move(Target(kind="shift", value=value), committed=ahead).new for value in (0, -5)] == [80, 75]


def test_a_group_without_a_store_is_where_its_broker_says() -> None:
    [found] = plan(
        Target(kind="shift", value=-5),
        committed={P: Committed(30, ours=False)},
        known={},
        firsts={P: 0},
        lasts={P: 100},
        at_time={},
        now_ms=0,
    )
    assert (found.at, found.new, found.again, found.skipped, found.remark) == (30, 25, 5, 0, "")


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
