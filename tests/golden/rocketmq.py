"""RocketMQ's strategies in Python's words; see RocketMQStrategies.java for what goes over the line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from holdfast.plugin.assign import ByConfig, ConsistentHash, MachineRoom, MachineRoomNearby, average, by_circle

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from holdfast.dedup.groups import Strategy
    from holdfast.records import Partition
    from tests.golden.oracle import Oracle


class Asked(NamedTuple):
    """What the classes of the clients come to, and what they call themselves."""

    name: str
    #: Queue -> client id.
    plan: dict[Partition, str]


def before_the_sign(name: str) -> str:
    """The rooms of brokers and clients, for MachineRoomNearby."""
    return name.partition("@")[0]


def ask(oracle: Oracle, strategy: Strategy, clients: Collection[str], queues: Sequence[Partition]) -> Asked:
    """What the class like `strategy` does, asked for each client as each would ask for itself.

    Raises:
        ValueError: the class threw something, or gave a queue to two clients.
    """
    question = {"strategy": _said(strategy), "clients": [*clients], "queues": [_parts(queue) for queue in queues]}
    answer = json.loads(oracle.ask(json.dumps(question)))
    plan: dict[Partition, str] = {}
    for client, numbers in answer["plan"].items():
        for number in numbers:
            if plan.setdefault(queues[number], client) != client:
                msg = f"{queues[number]} goes to {client} and to {plan[queues[number]]}"
                raise ValueError(msg)
    return Asked(answer["name"], plan)


def _parts(queue: Partition) -> list[str | int]:
    return [queue.topic, queue.broker, queue.number]


def _said(strategy: Strategy) -> dict[str, object]:
    if strategy is average:
        return {"name": "AVG"}
    if strategy is by_circle:
        return {"name": "AVG_BY_CIRCLE"}
    if isinstance(strategy, ConsistentHash):
        return {"name": "CONSISTENT_HASH", "virtual_nodes": strategy.virtual_nodes}
    if isinstance(strategy, MachineRoom):
        return {"name": "MACHINE_ROOM", "rooms": sorted(strategy.rooms)}
    if isinstance(strategy, MachineRoomNearby):
        return {"name": "MACHINE_ROOM_NEARBY", "inner": _said(strategy.inner)}
    if isinstance(strategy, ByConfig):
        lists = {client: sorted(_parts(queue) for queue in queues) for client, queues in strategy.queues.items()}
        return {"name": "CONFIG", "queues": lists}
    msg = f"no class is like {strategy!r}"
    raise ValueError(msg)
