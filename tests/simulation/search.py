"""Search: play many worlds, by their seeds, on several cores; shrink a world that fails."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import time
import traceback
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.drawing.draw import draw
from tests.simulation.judging.judges import Found
from tests.simulation.playing.play import Figures, Played, play
from tests.simulation.shrink import shrink

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.simulation.drawing.world import World

#: The rule of a finding where the simulator itself raises.
SIMULATOR = "SIMULATOR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of one seed."""

    seed: int
    found: Found | None
    figures: Figures | None
    #: Processor time in seconds.
    took_s: float


def search(seeds: Iterable[int], jobs: int = 1, *, with_database: bool = False) -> Iterator[Result]:
    """Play the worlds of these seeds, in any order. Args: with_database: as of `draw`."""
    quiet()
    one = partial(_one, with_database=with_database)
    if jobs <= 1:
        yield from map(one, seeds)
        return
    with multiprocessing.get_context("fork").Pool(jobs, _collect_less_often) as pool:
        yield from pool.imap_unordered(one, seeds, chunksize=4)


def judged(world: World) -> Found | None:
    """Play a world and return what the judges find, also where the simulator raises."""
    return _judged(world)[0]


def smaller(world: World, found: Found, *, plays: int = 400) -> World:
    """A smaller world that breaks the same rule."""
    quiet()

    def fails(tried: World) -> bool:
        again = judged(tried)
        return again is not None and again.rule == found.rule

    return shrink(world, fails, plays=plays)


def quiet() -> None:
    """Switch holdfast's logging off: a thousand worlds would log too much to read."""
    logging.getLogger("holdfast").setLevel(logging.CRITICAL + 1)


def _collect_less_often() -> None:
    """Have the garbage collector run less often. A world's objects die all at once, at its end; collecting in between
    took a tenth of the time."""
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)


def _one(seed: int, *, with_database: bool) -> Result:
    began = time.process_time()
    found, played = _judged(draw(seed, with_database=with_database))
    return Result(
        seed=seed,
        found=found,
        figures=played.figures if played else None,
        took_s=time.process_time() - began,
    )


def _judged(world: World) -> tuple[Found | None, Played | None]:
    try:
        played = play(world)
    except Exception:  # noqa: BLE001 - reported as a fault of the simulator
        return Found(SIMULATOR, traceback.format_exc(), 0.0), None
    return played.found, played
