"""Where Spark tells no id of the query (Spark Connect, a thread that has not inherited it), it is not known whether a
batch of a finished number is that one: what cannot be looked up is refused, and never skipped."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import inheritable_thread_target
from pyspark.errors import StreamingQueryException

from holdfast.adapters.spark import BatchRefused, reason, writers
from holdfast.errors import SettingError
from tests.spark.lake import SINK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame

    from holdfast.adapters.spark import BatchWrite
    from tests.spark.lake import Lake


def forgets_keys(lake: Lake) -> None:
    """As if the window of all that is finished had passed: attempts are known, and their keys are not."""
    client, attempts = lake.store.parts().client, lake.store.parts().layout.attempts
    client.hdel(attempts, *(field for field in client.hkeys(attempts) if field.isdigit()))


def forgets_prints(lake: Lake) -> None:
    client, sink = lake.store.parts().client, lake.store.parts().layout.sink(SINK)
    client.hdel(sink, "k:q")


class Orders:
    """A stream of files into a function that notes the keys."""

    def __init__(self, lake: Lake, folder: Path) -> None:
        self.written: list[str] = []
        self._lake, self._folder = lake, folder
        (folder / "in").mkdir()

    def note(self, rows: DataFrame, batch: BatchWrite) -> None:
        self.written += sorted(row.order_id for row in rows.collect())

    def run(self, key: str, through: Callable[[Callable[..., None]], Callable[..., None]]) -> None:
        """One file. Raises StreamingQueryException."""
        lake, file = self._lake, self._folder / "in" / f"{key}.json"
        file.write_text(json.dumps({"order_id": key, "amount": 1}))
        sink = through(lake.sink(write=self.note, safe="upsert", query="q"))
        stream = lake.spark.readStream.schema("order_id string, amount int").json(str(self._folder / "in"))
        writer = stream.writeStream.foreachBatch(sink).trigger(availableNow=True)
        writer.option("checkpointLocation", str(self._folder / "checkpoint")).start().awaitTermination()
        file.unlink()

    def lose_the_checkpoint(self) -> None:
        shutil.rmtree(self._folder / "checkpoint")


def in_a_pool(sink: Callable[..., None]) -> Callable[..., None]:
    def put(rows: DataFrame, batch: int) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(sink, rows, batch).result()

    return put


def in_a_pool_that_inherits(sink: Callable[..., None]) -> Callable[..., None]:
    def put(rows: DataFrame, batch: int) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(inheritable_thread_target(rows.sparkSession)(sink), rows, batch).result()

    return put


@pytest.mark.parametrize("through", [in_a_pool, in_a_pool_that_inherits])
def test_another_batch_of_a_number_whose_keys_are_forgotten_is_refused_from_a_thread_too(
    lake: Lake, tmp_path: Path, through: Callable[..., Any]
) -> None:
    orders = Orders(lake, tmp_path)
    orders.run("a", through)
    forgets_keys(lake)
    orders.lose_the_checkpoint()
    with pytest.raises(StreamingQueryException) as refused:
        orders.run("b", through)
    assert "a batch of this number was finished that had other keys" in (reason(refused.value) or "")
    assert orders.written == ["a"]


def test_without_a_query_of_its_own_a_sink_in_a_thread_is_told_how_the_thread_comes_to_know_it(lake: Lake) -> None:
    with pytest.raises(SettingError, match=r"pyspark\.InheritableThread.* Give query='a name that stays'"):
        lake.sink()(lake.rows(("a", 1)), 0)


@pytest.mark.full
@pytest.mark.parametrize("safe", ["replace", "upsert", "transaction"])
def test_a_function_is_not_asked_to_guess_and_a_writer_is_asked(lake: Lake, safe: Any) -> None:
    written: list[str] = []

    def write(rows: DataFrame, batch: BatchWrite) -> None:
        written.extend(row.order_id for row in rows.collect())

    lake.put(0, ("a", 1), write=write, safe=safe)
    lake.put(0, ("b", 1), sink="another")
    forgets_keys(lake)
    assert lake.put(0, ("a", 1), write=write, safe=safe).finished_before
    with pytest.raises(BatchRefused, match="had other keys, and Redis does not remember them any more"):
        lake.put(0, ("b", 1), write=write, safe=safe)
    forgets_prints(lake)  # as if a version that noted none had finished it
    for key in ("a", "b"):
        with pytest.raises(BatchRefused, match=r"by an unknown query .*pyspark.InheritableThread"):
            lake.put(0, (key, 1), write=write, safe=safe)
    assert written == ["a"]
    assert lake.put(0, ("b", 1), sink="another").finished_before
    with pytest.raises(BatchRefused, match="1 of these rows are not in the sink"):
        lake.put(0, ("c", 1), sink="another")


@pytest.mark.full
@pytest.mark.parametrize("forgotten", [False, True])
def test_as_many_other_rows_without_a_key_are_not_those_that_were_written(
    lake: Lake, tmp_path: Path, *, forgotten: bool
) -> None:
    bad = writers.partition(str(tmp_path / "bad"))
    lake.put(0, ("a", 1), (None, 1), (None, 2), bad_rows=bad)
    if forgotten:
        forgets_keys(lake)
    assert lake.put(0, ("a", 1), (None, 2), (None, 1), bad_rows=bad).finished_before
    if forgotten:
        with pytest.raises(BatchRefused, match="1 rows without a key were not written with it"):
            lake.put(0, ("a", 1), (None, 1), (None, 3), bad_rows=bad)
    else:
        assert lake.put(0, ("a", 1), (None, 1), (None, 3), bad_rows=bad).another
        amounts = [row.amount for row in bad.read(lake.spark).collect()]
        assert set(amounts) == {1, 2, 3}


@pytest.mark.full
def test_rows_without_a_key_that_have_maps_are_compared_too(lake: Lake, tmp_path: Path) -> None:
    bad = writers.partition(str(tmp_path / "bad"))

    def put(value: int) -> Any:
        rows = lake.spark.sql(f"SELECT CAST(NULL AS string) AS order_id, map('a', {value}) AS of")
        lake.sink(query="q", bad_rows=bad)(rows, 0)
        return lake.reports[-1]

    put(1)
    assert put(1).finished_before
    assert put(2).another
