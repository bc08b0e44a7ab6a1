"""`python -m tests.benchmarks [--only NAME] [--compare COMMIT]`: what holdfast costs, on one machine in one run."""

from __future__ import annotations

import argparse
import logging
import sys
import traceback
from contextlib import ExitStack

from tests.benchmarks.comparing import change_table, changes, package_of
from tests.benchmarks.lab import Lab
from tests.benchmarks.registry import Row, benchmarks, standing
from tests.benchmarks.report import machine, table, write


def main() -> None:
    """Run what was asked for; print a table as each ends, and keep all as JSON.

    Ends with 1 if one failed, or if something is slower than in the other commit.
    """
    known = benchmarks()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=sorted(known), help="may be given several times")
    parser.add_argument("--quick", action="store_true", help="few records, one round: whether it works, not how fast")
    parser.add_argument("--rounds", type=int, help="how often each is measured, in turns (default: each its own)")
    parser.add_argument(
        "--compare", metavar="COMMIT", help="measure that commit's holdfast too, in turns; alone: --only records"
    )
    parser.add_argument(
        "--row",
        action="append",
        default=[],
        help="of records, peers and scale: rows (parts of scale) with these words in their names",
    )
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    print(", ".join(f"{what} {value}" for what, value in machine().items()))
    rows: list[Row] = []
    failed: list[str] = []
    with ExitStack() as stack:
        other = stack.enter_context(package_of(args.compare)) if args.compare else None
        lab = stack.enter_context(Lab(quick=args.quick, rounds=args.rounds, other=other, rows=args.row))
        for name in args.only or (["records"] if args.compare else standing()):
            print(f"\n{name} ...", flush=True)
            try:
                of_it = known[name](lab)
            except Exception:  # noqa: BLE001 -- the others take an hour, and are worth having
                traceback.print_exc()
                failed.append(name)
                continue
            print(table(of_it), flush=True)
            rows += of_it
        found = changes(lab.compared)
    if args.compare:
        print()
        print(change_table(found, args.compare))
    print(f"kept in {write(rows, found)}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    sys.exit(any(each.verdict == "slower" for each in found))


if __name__ == "__main__":
    main()
