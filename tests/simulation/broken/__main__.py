"""`python -m tests.simulation.broken`: break one rule after the other, and tell after how many worlds it is caught."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.broken.rules import RULES, Broken

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROOT = Path(__file__).resolve().parents[3]
_FOUND = re.compile(r"^seed (\d+): (\S.*?) at [\d.]+: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    """The result for one broken rule."""

    rule: Broken
    #: How many worlds were played; the last one caught it, if any did.
    worlds: int
    #: The finding; empty = none.
    seen: str


def play(rule: Broken, *, seed: int, count: int) -> Caught:
    """Play worlds with a package in which that rule is broken, until one of them catches it."""
    with tempfile.TemporaryDirectory(prefix="holdfast-broken-") as folder:
        package = Path(folder) / "holdfast"
        shutil.copytree(_ROOT / "holdfast", package)  # with times, so that what is compiled stays so
        broken = package / rule.file
        try:
            broken.write_text(rule.broken(broken.read_text()))
        except ValueError as error:
            raise SystemExit(str(error)) from error
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation", "--first", f"--seed={seed}", f"--count={count}"]
            + ["--database"] * rule.with_database,
            cwd=folder,
            # The broken package goes before the whole one, which lies beside the worlds.
            env={**os.environ, "PYTHONPATH": os.pathsep.join((folder, str(_ROOT)))},
            capture_output=True,
            text=True,
            check=False,
        )
    found = _FOUND.search(done.stdout)
    if found is None:
        if done.returncode:
            raise SystemExit(f"{rule.name}: the worlds did not end\n{done.stdout}\n{done.stderr}")
        return Caught(rule=rule, worlds=count, seen="")
    if found[2].startswith("ERROR") and not rule.ends_the_app:
        raise SystemExit(f"{rule.name} breaks something else: {found[3]}")
    return Caught(rule=rule, worlds=int(found[1]) - seed + 1, seen=f"{found[2]}: {found[3]}")


def main(argv: Sequence[str]) -> int:
    """Returns: 1 where a rule was not caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.broken", description=__doc__)
    parser.add_argument("names", nargs="*", help="which of them; all, if none is named")
    parser.add_argument("--seed", type=int, default=1, help="the first world")
    parser.add_argument("--count", type=int, default=3000, help="worlds for each, at most")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes")
    given = parser.parse_args(argv)
    rules = [rule for rule in RULES if not given.names or rule.name in given.names]
    missed = 0
    with ThreadPoolExecutor(given.jobs) as pool:
        for caught in pool.map(lambda rule: play(rule, seed=given.seed, count=given.count), rules):
            missed += not caught.seen
            print(f"{caught.rule.name} | {caught.worlds if caught.seen else '-'} | {caught.seen[:150]}", flush=True)
    print(f"{len(rules) - missed} of {len(rules)} rules that were broken were caught")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
