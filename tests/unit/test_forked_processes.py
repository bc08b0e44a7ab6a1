"""What the tests' members are: forked processes that end, are told to end, and say what Python says."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.harness.forks import Forked, fork

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Forked]:
    """What it says is in the file `said`."""

    def start(*arguments: str, strict: bool = False) -> Forked:
        with (tmp_path / "said").open("ab") as out:
            return fork(*arguments, out=out.fileno(), err=out.fileno(), strict=strict)

    return start


def test_it_ends_with_its_code(run: Callable[..., Forked], tmp_path: Path) -> None:
    assert [run("holdfast", "--version").wait(60), run("holdfast", "no such").wait(60)] == [0, 2]
    said = (tmp_path / "said").read_text()
    assert said.startswith("holdfast 0.")
    assert "Warning" not in said


def test_it_has_the_environment_of_this_moment(
    run: Callable[..., Forked], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "import os; print(os.environ['SAID_BY'])"
    monkeypatch.setenv("SAID_BY", "a test")
    assert run("timeit", "-n", "1", "-r", "1", module).wait(60) == 0
    assert "a test" in (tmp_path / "said").read_text()


def test_its_warnings_are_errors_where_that_is_asked_for(run: Callable[..., Forked]) -> None:
    warn = ("timeit", "-n", "1", "-r", "1", "import warnings; warnings.warn('x')")
    assert [run(*warn).wait(60), run(*warn, strict=True).wait(60)] == [0, 1]


def test_what_runs_is_waited_for_and_can_be_told_to_end(run: Callable[..., Forked]) -> None:
    runs = run("http.server", "0", "--bind", "127.0.0.1")
    assert runs.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        runs.wait(0.01)
    runs.terminate()
    assert runs.wait(60) == -signal.SIGTERM
    runs.kill()  # it is gone: nothing happens
    assert (runs.poll(), runs.returncode) == (-signal.SIGTERM,) * 2
