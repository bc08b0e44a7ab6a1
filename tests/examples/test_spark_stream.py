"""examples/spark_stream.py: the loop that starts a query again. With a real stream: tests/spark/test_streams.py."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from examples import spark_stream

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.streaming.query import StreamingQuery


pytestmark = pytest.mark.full


class Query:
    """Ends with an error, or in good order.

    Args:
        batches: that it finishes before; inf: all there are.
    """

    def __init__(self, batches: float) -> None:
        self._batches = batches
        self.lastProgress = {"batchId": 1} if batches else None  # Spark's name

    def awaitTermination(self) -> None:  # noqa: N802 - as above
        if self._batches is not math.inf:
            raise StreamingQueryException("STREAM_FAILED")


def started(monkeypatch: pytest.MonkeyPatch, queries: Iterable[float]) -> int:
    """How many of them the loop starts."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    made: list[Any] = []
    left = iter(queries)

    def start() -> StreamingQuery:
        made.append(Query(next(left)))
        return made[-1]  # type: ignore[no-any-return]

    try:
        spark_stream.keep_running(start)
    except StreamingQueryException:
        return -len(made)
    return len(made)


def test_a_query_that_fails_is_started_again_until_it_is_through(monkeypatch: pytest.MonkeyPatch) -> None:
    assert started(monkeypatch, [0, 0, math.inf]) == 3


def test_a_query_that_never_gets_on_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert started(monkeypatch, [0] * 9) == -5


def test_a_query_that_gets_on_between_its_failures_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert started(monkeypatch, [0, 0, 0, 0, 1, 0, 0, 0, math.inf]) == 9
