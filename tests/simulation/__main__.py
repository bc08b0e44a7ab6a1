"""`python -m tests.simulation`: play worlds by their seeds, or a kept one, and print each broken promise."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.drawing.draw import draw
from tests.simulation.drawing.world import World
from tests.simulation.playing.play import play
from tests.simulation.search import judged, quiet, search, smaller

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.judging.judges import Found


def main(argv: Sequence[str]) -> int:
    """Returns: 1 where a rule was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--count", type=int, default=1, help="how many worlds")
    parser.add_argument("--database", action="store_true", help="with a database of effects, where there may be one")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes")
    parser.add_argument("--first", action="store_true", help="end with the first world that breaks a rule")
    parser.add_argument("--world", type=Path, help="play the one that is kept in this file")
    parser.add_argument("--story", action="store_true", help="tell what happened, of one world")
    parser.add_argument("--shrink", action="store_true", help="make what was found small")
    parser.add_argument("--out", type=Path, default=Path("simulate-out"), help="where small worlds go")
    given = parser.parse_args(argv)
    quiet()
    if given.world is not None:
        return _one(World.from_json(given.world.read_text()), given.world.stem, given)
    if given.count == 1:
        return _one(draw(given.seed, with_database=given.database), f"seed-{given.seed}", given)
    return _many(given)


def _one(world: World, name: str, given: argparse.Namespace) -> int:
    found = judged(world)
    if found is not None and given.shrink:
        world = _keep(world, found, name, given)
    played = play(world)
    print(played.story if given.story else played.found or f"{name}: no rule was broken")
    print(played.figures)
    return int(played.found is not None)


def _keep(world: World, found: Found, name: str, given: argparse.Namespace) -> World:
    """Shrink a world and keep it as data, since the same seed may draw another world after a change."""
    world = smaller(world, found)
    given.out.mkdir(parents=True, exist_ok=True)
    kept = given.out / f"{name}.json"
    kept.write_text(world.to_json())
    print(f"{kept}: {len(world.records)} records, {len(world.faults)} faults")
    return world


def _many(given: argparse.Namespace) -> int:
    began, worlds, took_s, records = time.perf_counter(), 0, 0.0, 0
    rules: Counter[str] = Counter()
    for result in search(range(given.seed, given.seed + given.count), given.jobs, with_database=given.database):
        worlds, took_s = worlds + 1, took_s + result.took_s
        records += result.figures.records if result.figures else 0
        if result.found is not None:
            rules[result.found.rule] += 1
            print(
                f"seed {result.seed}: {result.found.rule} at {result.found.at_s:.4f}: {result.found.what}", flush=True
            )
            if given.shrink:
                _keep(draw(result.seed, with_database=given.database), result.found, f"seed-{result.seed}", given)
            if given.first:
                break
    wall_s = time.perf_counter() - began
    print(
        f"{worlds} worlds, {records} records, {wall_s:.0f} s; {worlds / wall_s * 60:.0f} worlds a minute, "
        f"{worlds / took_s * 60:.0f} a minute and core; broken: {dict(rules) or 'nothing'}"
    )
    return int(bool(rules))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
