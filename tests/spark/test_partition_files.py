"""Which files `writers.partition` makes and removes, whoever stands still meanwhile: on a folder, without a Spark."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from holdfast.adapters.spark import BatchWrite, writers
from holdfast.adapters.spark.audit.writing import TableFolders
from holdfast.adapters.spark.writers.marks import Mark, Marks
from holdfast.adapters.spark.writers.owner import require_own
from holdfast.dedup.spark_batches import Attempt, BatchId
from holdfast.errors import SettingError
from tests.spark.frozen import Frozen

_BORN = 1_700_000_000_000
_STEPS = ("found", "remove", "touch")


class Folder:
    """What the writer asks of a file system; it is on this machine."""

    def __init__(self, *_: object) -> None: ...

    def full(self, path: str) -> str:
        return path

    listed = 0  #: folders, by all of them

    def found(self, pattern: str) -> list[str]:
        *above, last = pattern.removeprefix("/").split("/")
        wild = next((place for place, part in enumerate(above) if "*" in part), len(above))
        for depth in range(wild, len(above) + ("*" in last)):  # as Hadoop does it: each that matches so far is listed
            Folder.listed += sum(each.is_dir() for each in Path("/").glob("/".join(above[:depth])))
        return sorted(map(str, Path("/").glob(pattern.removeprefix("/"))))

    def remove(self, path: str) -> None:
        if Path(path).is_file():
            Path(path).unlink()
        shutil.rmtree(path, ignore_errors=True)

    def touch(self, path: str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).touch()


class Rows:
    """What the writer asks of rows."""

    def __init__(self) -> None:
        self.schema = StructType().add("order_id", "string").add("amount", "integer")
        self.sparkSession = None

    @property
    def write(self) -> Rows:
        return self

    def format(self, _: str) -> Rows:
        return self

    def options(self) -> Rows:
        return self

    def save(self, path: str) -> None:
        Path(path).mkdir(parents=True)
        Path(path, "part-0.parquet").write_text("rows")


class Written:
    """A lake in a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writer = writers.partition(str(path))

    def attempt(self, number: int, batch: int = 0) -> Attempt:
        return Attempt(BatchId("orders", "q", batch), number, f"session{number}", _BORN)

    def write(self, attempt: Attempt) -> None:
        rows: Any = Rows()
        self.writer.write(rows, BatchWrite.of(attempt, ("order_id",), 1))

    def confirm(self, attempt: Attempt) -> None:
        spark: Any = None
        self.writer.confirm(spark, attempt)

    def sweep(self, attempt: Attempt) -> list[str]:
        spark: Any = None
        return [Path(each).name for each in self.writer.sweep(spark, attempt.fence)]

    def is_whole(self, *attempts: Attempt) -> bool:
        """Exactly these count, and their files are there."""
        marks = {mark.name.partition(".")[2] for mark in (self.path / "_holdfast").glob("q/*/*")}
        files = {file.parent.name for file in self.path.glob("hf_query=*/hf_batch=*/*/*.parquet")}
        names = {each.name for each in attempts}
        return marks == names and {f"hf_attempt={name}" for name in names} <= files


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    monkeypatch.setattr(sys.modules["holdfast.adapters.spark.writers.partition"], "Files", Folder)
    return Written(tmp_path / "lake")


