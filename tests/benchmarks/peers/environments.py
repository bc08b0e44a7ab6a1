"""An environment for each peer, since their clients have versions of their own: made when it is first measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
#: What is installed.
ARROYO, QUIX_STREAMS = "sentry-arroyo==2.48.0", "quixstreams==3.28.1"
FASTSTREAM = "faststream[confluent]==0.7.8"
_HOME = ROOT / ".venv-peers"
_STAMP = "requirement"


def python_of(name: str, requirement: str, home: Path = _HOME) -> Path:
    """The interpreter of an environment that has this requirement, pinned. Asks a package index where it is not there
    yet.

    Raises:
        OSError: it cannot be installed, with pip's own last line.
    """
    folder = home / name
    python, stamp = folder / "bin" / "python", folder / _STAMP
    if stamp.exists() and stamp.read_text() == requirement:
        return python
    _run([sys.executable, "-m", "venv", "--clear", str(folder)])
    _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement])
    stamp.write_text(requirement)
    return python


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip() or f"it ended with {done.returncode}"
        raise OSError(said.splitlines()[-1])
