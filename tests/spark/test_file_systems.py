"""Marks lie where the data lies: on a file system of which the session, or the writer's options, alone know."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.spark import writers
from holdfast.adapters.spark.writers.files import Files

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.lake import Lake


@pytest.mark.full
@pytest.mark.parametrize("told_by", ["session", "options"])
def test_marks_reach_what_spark_reaches(lake: Lake, tmp_path: Path, told_by: str) -> None:
    (tmp_path / "orders").mkdir()
    conf = {f"fs.viewfs.mounttable.{told_by}.link./lake": f"file://{tmp_path}/orders"}
    spark = lake.spark.newSession()
    if told_by == "session":
        for name, value in conf.items():
            spark.conf.set(name, value)
    writer = writers.partition(f"viewfs://{told_by}/lake", options=conf if told_by == "options" else None)
    sink = lake.sink(write=writer, query="q")
    for batch, key in enumerate("ab"):
        sink(spark.createDataFrame([(key, 1)], "order_id string, amount int"), batch)
    assert sorted(row.order_id for row in writer.read(spark).collect()) == ["a", "b"]
    assert len(list((tmp_path / "orders" / "_holdfast" / "q" / "0").glob("[0-9]*"))) == 2
    assert writer.orphans(spark) == []


def test_a_file_that_several_make_at_once_is_there_for_each(lake: Lake, tmp_path: Path) -> None:
    """Sinks that begin at the same time mark the same lake as theirs."""
    files = Files(lake.spark)
    with ThreadPoolExecutor(4) as pool:
        for n in range(50):
            made = [pool.submit(files.touch, f"{tmp_path}/marks/{n}") for _ in range(4)]
            assert [each.result() for each in made] == [None] * 4
    assert len(files.found(f"{tmp_path}/marks/*")) == 50
