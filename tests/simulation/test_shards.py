"""The simulated worlds on a Redis Cluster whose shards fail apart: no promise is broken there either."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.simulation.drawing.draw import draw
from tests.simulation.playing import stage
from tests.simulation.playing.faults import Faults
from tests.simulation.playing.play import play
from tests.simulation.shards import ShardStore
from tests.tiers import first_and_full

if TYPE_CHECKING:
    from holdfast.testing.scheduler import Scheduler
    from holdfast.testing.store import StoreServer
    from tests.simulation.drawing.world import Fault, World

_WORLDS, _AT_ONCE = 100, 10
_FAIL_OVER = Faults._failover


def sharded(world: World, scheduler: Scheduler) -> StoreServer:
    return ShardStore(
        scheduler, lease_s=world.lease_s, timeout_s=world.store_timeout_s, hash_keys=world.store == "digests"
    )


def fail_over(self: Faults, fault: Fault) -> None:
    """Shards are away for a while before their replicas serve: with a store that is open then, nothing is promised."""
    self._stage.judges.store_away(fault.for_s)
    _FAIL_OVER(self, fault)


@pytest.fixture(autouse=True)
def _on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "_store", sharded)
    monkeypatch.setattr(Faults, "_failover", fail_over)


@pytest.mark.parametrize("first", first_and_full(range(0, _WORLDS, _AT_ONCE), 1))
def test_no_promise_is_broken_where_shards_fail_apart(first: int) -> None:
    for seed in range(first, first + _AT_ONCE):
        world = draw(seed)
        if world.store == "database":
            continue  # its handlers have transactions
        played = play(world)
        assert played.found is None, f"seed {seed}\n{played.story}"
