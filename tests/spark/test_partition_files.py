"""Which files `writers.partition` makes and removes, whoever stands still meanwhile: on a folder, without a Spark."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.spark import BatchWrite, writers
from holdfast.dedup.batches import Attempt, BatchId
from tests.spark.frozen import Frozen

_BORN = 1_700_000_000_000
_STEPS = ("found", "remove", "touch", "save")


class Folder:
    """What the writer asks of a file system, and of the rows; all is on this machine."""

    sparkSession = None  # noqa: N815 - as Spark has it

    def __init__(self, _: object = None) -> None: ...

    def full(self, path: str) -> str:
        return path

    def found(self, pattern: str) -> list[str]:
        return sorted(map(str, Path("/").glob(pattern.removeprefix("/"))))

    def remove(self, path: str) -> None:
        shutil.rmtree(path, ignore_errors=True)

    def touch(self, path: str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).touch()

    @property
    def write(self) -> Folder:
        return self

    def format(self, _: str) -> Folder:
        return self

    def options(self) -> Folder:
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
        rows: Any = Folder()
        self.writer.write(rows, BatchWrite.of(attempt, ("order_id",), 1))

    def confirm(self, attempt: Attempt) -> None:
        spark: Any = None
        self.writer.confirm(spark, attempt)

    def sweep(self, attempt: Attempt) -> list[str]:
        spark: Any = None
        return [Path(each).name for each in self.writer.sweep(spark, attempt.fence)]

    def is_whole(self, *attempts: Attempt) -> bool:
        """Exactly these count, and their files are there."""
        marks = {mark.name for mark in (self.path / "_holdfast").glob("*/*/*")}
        files = {file.parent.name for file in self.path.glob("hf_query=*/hf_batch=*/*/*.parquet")}
        names = {each.name for each in attempts}
        return marks == names and {f"hf_attempt={name}" for name in names} <= files


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    monkeypatch.setattr(sys.modules["holdfast.adapters.spark.writers.partition"], "Files", Folder)
    return Written(tmp_path / "lake")


@pytest.mark.parametrize("before", range(8))
def test_a_driver_that_stood_still_before_any_step_takes_nothing_of_its_successor(
    lake: Written, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    first, frozen, successor = (lake.attempt(number) for number in (1, 2, 3))
    lake.write(first)  # and died
    zombie = Frozen(lambda: lake.write(frozen), before)
    zombie.watch(monkeypatch, Folder, *_STEPS)
    stood = zombie.stand()
    lake.write(successor)
    lake.confirm(successor)
    zombie.go_on()
    assert (stood, zombie.error) == (before < len(zombie.steps), None)
    assert lake.is_whole(successor), zombie.steps
    assert lake.sweep(lake.attempt(4)) in ([], [f"hf_attempt={frozen.name}"])
    assert lake.is_whole(successor)


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


@pytest.mark.parametrize("before", range(5))
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
