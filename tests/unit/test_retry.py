"""When a failed record is tried again."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from holdfast import Retry, Unretriable
from holdfast.errors import KeyMissing, SettingError
from holdfast.plugin.retrying.retry import BACKOFF


def waits(retry: Retry, attempts: int) -> list[float | None]:
    return [retry.wait_s(attempt, ValueError()) for attempt in range(1, attempts + 1)]


def test_waits_grow_up_to_their_cap_and_end_with_the_attempts() -> None:
    retry = Retry(attempts=6, wait_initial_s=0.5, multiplier=2.0, wait_max_s=3.0, jitter_s=0.0)
    assert waits(retry, 6) == [0.5, 1.0, 2.0, 3.0, 3.0, None]


def test_jitter_is_added_and_never_exceeds_the_cap() -> None:
    retry = Retry(attempts=100, wait_initial_s=1.0, multiplier=1.0, wait_max_s=1.5, jitter_s=1.0)
    found = [wait for wait in waits(retry, 99) if wait is not None]
    assert all(1.0 <= wait <= 1.5 for wait in found)
    assert len(set(found)) > 10


def test_one_attempt_means_no_retry() -> None:
    assert Retry(attempts=1).wait_s(1, ValueError()) is None


def test_no_wait_at_all_can_be_asked_for() -> None:
    assert Retry(wait_initial_s=0.0, jitter_s=0.0).wait_s(1, ValueError()) == 0.0


@pytest.mark.parametrize("error", [Unretriable("x"), KeyMissing("x")])
def test_unretriable_errors_are_never_tried_again(error: Exception) -> None:
    assert Retry(retry_on=(Exception,)).wait_s(1, error) is None


def test_only_named_errors_are_tried_again_and_exceptions_to_them_are_not() -> None:
    retry = Retry(retry_on=(OSError,), give_up_on=(FileNotFoundError,))
    assert retry.wait_s(1, ConnectionError()) is not None
    assert retry.wait_s(1, FileNotFoundError()) is None
    assert retry.wait_s(1, ValueError()) is None


def test_what_has_to_succeed_some_day_is_tried_for_ever_at_a_bounded_pace() -> None:
    for attempt in (1, 10, 2_000, 100_000_000):
        wait = BACKOFF.wait_s(attempt, OSError())
        assert wait is not None
        assert 0.1 <= wait <= 5.0


def test_computing_a_wait_warns_of_nothing() -> None:
    """A warning at each retry would fill logs, and end the app where warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Retry(wait_initial_s=0.3).wait_s(1, ValueError())


@pytest.mark.parametrize(
    ("field", "value"),
    [("attempts", 0), ("wait_initial_s", -1.0), ("wait_max_s", -0.1), ("jitter_s", -1.0), ("multiplier", 0.5)],
)
def test_values_that_cannot_work_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(SettingError, match=f"^{field}={value}: ") as caught:
        Retry(**{field: value})  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("attempts", "5"),
        ("attempts", 2.5),
        ("attempts", True),
        ("wait_initial_s", "1"),
        ("wait_initial_s", float("nan")),
        ("wait_max_s", None),
        ("jitter_s", float("inf")),
        ("multiplier", float("nan")),
        ("topic_name", 5),
        ("topics", [None]),
        ("topics", 10),
        ("retry_on", "OSError"),
        ("retry_on", [5]),
        ("give_up_on", ValueError("one")),
        ("give_up_on", (str,)),
    ],
)
def test_values_of_another_type_are_refused_where_they_are_written(field: str, value: object) -> None:
    """Else the first record that fails would end the app, by a TypeError that names no setting."""
    with pytest.raises(SettingError) as caught:
        Retry(**{field: value})  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.parametrize("some", [FileNotFoundError, [FileNotFoundError], (FileNotFoundError,)])
def test_errors_may_be_one_or_several(some: Any) -> None:
    retry = Retry(retry_on=some, give_up_on=())
    assert retry.wait_s(1, FileNotFoundError()) is not None
    assert retry.wait_s(1, PermissionError()) is None
    retry = Retry(give_up_on=some)
    assert retry.wait_s(1, FileNotFoundError()) is None
    assert retry.wait_s(1, PermissionError()) is not None
    assert hash(retry) == hash(Retry(give_up_on=(FileNotFoundError,)))


def test_a_wait_may_have_no_cap() -> None:
    retry = Retry(attempts=4, wait_initial_s=1.0, wait_max_s=float("inf"), multiplier=100.0, jitter_s=0.0)
    assert waits(retry, 4) == [1.0, 100.0, 10_000.0, None]


def test_who_does_not_wait_at_first_never_waits() -> None:
    retry = Retry(attempts=5_000, wait_initial_s=0.0, jitter_s=0.0)
    assert [retry.wait_s(attempt, ValueError()) for attempt in (1, 1_024, 1_026, 4_999)] == [0.0] * 4