@pytest.mark.parametrize("before", range(9))
def test_a_driver_that_stood_still_before_any_step_takes_nothing_of_its_successor(
    lake: Written, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    first, frozen, successor = (lake.attempt(number) for number in (1, 2, 3))
    lake.write(first)  # and died
    zombie = Frozen(lambda: lake.write(frozen), before)
    zombie.watch(monkeypatch, Folder, *_STEPS)
    zombie.watch(monkeypatch, Rows, "save")
    stood = zombie.stand()
    lake.write(successor)
    lake.confirm(successor)
    zombie.go_on()
    assert stood == (before < len(zombie.steps))
    assert zombie.error is None
    assert lake.is_whole(successor), zombie.steps
    assert lake.sweep(lake.attempt(4)) in ([], [f"hf_attempt={frozen.name}"])
    assert lake.is_whole(successor)


@pytest.mark.parametrize("before", range(3))
def test_a_lake_is_one_sinks_and_of_two_that_begin_at_once_one_at_most_has_it(
    lake: Written, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """The other one takes it while the first stands still before a step."""
    files: Any = Folder(None)
    marks = str(lake.path / "_holdfast")
    refused = []

    def own(sink: str) -> None:
        try:
            require_own(files, marks, sink, "/lake")
        except SettingError:
            refused.append(sink)

    steps = [Folder.found, Folder.touch, Folder.remove]
    taken = count()

    def standing(step: Any) -> Any:
        def stand(*args: Any) -> Any:
            if next(taken) == before:
                own("other")
            return step(*args)

        return stand

    for step in steps:
        monkeypatch.setattr(Folder, step.__name__, standing(step))
    own("orders")
    monkeypatch.undo()
    assert refused
    left = {each.name for each in (lake.path / "_holdfast" / "_sinks").iterdir()}
    assert len(left) <= 1
    own(*left or ("orders",))
    assert len(refused) <= 2
    with pytest.raises(SettingError, match="give each sink a path of its own"):
        require_own(files, marks, "a third", "/lake")


def test_another_sink_is_refused_before_it_looks_at_anything(lake: Written) -> None:
    lake.write(lake.attempt(1))
    spark: Any = None
    others = replace(BatchWrite.of(lake.attempt(2), ("order_id",), 1), sink="others")
    with pytest.raises(SettingError, match="belongs to sink 'orders', and sink 'others' would remove rows of it"):
        lake.writer.finished(spark, others)
    rows: Any = Rows()
    with pytest.raises(SettingError, match="belongs to sink 'orders'"):
        lake.writer.write(rows, others)
    with pytest.raises(SettingError, match=r"remove .*/_holdfast/_sinks/orders"):
        lake.writer.require_own(spark, "others")
    lake.confirm(lake.attempt(1))
    assert lake.is_whole(lake.attempt(1))


@pytest.mark.parametrize("before", range(4))
def test_a_mark_that_comes_late_is_the_one_that_is_there(
    lake: Written, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    done, following = lake.attempt(1), lake.attempt(2, batch=1)
    lake.write(done)
    zombie = Frozen(lambda: lake.confirm(done), before)
    zombie.watch(monkeypatch, Folder, *_STEPS)
    zombie.stand()
    lake.confirm(done)
    lake.write(following)
    lake.confirm(following)
    zombie.go_on()
    assert zombie.error is None
    assert lake.is_whole(done, following)


@pytest.mark.parametrize("before", range(9))
def test_a_sweep_that_stood_still_takes_nothing_of_who_came_after_it(
    lake: Written, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    left, sweeper, successor = lake.attempt(1), lake.attempt(2), lake.attempt(3)
    lake.write(left)
    zombie = Frozen(lambda: lake.sweep(sweeper), before)
    zombie.watch(monkeypatch, Folder, *_STEPS)
    zombie.stand()
    lake.write(successor)
    zombie.go_on()  # while the successor has written, and not finished
    lake.confirm(successor)
    assert zombie.error is None
    assert lake.is_whole(successor)


def test_what_another_has_put_there_is_no_attempt_and_stays(lake: Written) -> None:
    other = lake.path / "hf_query=q" / "hf_batch=0" / "hf_attempt=by-hand"
    other.mkdir(parents=True)
    lake.write(lake.attempt(1))
    assert lake.sweep(lake.attempt(2)) == [f"hf_attempt={lake.attempt(1).name}"]
    assert other.exists()


def test_a_lake_that_an_earlier_version_has_compacted_is_refused(lake: Written) -> None:
    """The attempts whose rows it has put together have no marks any more."""
    done, following = lake.attempt(1), lake.attempt(2, batch=1)
    lake.write(done)
    compacted = lake.path / "_holdfast" / "_compacted"
    compacted.mkdir()
    (compacted / "c1-session.json").touch()
    spark: Any = None
    for call in (
        lambda: lake.writer.read(spark),
        lambda: lake.writer.finished(spark, BatchWrite.of(done, ("order_id",), 1)),
        lambda: lake.write(following),
        lambda: lake.writer.require_own(spark, "orders"),  # before its orphans are removed
    ):
        with pytest.raises(SettingError, match=r"was compacted by an earlier version of holdfast, .* to a Delta table"):
            call()
    assert not list(lake.path.glob(f"**/*{following.name}*"))


def test_marks_of_thousands_of_batches_are_read_by_few_listings_and_those_of_old_lakes_count(lake: Written) -> None:
    files: Any = Folder(None)
    marks = Marks(files, str(lake.path / "_holdfast"))
    made = {Mark("q", batch, lake.attempt(batch, batch).name) for batch in range(2500)}
    for mark in made:
        marks.add(mark)
    Folder.listed = 0
    assert marks.all() == made
    assert Folder.listed == 1 + 1 + 3  # the marks, the query, a thousand batches each
    assert marks.of("q", 5) == {mark for mark in made if mark.batch == 5}
    old = Mark("q", 2, lake.attempt(9000, 2).name)  # in the very folder that 2000 to 2999 have now
    files.touch(str(lake.path / "_holdfast" / "q" / "2" / old.attempt))
    assert marks.all() == made | {old}
    assert marks.of("q", 2) == {mark for mark in made if mark.batch == 2} | {old}


def test_an_old_lake_is_gone_on_with(lake: Written) -> None:
    done, following = lake.attempt(1), lake.attempt(2, batch=1)
    lake.write(done)
    lake.confirm(done)
    [mark] = (lake.path / "_holdfast" / "q" / "0").iterdir()
    mark.rename(mark.with_name(done.name))  # as it was before: the batch is the folder
    lake.write(following)
    lake.confirm(following)
    assert lake.sweep(lake.attempt(3)) == []
    lake.write(lake.attempt(4))  # another attempt at the finished batch
    assert (lake.path / "hf_query=q" / "hf_batch=0" / f"hf_attempt={done.name}").exists()


@pytest.mark.parametrize("name", ["orders[1]", "orders{1}", "orders*", "orders?", "orders\\1"])
def test_a_path_that_spark_takes_for_a_pattern_is_refused(name: str) -> None:
    """Marks would not be found below it: a Delta table lost finished rows, and a lake never showed any."""
    path = f"/lake/{name}"
    for make in (
        writers.partition,
        writers.delta_replace,
        writers.delta_merge,
        lambda at: TableFolders(output=at, format="parquet"),
    ):
        with pytest.raises(SettingError, match="takes for a pattern"):
            make(path)
    assert writers.delta_replace("shop.orders").table == "shop.orders"
