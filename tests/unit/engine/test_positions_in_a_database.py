"""An app whose store is the database of its effects: what the database says is true, whatever the broker has."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Literal

import pytest

from holdfast import Settings
from holdfast.adapters.sql import SqlPositions
from holdfast.plugin.events import AdvanceIgnored, ResetHonoured
from tests.harness.engine import Bench, partition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

QUICK = Settings(workers=2, ordering="partition", commit_interval_s=0.05)


class Folder:
    """The file, and the processes that have a store on it."""

    def __init__(self, path: Path) -> None:
        self._path, self._stores = path, list[SqlPositions]()

    def store(self) -> SqlPositions:
        """One a process."""
        made = SqlPositions.from_url(f"sqlite:///{self._path / 'positions.db'}", create=True, timeout_s=30.0)
        self._stores.append(made)
        return made

    def standby(self) -> Callable[[], None]:
        """It hears nothing from now on. Call it to fail over to that, while no member runs."""
        shutil.copy(self._path / "positions.db", self._path / "standby.db")

        def fail_over() -> None:
            self.close()
            shutil.copy(self._path / "standby.db", self._path / "positions.db")

        return fail_over

    def close(self) -> None:
        for each in self._stores:
            each.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    folder = Folder(tmp_path)
    yield folder
    folder.close()


def produce(bench: Bench, *values: str, number: int = 0) -> None:
    bench.broker.produce("orders", number, *values)


def test_what_is_done_is_done_for_the_next_member(folder: Folder) -> None:
    with Bench(claims=folder.store()) as bench:
        produce(bench, "one", "two")
        a = bench.member("a", settings=QUICK)
        bench.wait_ended("one", "two")
        bench.wait_committed(2)
        a.stop()
        produce(bench, "three")
        bench.member("b", settings=QUICK, claims=folder.store())
        bench.wait_ended("three")
        assert bench.work.values() == ["one", "two", "three"]


def test_exactly_what_a_failover_has_lost_runs_again(folder: Folder) -> None:
    with Bench(claims=folder.store()) as bench:
        produce(bench, "one", "two")
        a = bench.member("a", settings=QUICK)
        bench.wait_committed(2)
        fail_over = folder.standby()
        produce(bench, "three", "four")
        bench.wait_committed(4)
        a.stop()
        fail_over()
        b = bench.member("b", settings=QUICK, claims=folder.store())
        bench.wait(lambda: bench.work.values()[4:] == ["three", "four"])
        [told] = b.told(AdvanceIgnored)
        assert (told.partition, told.offset, told.watermark) == (partition(), 4, 2)
        assert bench.work.values() == ["one", "two", "three", "four", "three", "four"]


def test_where_the_position_is_lost_the_group_begins_again(folder: Folder) -> None:
    with Bench(claims=folder.store()) as bench:
        bench.claims.connect()
        fail_over = folder.standby()
        produce(bench, "one", "two")
        a = bench.member("a", settings=QUICK)
        bench.wait_committed(2)
        a.stop()
        fail_over()
        bench.member("b", settings=QUICK, claims=folder.store())
        bench.wait(lambda: bench.work.values() == ["one", "two", "one", "two"])


def test_a_group_that_comes_from_another_store_goes_on_at_its_offset(folder: Folder) -> None:
    with Bench() as bench:
        produce(bench, "one", "two")
        a = bench.member("a", settings=QUICK)
        bench.wait_committed(2)
        a.stop()
        produce(bench, "three")
        bench.member("b", settings=QUICK, claims=folder.store())
        bench.wait_ended("three")
        assert bench.work.values() == ["one", "two", "three"]


def test_a_reset_by_another_tool_wins_over_the_database(folder: Folder) -> None:
    with Bench(claims=folder.store()) as bench:
        produce(bench, "one", "two")
        a = bench.member("a", settings=QUICK)
        bench.wait_committed(2)
        a.stop()
        bench.group.reset(partition(), 0)
        b = bench.member("b", settings=QUICK, claims=folder.store())
        bench.wait(lambda: bench.work.values() == ["one", "two", "one", "two"])
        assert b.told(ResetHonoured)


@pytest.mark.parametrize("ordering", ["partition", "none"])
def test_a_partition_moves_between_living_members_and_nothing_runs_twice(
    folder: Folder, ordering: Literal["partition", "none"]
) -> None:
    settings = Settings(workers=2, ordering=ordering, commit_interval_s=0.05)
    with Bench(claims=folder.store(), orders=2) as bench:
        for number in (0, 1):
            produce(bench, *(f"first {number} {n}" for n in range(10)), number=number)
        bench.member("a", settings=settings)
        bench.wait(lambda: len(bench.work.values()) == 20)
        b = bench.member("b", settings=settings, claims=folder.store())
        bench.wait(lambda: b.owns)
        for number in (0, 1):
            produce(bench, *(f"second {number} {n}" for n in range(10)), number=number)
        bench.wait(lambda: len(bench.work.values()) == 40)
        assert set(bench.work.times().values()) == {1}
