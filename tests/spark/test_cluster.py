"""Executors that are processes of their own, as where the sink's users run it, killed at each phase of a batch."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from tests.harness.processes import ran_well, spawn
from tests.spark.cluster import PHASES
from tests.spark.kills import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.full
def test_executors_killed_at_each_phase_of_a_batch_lose_nothing_and_double_nothing(
    tmp_path: Path, redis_url: str
) -> None:
    log = tmp_path / "log"
    driver = spawn([sys.executable, "-m", "tests.spark.cluster", str(tmp_path), redis_url], log, cwd=ROOT)
    ran_well(driver, log, 550)
    found = json.loads((tmp_path / "found").read_text())
    assert found == {"killed": [f"{phase} {n}" for n, phase in enumerate(PHASES)], "lost": 0, "doubled": 0}
