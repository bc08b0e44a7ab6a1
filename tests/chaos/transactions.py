"""`make chaos ON=transactions`: groups that write in transactions, killed at points of a seed; a reader of committed
records counts. COUNT=200 SEED=1; each seed has its protocol, its kind of handlers, and its faults."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.harness.servers.kafka import KafkaServer
from tests.harness.transactions.field import PROTOCOLS, play


def main(arguments: list[str]) -> int:
    """Play the runs. Returns: 1 = an output is missing, there twice, or out of its order."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.transactions", description=__doc__)
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=4)
    told = parser.parse_args(arguments)
    wrong, outputs = [], 0
    with KafkaServer() as kafka, tempfile.TemporaryDirectory(prefix="holdfast-transactions-") as folder:
        for seed in range(told.seed, told.seed + told.count):
            protocol, began = list(PROTOCOLS)[seed % len(PROTOCOLS)], time.monotonic()
            found = play(kafka, Path(folder), seed, protocol=protocol, faults=told.faults)
            outputs += found.expected
            said = "right" if found.is_right else f"WRONG: {found}"
            print(f"seed {seed}, {protocol}: {said}, {time.monotonic() - began:.0f} s", flush=True)
            wrong += [] if found.is_right else [seed]
    print(f"{told.count} runs, {outputs} outputs; wrong: {wrong or 'none'}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
