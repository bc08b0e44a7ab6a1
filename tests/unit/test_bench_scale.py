"""`make bench ONLY=scale`: what it computes from what it has measured."""

from __future__ import annotations

import pytest

from tests.benchmarks.lab import Speed
from tests.benchmarks.scale.growth import DAY_S, grown
from tests.benchmarks.scale.in_flight import Memory, bytes_a_record
from tests.benchmarks.scale.processes import as_one


def test_a_group_takes_from_its_first_record_to_its_last_and_its_processor_time_adds_up() -> None:
    assert as_one(["100 10.0 12.0 0.5\n", "300 11.0 15.0 1.0\n"]) == Speed(400, 5.0, 1.5)


def test_a_group_without_a_line_is_no_group() -> None:
    with pytest.raises(ValueError, match="not enough values"):
        as_one([])


def test_a_record_s_memory_is_without_what_a_client_takes_in_any_case() -> None:
    few, many = Memory(start=50, full=50 + 1_000 + 10 * 7), Memory(start=60, full=60 + 1_000 + 100 * 7)
    assert bytes_a_record(10, few, 100, many) == 7.0


@pytest.mark.parametrize(("days", "expected"), [(0.5, 5_000), (1, 10_000), (2, 20_000), (30, 20_000)])
def test_a_redis_grows_with_the_days_until_the_window_is_full(days: float, expected: float) -> None:
    assert grown(10.0, 1_000, days=days, window_s=2 * DAY_S) == expected
