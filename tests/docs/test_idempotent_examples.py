"""The examples of `@idempotent` run as their README says, and find what they look for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "idempotent"
COMMANDS = re.findall(
    r"^python (examples/\S+) --redis redis://", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE
)


def test_the_readme_names_all_of_them() -> None:
    assert sorted(COMMANDS) == sorted(
        str(each.relative_to(ROOT)) for each in FOLDER.glob("*.py") if each.name != "__init__.py"
    )


@pytest.mark.parametrize("script", COMMANDS)
def test_it_runs_again_and_again(script: str, redis_url: str) -> None:
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-W", "error", script, "--redis", redis_url],
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert "once" in done.stdout.splitlines()[-1]
