"""`python -m tests.benchmarks [--only NAME] [--quick]`: what holdfast costs, as ratios of one run on one machine."""

from __future__ import annotations

import argparse
import logging

from tests.benchmarks.lab import Lab
from tests.benchmarks.registry import Row, benchmarks
from tests.benchmarks.report import machine, table, write


def main() -> None:
    """Run what was asked for, print one table, keep it as JSON."""
    known = benchmarks()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=sorted(known), help="may be given several times")
    parser.add_argument("--quick", action="store_true", help="few records, one round: whether it works, not how fast")
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    rows: list[Row] = []
    with Lab(quick=args.quick) as lab:
        for name in args.only or known:
            print(f"{name} ...", flush=True)
            rows += known[name](lab)
    print(", ".join(f"{what} {value}" for what, value in machine().items()))
    print(table(rows))
    print(f"kept in {write(rows)}")


if __name__ == "__main__":
    main()
