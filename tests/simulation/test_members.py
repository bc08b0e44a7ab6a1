"""Whole members, with the real engine and both stores, in simulated processes."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from holdfast.testing.store import SimulatedStore, StoreServer
from tests.simulation.lua.lua_store import LuaStore
from tests.simulation.members import RECORDS, World


@pytest.mark.parametrize("store", [SimulatedStore, LuaStore])
@pytest.mark.parametrize("seed", range(5))
def test_all_is_handled_through_stalls_lost_calls_and_a_failover(
    seed: int, store: type[StoreServer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "holdfast")
    played = World(seed, store).play()
    assert played.errors == []
    assert (played.handled, played.left) == (RECORDS, True)


def _played(hash_seed: str, *seeds: int) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.members", *map(str, seeds)],
        env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(done.stdout.splitlines())


def test_a_world_is_the_same_in_any_process_and_after_any_other() -> None:
    told = _played("1", 1, 2, 3)
    assert len(told) == 6
    assert told == _played("2", 3, 2, 1)
