"""`holdfast run --reload`: processes drain and begin anew when a file changes."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.cli.running import Run

if TYPE_CHECKING:
    from pathlib import Path

GOOD = "from tests.harness.memory_shop import app\n"


def test_a_change_drains_what_runs_and_begins_anew_in_the_same_place(tmp_path: Path) -> None:
    module = tmp_path / "mine.py"
    module.write_text(GOOD)
    with Run(tmp_path, "mine:app", "--reload", "--processes", 2, cwd=tmp_path, gated=True) as run:
        first = [run.until_seen("begins", process=each)[0] for each in (0, 1)]
        module.write_text(f"{GOOD}# changed\n")
        run.until_said("mine.py changed: all processes begin anew")
        run.until_said("stopping: group=shop why=reload")
        run.open_gate()
        second = [run.until_seen("billed", 2, process=each)[1] for each in (0, 1)]
        run.signal(signal.SIGTERM)
        log = run.ends(0)
    assert [run.seen("billed", each)[0] for each in (0, 1)] == first  # what ran was drained
    assert not set(first) & set(second)
    assert "is started again in" not in log


def test_an_app_that_cannot_be_imported_waits_for_the_next_change(tmp_path: Path) -> None:
    module = tmp_path / "mine.py"
    module.write_text("import no_such_module\n")
    with Run(tmp_path, "mine:app", "--reload", cwd=tmp_path) as run:
        run.until_said("it begins again when a file changes")
        module.write_text(GOOD)
        run.until_seen("billed")
        run.signal(signal.SIGINT)
        log = run.ends(0)
    assert "ModuleNotFoundError: No module named 'no_such_module'" in log
