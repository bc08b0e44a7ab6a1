"""Rows without a key: to a lake of their own or in among the others, with their attempt and as often as it counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.spark import BatchRefused, idempotent_sink, writers
from holdfast.dedup.claims import Claim, ClaimKey, Token, Verdict
from holdfast.dedup.redis_store import RedisClaims
from holdfast.errors import KeyMissing, SettingError
from tests.spark.lake import SINK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame

    from holdfast.adapters.spark import BatchWrite
    from holdfast.adapters.spark.writers import PartitionWriter
    from tests.spark.lake import Lake


class Broken(Exception):
    pass


@pytest.fixture
def bad(tmp_path: Path) -> PartitionWriter:
    return writers.partition(str(tmp_path / "bad"))


def _read(lake: Lake, writer: PartitionWriter, why: str = "hf_bad_key") -> list[tuple[Any, ...]]:
    rows = writer.read(lake.spark)
    return sorted((row.amount, row[why]) for row in rows.where(rows[why].isNotNull()).collect())


def _fails(lake: Lake) -> Callable[[DataFrame, BatchWrite], None]:
    def write(rows: DataFrame, batch: BatchWrite) -> None:
        lake.writer.write(rows, batch)
        raise Broken

    return write


def test_they_go_to_their_lake_in_the_attempt_that_counts_and_the_others_are_written(
    lake: Lake, bad: PartitionWriter, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Broken):
        lake.put(0, (None, 8), (None, 9), ("a", 1), write=_fails(lake), safe="replace", bad_rows=bad)
    report = lake.put(0, (None, 1), ("", 2), (None, 1), ("a", 3), ("a", 4), bad_rows=bad)
    assert (report.rows, report.owned, report.copies, report.bad) == (5, 1, 1, 3)
    assert "3 of 5 rows of batch 0 of sink orders-lake have no key" in caplog.text
    whys = [(1, "order_id is null"), (1, "order_id is null"), (2, "order_id is empty")]
    assert _read(lake, bad) == whys
    assert bad.orphans(lake.spark) == []
    assert lake.put(0, (None, 1), ("", 2), (None, 1), ("a", 3), bad_rows=bad).finished_before
    assert _read(lake, bad) == whys
    assert lake.put(1, ("a", 5), (None, 1), bad_rows=bad).skipped == 1  # nobody knows whether it is one of those
    assert len(_read(lake, bad)) == 4
    assert [order for order, _ in lake.read()] == ["a"]


@pytest.mark.full
def test_they_go_in_among_the_others_with_a_column_that_says_why(lake: Lake) -> None:
    lake.put(0, ("a", 1), bad_rows="why")
    assert lake.put(1, (None, 2), ("a", 2), ("b", 2), bad_rows="why").bad == 1
    assert lake.put(1, (None, 2), ("a", 2), ("b", 2), bad_rows="why").finished_before
    assert _read(lake, lake.writer, "why") == [(2, "order_id is null")]
    good = lake.writer.read(lake.spark).where("why IS NULL")
    assert sorted(row.order_id for row in good.collect()) == ["a", "b"]
    for why in ("amount", "Amount"):  # the latter would take the place of "amount" in each good row
        with pytest.raises(SettingError, match="have such a column already"):
            lake.put(2, ("c", 1), bad_rows=why)


@pytest.mark.full
@pytest.mark.parametrize("apart", [True, False])
def test_more_of_them_under_a_finished_number_are_another_batch(
    lake: Lake, bad: PartitionWriter, *, apart: bool
) -> None:
    route: Any = bad if apart else "why"
    where, why = (bad, "hf_bad_key") if apart else (lake.writer, "why")
    lake.put(0, ("a", 1), (None, 1), bad_rows=route)
    assert lake.put(0, ("a", 1), (None, 2), (None, 3), bad_rows=route).another
    assert [amount for amount, _ in _read(lake, where, why)] == [1, 2, 3]
    assert lake.put(0, ("a", 1), (None, 2), (None, 3), bad_rows=route).finished_before
    with pytest.raises(BatchRefused, match="0 of its rows have keys that are not done, and 1 have none"):
        lake.put(0, ("a", 1), (None, 2), write=lambda *_: None, safe="replace")  # without a route as before


@pytest.mark.full
def test_a_redis_that_was_emptied_leaves_the_sink_to_say_how_many_there_were(lake: Lake, bad: PartitionWriter) -> None:
    lake.put(0, ("a", 1), (None, 1), ("", 2), bad_rows=bad)
    for again, more in ((True, ()), (False, ((None, 3),))):
        lake.store.parts().client.flushdb()
        lake.store = RedisClaims.from_url(lake.url)
        rows: list[tuple[Any, ...]] = [("a", 1), (None, 1), ("", 2), *more]
        if again:
            assert lake.put(0, *rows, bad_rows=bad).finished_before
        else:
            with pytest.raises(BatchRefused, match="1 rows without a key were not written with it"):
                lake.put(0, *rows, bad_rows=bad)
    assert [amount for amount, _ in _read(lake, bad)] == [1, 2]


@pytest.mark.full
def test_orphans_of_both_lakes_are_removed(lake: Lake, bad: PartitionWriter) -> None:
    with pytest.raises(Broken):
        lake.put(0, (None, 1), ("a", 1), write=_fails(lake), safe="replace", bad_rows=bad)
    left = {*lake.writer.orphans(lake.spark), *bad.orphans(lake.spark)}
    assert len(left) == 2
    assert set(lake.sink(bad_rows=bad).remove_orphans(lake.spark)) == left


def test_a_text_that_is_not_utf8_is_a_key_of_bytes_and_among_several_columns_none(lake: Lake) -> None:
    session = lake.store.begin(600.0)
    claim = Claim(ClaimKey(SINK, "x:fffe"), Token("orders-0", 7, 1))
    assert session.claim([claim]) == [Verdict.NEW]
    session.finish([claim])  # by a consumer that is not Spark
    rows = lake.spark.createDataFrame([(b"\xff\xfe", 1), (b"a\xff", 2)], "raw binary, amount int")
    rows = rows.selectExpr("CAST(raw AS string) AS order_id", "amount")
    lake.sink(query="q")(rows, 0)
    assert (lake.reports[-1].owned, lake.reports[-1].skipped) == (1, 1)
    with pytest.raises(KeyMissing, match="2 rows"):
        lake.sink(query="q", key=("order_id", "amount"))(rows, 1)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"write": writers.delta_merge("/t"), "bad_rows": "why"}, "merges by the key cannot take rows without one"),
        ({"write": lambda *_: None, "safe": "upsert", "bad_rows": "why"}, "merges by the key"),
        ({"write": writers.postgres("t", "postgresql://host/db"), "bad_rows": "why"}, "merges by the key"),
        ({"write": writers.partition("/t"), "bad_rows": writers.partition("/t/")}, "is the path of the other rows"),
        (
            {"write": writers.partition("/t"), "bad_rows": writers.delta_replace("/u")},
            r"give writers.partition\(path\)",
        ),
        ({"write": writers.partition("/t"), "bad_rows": ""}, "or the name of a column"),
    ],
)
def test_a_route_that_cannot_hold_them_is_refused_where_it_is_written(given: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        idempotent_sink(SINK, key="k", claims="redis://localhost", **given)
