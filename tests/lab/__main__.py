"""`make lab`: the same faults done to groups of several libraries, on a real Kafka; one page, and a table. RocketMQ's
clients by `make lab ON=rocketmq`, into the same page.

A cell is one consumer under one fault. What it leaves is a file of evidence in lab-out/; cells that are there are not
played again, so that an interrupted run goes on. The verdicts, lab-out/lab.html and lab-out/lab.md are made from those
files alone, at the end or by `--report`.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.benchmarks.peers.environments import ROOT, python_of
from tests.harness.processes import ServerFailed
from tests.lab import page, table
from tests.lab.consumers import CONSUMERS, Consumer
from tests.lab.evidence import Evidence
from tests.lab.faults import FAULTS, Fault
from tests.lab.judge import Verdict
from tests.lab.machine import machine
from tests.lab.stage import DidNotBegin, Servers, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

_VERSIONS = "import importlib.metadata as m, sys; print(*(m.version(each) for each in sys.argv[1:]))"

_INTERRUPTED = 128 + signal.SIGINT


class Cell(NamedTuple):
    """One consumer under one fault."""

    fault: Fault
    consumer: Consumer
    seed: int

    def file(self, out: Path) -> Path:
        """Its evidence."""
        return out / f"{self.seed}-{self.fault.name.replace(' ', '-')}-{self.consumer.name}.json.gz"

    def played(self, out: Path) -> bool:
        """Whether it is there, and was not an error."""
        file = self.file(out)
        return file.exists() and not Evidence.load(file).error

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.fault.name}, {self.consumer.title}"


def cells(seeds: Sequence[int], faults: Sequence[str], consumers: Sequence[str]) -> list[Cell]:
    """In the order in which they are played. Beginnings of names choose; none = all faults, all consumers on Kafka."""
    return [
        Cell(fault, consumer, seed)
        for seed in seeds
        for fault in FAULTS
        if not faults or fault.name.startswith(tuple(faults))
        for consumer in CONSUMERS
        if (consumer.name.startswith(tuple(consumers)) if consumers else consumer.broker == "Kafka")
        if fault.fits(consumer.store)
    ]


def play(cell: Cell, servers: Servers) -> Evidence:
    """Play it. A consumer that cannot be installed, or does not begin, is evidence too. Raises ServerFailed."""
    said, versions = "", dict[str, str]()
    try:
        python = str(_python(cell.consumer))
        packages = cell.consumer.packages
        told = subprocess.run([python, "-c", _VERSIONS, *packages], capture_output=True, text=True, check=True)
        versions = dict(zip(packages, told.stdout.split(), strict=True))
        with tempfile.TemporaryDirectory(prefix="holdfast-lab-") as folder:
            stage = Stage(servers, cell.consumer, cell.fault, cell.seed, python, Path(folder))
            return stage.play(versions, machine())
    except (OSError, DidNotBegin) as error:
        said = str(error)
    return Evidence(
        consumer=cell.consumer.name,
        fault=cell.fault.name,
        seed=cell.seed,
        versions=versions,
        sent=(),
        ledger=(),
        lives=(),
        marks=(),
        looks=(),
        committed={},
        over=0.0,
        error=said,
        machine=machine(),
    )


def _python(consumer: Consumer) -> Path:
    if consumer.environment:
        return ROOT / consumer.environment / "bin" / "python"
    if not consumer.requirement:
        return Path(sys.executable)
    return python_of(consumer.module, consumer.requirement)


def report(out: Path) -> str:
    """Judge all evidence that is there, and write page and table. Returns the table."""
    order = {each.name: number for number, each in enumerate(FAULTS)}
    titles = {each.name: number for number, each in enumerate(CONSUMERS)}
    found = [Verdict(Evidence.load(each)) for each in sorted(out.glob("*.json.gz"))]
    found.sort(key=lambda each: (order[each.evidence.fault], titles[each.evidence.consumer], each.evidence.seed))
    written = table.markdown(found)
    (out / "lab.md").write_text(written)
    (out / "lab.html").write_text(page.html(found))
    return written


def main() -> int:
    """Status 1 where a cell could not be played, 130 where it was stopped."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=1, help="moments, victims and records hang on it")
    parser.add_argument("--count", type=int, default=1, help="so many seeds, from that one on")
    parser.add_argument("--only", nargs="*", default=[], help="faults; the start of a name is enough")
    parser.add_argument("--on", nargs="*", default=[], help="consumers (those on Kafka); the start of a name is enough")
    parser.add_argument("--out", type=Path, default=Path("lab-out"))
    parser.add_argument("--report", action="store_true", help="play nothing: page and table of what is there")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    chosen = cells(range(asked.seed, asked.seed + asked.count), asked.only, asked.on)
    if not chosen:
        names = "; ".join(", ".join(each.name for each in both) for both in (FAULTS, CONSUMERS))
        parser.error(f"there is no such cell. Faults and consumers: {names}")
    failed, stopped = 0, False
    try:
        with Servers() as servers:
            missing = [] if asked.report else [each for each in chosen if not each.played(asked.out)]
            for number, cell in enumerate(missing, 1):
                began = time.monotonic()
                evidence = play(cell, servers)
                evidence.save(cell.file(asked.out))
                failed += bool(evidence.error)
                said = f"could not be played: {evidence.error}" if evidence.error else table.line(Verdict(evidence))
                took = time.monotonic() - began
                print(f"{number} of {len(missing)}: {cell}: {said} ({took:.0f} s)", flush=True)
    except KeyboardInterrupt:
        print("\nstopped: `make lab` again goes on with the cells that are missing", file=sys.stderr)
        stopped = True
    except ServerFailed as error:
        print(f"\n{error}\n`make lab` again goes on with the cells that are missing", file=sys.stderr)
        failed += 1
    print(f"\n{report(asked.out)}\n{asked.out / 'lab.html'}, {asked.out / 'lab.md'}")
    return _INTERRUPTED if stopped else int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
