"""Grounds: which kind of broker a world stands on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.testing.kafka_ground import KafkaGround
from holdfast.testing.leased_ground import LeasedGround
from holdfast.testing.pushed_ground import PushedGround
from holdfast.testing.queue_ground import QueueGround

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.testing.ground import Ground
    from holdfast.testing.stage import Stage
    from holdfast.testing.world import BrokerKind

_GROUNDS: dict[BrokerKind, Callable[[Stage], Ground]] = {
    "kafka": KafkaGround,
    "queues": QueueGround,
    "leased": LeasedGround,
    "pushed": PushedGround,
}


def ground_of(stage: Stage) -> Ground:
    """The ground that the stage's world says."""
    return _GROUNDS[stage.world.broker](stage)
