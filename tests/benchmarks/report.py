"""The table, the machine, and the file that is kept."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.benchmarks.comparing import Change
    from tests.benchmarks.registry import Row

OUT = Path(__file__).parents[2] / "bench-out"


def machine() -> dict[str, str]:
    """What the figures hang on; no names of hosts."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    redis = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"v=([\d.]+)", redis)
    return {
        "commit": _commit(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "confluent-kafka": version("confluent-kafka"),
        "redis-py": version("redis"),
        "hiredis": _version_of("hiredis"),
        "redis-server": found[1] if found else "unknown",
    }


def table(rows: Sequence[Row]) -> str:
    """As Markdown."""
    lines = ["| what | figure | ratio | goal | met | rounds | |", "|---|--:|--:|--:|---|--:|---|"]
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        goal = "" if row.goal is None else str(row.goal)
        met = {None: "", True: "yes", False: "**no**"}[row.met]
        rounds = "" if row.spread is None else f"{_number(row.spread.least)} to {_number(row.spread.most)}"
        figure = f"{_number(row.figure)}{row.unit}"
        lines.append(f"| {row.what} | {figure} | {ratio} | {goal} | {met} | {rounds} | {row.note} |")
    return "\n".join(lines)


def write(rows: Sequence[Row], changes: Sequence[Change] = ()) -> Path:
    """One JSON file a run."""
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    entries = [asdict(row) | {"met": row.met} for row in rows]
    compared = [asdict(change) for change in changes]
    whole = {"machine": machine(), "command": sys.argv[1:], "rows": entries, "compared": compared}
    path.write_text(json.dumps(whole, indent=2))
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _commit() -> str:
    """That of this checkout; `+` after it where something is not committed."""
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return told.stdout.strip() or "unknown"


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
