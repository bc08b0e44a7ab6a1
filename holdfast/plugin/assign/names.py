"""Strategies by the names that users know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import SettingError
from holdfast.plugin.assign.rocketmq import ByConfig, ConsistentHash, MachineRoom, MachineRoomNearby, average, by_circle
from holdfast.plugin.assign.sticky import sticky

if TYPE_CHECKING:
    from holdfast.dedup.groups import Strategy

#: RocketMQ's by what getName() of its class says.
_STRATEGIES: dict[str, Strategy] = {
    "sticky": sticky,
    "AVG": average,
    "AVG_BY_CIRCLE": by_circle,
    "CONSISTENT_HASH": ConsistentHash(),
}
#: Those that have to be told something; all of holdfast.plugin.assign.
_NEEDING = {
    "CONFIG": "ByConfig(queues={client id: [Partition(topic, number, broker), ...]})",
    "MACHINE_ROOM": 'MachineRoom(rooms={"hz1"}), for brokers that are named room@name',
    "MACHINE_ROOM_NEARBY": "MachineRoomNearby(broker_room=..., client_room=...)",
}


def strategy_of(strategy: str | Strategy, *, field: str = "strategy") -> Strategy:
    """The strategy of that name; one of your own is returned as it is.

    Args:
        strategy: a name, or a function.
        field: the setting where the user has said so, for the error.

    Raises:
        SettingError: there is none of that name, or it has to be told more than its name.
    """
    if callable(strategy):
        return strategy
    found = _STRATEGIES.get(strategy)
    if found is not None:
        return found
    names = " or ".join(repr(name) for name in _STRATEGIES)
    remedy = f"give {names}, or a function like those in holdfast.plugin.assign"
    for name, made in _NEEDING.items():
        if str(strategy) == name or (str(strategy).startswith(f"{name}-")):
            remedy = f"a name is not enough for it: give holdfast.plugin.assign's {made}"
    raise SettingError(field, strategy, remedy)


def goes_by_weight(strategy: Strategy) -> bool:
    """Whether a member's weight may count: RocketMQ's own know none."""
    if isinstance(strategy, MachineRoomNearby):
        return goes_by_weight(strategy.inner)
    return strategy not in (average, by_circle) and not isinstance(strategy, (ByConfig, ConsistentHash, MachineRoom))
