"""Grounds: the kinds of brokers of worlds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.playing.kafka_ground import KafkaGround
from tests.simulation.playing.leased_ground import LeasedGround
from tests.simulation.playing.pushed_ground import PushedGround
from tests.simulation.playing.queue_ground import QueueGround

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.drawing.world import BrokerKind
    from tests.simulation.playing.ground import Ground
    from tests.simulation.playing.stage import Stage

_GROUNDS: dict[BrokerKind, Callable[[Stage], Ground]] = {
    "kafka": KafkaGround,
    "queues": QueueGround,
    "leased": LeasedGround,
    "pushed": PushedGround,
}


def ground_of(stage: Stage) -> Ground:
    """The ground of the stage's world."""
    return _GROUNDS[stage.world.broker](stage)
