"""Branches of engine and store that no world reaches: `python -m tests.simulation.coverage --count 1500 --write`.

It plays worlds under coverage.py (`pip install coverage`; nothing else here needs it). With `--write` its table goes
into docs/project/simulation.md, between the markers there. unreached.py lists the tests about the other branches.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.unreached import ABOUT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ROOT = Path(__file__).parents[2]
_PAGE = _ROOT / "docs" / "project" / "simulation.md"
_BEGIN, _END = "<!-- coverage: begin -->\n", "<!-- coverage: end -->\n"
#: The parts that worlds are to reach.
_PARTS = ("holdfast/plugin/engine", "holdfast/plugin/own_loop", "holdfast/dedup")


class Function(NamedTuple):
    """One function, its branches, and how many were reached."""

    module: str
    name: str
    branches: int
    reached: int


def main() -> None:
    """Play worlds, print the table, and write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1500, help="worlds")
    parser.add_argument("--seed", type=int, default=1, help="the first one's")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="into the page")
    parser.add_argument("--one", type=Path, help="for this tool: play, and keep what was reached there")
    told = parser.parse_args()
    if told.one is not None:
        _play(range(told.seed, told.seed + told.count), told.one)
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-coverage-") as folder:
        functions = sorted(_played(told.count, told.seed, told.jobs, Path(folder)))
    text = "\n".join(_said(functions, told.count))
    print(text)
    if told.write:
        page = _PAGE.read_text()
        head, rest = page.split(_BEGIN)
        _PAGE.write_text(f"{head}{_BEGIN}{text}\n{_END}{rest.split(_END)[1]}")


def _play(seeds: Iterable[int], kept: Path) -> None:
    """Play in a process of its own: coverage.py does not see modules that were imported before it started."""
    import coverage  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - of this tool alone

    looking = coverage.Coverage(
        data_file=str(kept), branch=True, concurrency=["greenlet"], source=[str(_ROOT / part) for part in _PARTS]
    )
    looking.start()
    from tests.simulation.search import search  # noqa: PLC0415 - as said

    for result in search(seeds):
        if result.found is not None:  # what it reached counts all the same
            print(f"seed {result.seed}: {result.found.rule}", file=sys.stderr)
    looking.stop()
    looking.save()


def _played(count: int, first: int, jobs: int, folder: Path) -> Iterable[Function]:
    import coverage  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - of this tool alone

    share, files = -(-count // jobs), [folder / f"part.{number}" for number in range(jobs)]
    players = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.simulation.coverage", "--one", str(file)),
                *("--count", str(share), "--seed", str(first + number * share)),
            ]
        )
        for number, file in enumerate(files)
    ]
    if any(player.wait() for player in players):
        sys.exit("one of the processes has ended with an error: see above")
    whole = coverage.Coverage(data_file=str(folder / "whole"), branch=True, include=[f"{_ROOT}/{p}/*" for p in _PARTS])
    whole.config.exclude_list = ["if TYPE_CHECKING:", r"^\s*\.\.\.$", "raise AssertionError"]
    whole.combine([str(file) for file in files])
    whole.json_report(outfile=str(folder / "report"))
    for file, found in json.loads((folder / "report").read_text())["files"].items():
        for name, of_it in found["functions"].items():
            summary = of_it["summary"]
            if summary["num_branches"]:
                yield Function(_module(file), name or "(module)", summary["num_branches"], summary["covered_branches"])


def _module(file: str) -> str:
    return str(Path(file).with_suffix("")).partition("holdfast/")[2]


def _said(functions: Sequence[Function], count: int) -> Iterable[str]:
    total, reached = sum(each.branches for each in functions), sum(each.reached for each in functions)
    yield f"{count} worlds reach {reached} of {total} branches ({100 * reached // total}%):"
    yield ""
    yield "| module | branches | reached | never there | in part | what is about the rest |"
    yield "|---|--:|--:|---|--:|---|"
    modules: dict[str, list[Function]] = defaultdict(list)
    for each in functions:
        modules[each.module].append(each)
    for module, own in modules.items():
        branches, met = sum(each.branches for each in own), sum(each.reached for each in own)
        never = ", ".join(f"`{each.name}`" for each in own if not each.reached) if met else "all of it"
        in_part = sum(0 < each.reached < each.branches for each in own)
        rest = "" if met == branches else _about(module)
        yield f"| {module} | {branches} | {100 * met // branches}% | {never} | {in_part or ''} | {rest} |"


def _about(module: str) -> str:
    fitting = [what for what in ABOUT if f"{module}/".startswith(f"{what}/")]
    return ABOUT[max(fitting, key=len)] if fitting else "not listed in unreached.py"


if __name__ == "__main__":
    main()
