"""When dead letters are too many. Pure: times are numbers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import DeadLetterLimit
from holdfast.errors import SettingError
from holdfast.plugin.engine.record.letter_brakes import Count


def test_as_many_in_a_row_as_are_allowed_go_and_the_next_does_not() -> None:
    count = Count(DeadLetterLimit(in_a_row=3))
    assert [count.failed(float(at)) for at in range(3)] == [None] * 3
    assert count.failed(1e9) == (4, 4), "however long ago the others were"
    count.handled(1, 1e9)
    assert count.failed(1e9) is None


def test_a_share_counts_only_where_enough_has_ended() -> None:
    count = Count(DeadLetterLimit(share=0.5, over_s=60.0, at_least=100, in_a_row=1_000))
    count.handled(40, 0.0)
    assert [count.failed(1.0) for _ in range(60)] == [None] * 59 + [(60, 100)]


def test_what_was_handled_before_the_first_letter_counts_too() -> None:
    count = Count(DeadLetterLimit(share=0.5, over_s=60.0, at_least=100, in_a_row=1_000))
    count.handled(1_000, 0.0)
    assert [count.failed(50.0) for _ in range(200)] == [None] * 200


def test_what_was_longer_ago_than_its_time_counts_no_more() -> None:
    count = Count(DeadLetterLimit(share=0.1, over_s=60.0, at_least=10, in_a_row=1_000))
    count.handled(1_000, 0.0)
    for _ in range(100):
        assert count.failed(1.0) is None
    count.handled(5, 100.0)
    assert [count.failed(100.0) for _ in range(5)] == [None] * 4 + [(5, 10)]


@given(st.lists(st.tuples(st.booleans(), st.floats(0.0, 30.0)), max_size=300))
def test_it_is_never_reached_by_fewer_than_either_bound(story: list[tuple[bool, float]]) -> None:
    limit = DeadLetterLimit(in_a_row=5, share=0.5, over_s=60.0, at_least=20)
    count, now, row, ended = Count(limit), 0.0, 0, 0
    for well, passed in story:
        now, ended = now + passed, ended + 1
        if well:
            count.handled(1, now)
            row = 0
        elif count.failed(now) is None:
            row += 1
            assert row <= 5
        else:
            assert row == 5 or ended >= 20
            return


@pytest.mark.parametrize(
    "wrong",
    [{"in_a_row": 0}, {"in_a_row": True}, {"share": 0}, {"share": 1.1}, {"over_s": 0}, {"then": "x"}, {"pause_s": -1}],
    ids=str,
)
def test_what_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(wrong))):
        DeadLetterLimit(**wrong)
