"""Strategies that assign queues to members if no broker does. Pure; see `Strategy` in dedup/groups.py."""

from holdfast.plugin.assign.kafka import range_, round_robin
from holdfast.plugin.assign.members import Claim, Subscriber, last_owners
from holdfast.plugin.assign.names import goes_by_weight, strategy_of
from holdfast.plugin.assign.rocketmq import ByConfig, ConsistentHash, MachineRoom, MachineRoomNearby, average, by_circle
from holdfast.plugin.assign.sticky import sticky

__all__ = [
    "ByConfig",
    "Claim",
    "ConsistentHash",
    "MachineRoom",
    "MachineRoomNearby",
    "Subscriber",
    "average",
    "by_circle",
    "goes_by_weight",
    "last_owners",
    "range_",
    "round_robin",
    "sticky",
    "strategy_of",
]
