"""Finds strategies by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import SettingError
from holdfast.plugin.assign.rocketmq import ByConfig, ConsistentHash, MachineRoom, MachineRoomNearby, average, by_circle
from holdfast.plugin.assign.sticky import sticky

if TYPE_CHECKING:
    from holdfast.dedup.groups import Strategy

#: RocketMQ's strategies have the names that getName() of their classes returns.
_STRATEGIES: dict[str, Strategy] = {
    "sticky": sticky,
    "AVG": average,
    "AVG_BY_CIRCLE": by_circle,
    "CONSISTENT_HASH": ConsistentHash(),
}
#: Strategies with required arguments; all are in holdfast.plugin.assign.
_NEEDING = {
    "CONFIG": "ByConfig(queues={client id: [Partition(topic, number, broker), ...]})",
    "MACHINE_ROOM": 'MachineRoom(rooms={"hz1"}), for brokers that are named room@name',
    "MACHINE_ROOM_NEARBY": "MachineRoomNearby(broker_room=..., client_room=...)",
}


def strategy_of(strategy: str | Strategy, *, field: str = "strategy") -> Strategy:
    """The strategy with this name. A function is returned unchanged.

    Args:
        strategy: a name, or a function.
        field: the setting's name, for the error.

    Raises:
        SettingError: there is no such strategy, or it needs arguments.
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
    """Whether the strategy may use a member's weight. RocketMQ's own do not."""
    if isinstance(strategy, MachineRoomNearby):
        return goes_by_weight(strategy.inner)
    return strategy not in (average, by_circle) and not isinstance(strategy, (ByConfig, ConsistentHash, MachineRoom))
