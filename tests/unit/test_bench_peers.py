"""`make bench ONLY=peers`: what a peer's process says, and what becomes of a peer that is not there."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.benchmarks import bench_peers
from tests.benchmarks.lab import Speed, speed_of
from tests.benchmarks.peers import environments
from tests.benchmarks.registry import benchmarks, standing

if TYPE_CHECKING:
    from pathlib import Path


def test_a_peer_s_figures_are_its_last_line() -> None:
    assert speed_of("a library's greeting\n1000 2.5 0.25\n") == Speed(1000, 2.5, 0.25)


@pytest.mark.parametrize("output", ["", "\n", "1000 2.5\n", "1000 2.5 0.25\nTraceback\n", "1000 fast 0.25\n"])
def test_a_last_line_without_figures_is_named(output: str) -> None:
    with pytest.raises(RuntimeError, match="no figures"):
        speed_of(output)


def test_peers_are_installed_only_where_they_are_asked_for() -> None:
    known = set(benchmarks())
    assert known - set(standing()) == {"peers", "fair"}


def test_a_peer_that_cannot_be_installed_is_a_row_that_says_why_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_index(name: str, requirement: str) -> Path:
        raise OSError(f"ERROR: No matching distribution found for {requirement}")

    monkeypatch.setattr(bench_peers, "python_of", no_index)
    lab: Any = SimpleNamespace(
        quick=True,
        consume=print,  # nobody calls it
        wants=lambda row: row.startswith(("arroyo", "holdfast, batch")),
        in_turns=lambda rounds, measures: {name: [Speed(1, 1.0, 2e-6)] for name in measures},
    )
    rows = {row.what: row for row in bench_peers.peers(lab)}
    assert list(rows) == ["bare consume(500) loop", "holdfast, batch handler", "arroyo, RunTask"]
    assert rows["holdfast, batch handler"].ratio == 1.0
    assert math.isnan(rows["arroyo, RunTask"].figure)
    assert "No matching distribution" in rows["arroyo, RunTask"].note


def test_an_environment_that_has_the_requirement_is_used_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "peer").mkdir()  # by venv, which does not run here
    ran: list[list[str]] = []
    monkeypatch.setattr(environments, "_run", ran.append)
    python = environments.python_of("peer", "peer==1", tmp_path)
    assert [command[1:4] for command in ran] == [["-m", "venv", "--clear"], ["-m", "pip", "install"]]
    assert environments.python_of("peer", "peer==1", tmp_path) == python
    assert len(ran) == 2
    environments.python_of("peer", "peer==2", tmp_path)
    assert len(ran) == 4


def test_what_pip_said_last_is_told() -> None:
    with pytest.raises(OSError, match="no such thing"):
        environments._run(["sh", "-c", "echo first >&2; echo no such thing >&2; exit 1"])
