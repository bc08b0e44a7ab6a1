"""`holdfast run` with one process: until a signal, and as it is seen from outside."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.cli.bench import holdfast
from tests.cli.running import SHOP, Run
from tests.harness.waiting import until

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_drains_what_runs_and_ends_it_well(tmp_path: Path, number: signal.Signals) -> None:
    with Run(tmp_path, SHOP, gated=True) as run:
        run.until_seen("begins")
        run.signal(number)
        run.until_said(f"stopping: group=shop why={number.name}")
        assert not run.seen("billed")
        run.open_gate()
        log = run.ends(0)
    assert len(run.seen("billed")) == len(run.seen("left")) == 1
    assert "stopped: group=shop" in log


def test_a_second_signal_hands_over_what_runs(tmp_path: Path) -> None:
    with Run(tmp_path, SHOP, gated=True) as run:
        run.until_seen("begins")
        run.signal(signal.SIGTERM)
        run.until_said("stopping: group=shop")
        run.signal(signal.SIGTERM)
        run.ends(0)
    assert not run.seen("billed")


def test_a_probe_sees_it_by_its_health_file_and_by_its_port(tmp_path: Path) -> None:
    health = tmp_path / "health"
    with Run(tmp_path, SHOP, "--health-file", health, "--port", 0) as run:
        run.until_said("serving http://127.0.0.1:")
        url = run.log.split("serving ")[1].split("/metrics")[0]
        run.until_seen("billed")
        assert "shop: running" in holdfast("status", url).stdout
        until(health.exists)
        holdfast("healthy", health)
        run.signal(signal.SIGTERM)
        run.ends(0)


def test_an_app_that_fails_ends_with_its_error_as_a_sentence(tmp_path: Path) -> None:
    with Run(tmp_path, "tests.harness.memory_shop:make_app", "--factory", environment={"SHOP_FAILS": "yes"}) as run:
        log = run.ends(1)
    [line] = [each for each in log.splitlines() if each.startswith("holdfast: ")]
    assert "no money" in line
    assert "Traceback" not in log[log.index(line) :]


def test_logging_that_the_application_has_set_up_is_left_as_it_is(tmp_path: Path) -> None:
    module = "import logging\nlogging.basicConfig(format='MINE %(message)s', level='INFO')\n"
    (tmp_path / "mine.py").write_text(f"{module}from tests.harness.memory_shop import app\n")
    with Run(tmp_path, "mine:app", cwd=tmp_path) as run:
        run.until_said("MINE assigned: group=shop")
        run.signal(signal.SIGTERM)
        log = run.ends(0)
    assert " INFO holdfast: " not in log
