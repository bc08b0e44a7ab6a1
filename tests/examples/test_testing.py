"""examples/testing: a user's project, tested in a world without servers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
#: `no:holdfast`: where the package is installed, pytest would have the plugin twice.
_PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:holdfast", "-p", "holdfast.testing.pytest_plugin")


def run(cwd: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command: Sequence[str | Path] = [sys.executable, *_PYTEST, "--show-capture=no", *options, "examples/testing"]
    env = {"PYTHONPATH": f"{cwd}:{ROOT}", "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False)


def test_the_service_keeps_its_promises() -> None:
    ran = run(ROOT)
    assert ran.returncode == 0, ran.stdout
    assert "8 passed" in ran.stdout


def test_a_bank_without_keys_is_found_out(tmp_path: Path) -> None:
    for each in ("testing", "shop.py", "__init__.py"):
        source, target = ROOT / "examples" / each, tmp_path / "examples" / each
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    billing = tmp_path / "examples" / "testing" / "billing.py"
    code = billing.read_text(encoding="utf-8")
    billing.write_text(code.replace("if idempotency_key not in self._known:", "if True:"), encoding="utf-8")
    ran = run(tmp_path, "-k", "crash or frozen")
    assert "2 failed" in ran.stdout
    assert "AssertionError: charged more than once: o-" in ran.stdout
