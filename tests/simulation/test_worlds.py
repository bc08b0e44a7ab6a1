"""Whole groups of members in simulated worlds: what breaks no promise in a fixed number of them, and in each that ever
failed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from tests.simulation.drawing.draw import draw
from tests.simulation.drawing.world import World
from tests.simulation.playing.play import play
from tests.simulation.worlds_kept import OPEN, kept, names
from tests.tiers import first_and_full

#: `make test` plays the first of these, and no others: no landing hangs on luck. `make simulate` plays any.
_FIXED, _AT_ONCE = 60, 10
#: `make test-all` plays all of these, and so many more, that nobody has chosen.
_FIXED_IN_ALL, _RANDOM = 500, 2_000
_DIGESTS = "from tests.simulation.drawing.draw import draw; from tests.simulation.playing.play import play; \
print([play(draw(seed)).figures.digest for seed in (0, 2, 46)])"  # queues, partitions, messages that are leased


@pytest.mark.parametrize("first", first_and_full(range(0, _FIXED_IN_ALL, _AT_ONCE), _FIXED // _AT_ONCE))
def test_no_promise_is_broken(first: int) -> None:
    for seed in range(first, first + _AT_ONCE):
        played = play(draw(seed))
        assert played.found is None, f"seed {seed}\n{played.story}"


@pytest.mark.full
@pytest.mark.parametrize("part", range(0, _RANDOM, _AT_ONCE * 10))
def test_no_promise_is_broken_in_worlds_that_nobody_chose(part: int) -> None:
    first = random.SystemRandom().randrange(1 << 40) + part
    for seed in range(first, first + _AT_ONCE * 10):
        played = play(draw(seed))
        assert played.found is None, (
            f"seed {seed}: python -m tests.simulation --shrink --story --seed {seed}\n{played.story}"
        )


@pytest.mark.parametrize("name", names())
def test_what_broke_a_promise_once_does_not_any_more(name: str) -> None:
    played = play(kept(name))
    if name in OPEN:
        assert played.found is not None, f"{name} is mended: {OPEN[name]}"
    else:
        assert played.found is None, played.story


def test_a_world_is_the_same_in_every_process() -> None:
    def digests(hash_seed: str) -> str:
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(
            [sys.executable, "-c", _DIGESTS], env=env, check=True, capture_output=True, text=True
        ).stdout

    assert digests("1") == digests("2")


@pytest.mark.parametrize("seed", range(30))
def test_a_world_is_data(seed: int) -> None:
    world = draw(seed)
    assert World.from_json(world.to_json()) == world


def test_all_kinds_of_brokers_are_drawn() -> None:
    worlds = [draw(seed) for seed in range(200)]
    assert Counter(world.broker for world in worlds).keys() == {"kafka", "queues", "leased", "pushed"}
    assert {world.loop.done_when for world in worlds if world.loop} == {"next_poll", "commit", "explicit"}
    assert {world.by_message for world in worlds if world.broker == "queues"} == {True, False}


def test_a_world_of_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="not a world of version"):
        World.from_json(draw(1).to_json().replace('"version": 1', '"version": 0'))


@pytest.mark.parametrize("seed", first_and_full([2, 0, 1, 3, 4, 5], 1))
def test_four_times_as_many_records_cost_no_more_each(seed: int) -> None:
    # What is quadratic shows in calls, not in virtual time. Each time as many records of a key as before: a lane of
    # which most wait for their key is looked through for each of them.
    world = replace(draw(seed), faults=(), clocks=())
    more = [replace(each, unit=each.unit and f"{each.unit}.{time}") for time in range(4) for each in world.records]
    few, many = (_calls_a_record(replace(world, records=tuple(more[: len(world.records) * times]))) for times in (1, 4))
    assert many < 1.5 * few


def _calls_a_record(world: World) -> float:
    calls: Counter[str] = Counter()
    played = play(world, calls=calls)
    assert played.found is None, played.story
    return calls.total() / len(world.records)
