"""Who gets which queue, where no broker decides it. Pure; a strategy is any `Strategy` of dedup/groups.py."""

from holdfast.plugin.assign.average import average, by_circle
from holdfast.plugin.assign.by_config import ByConfig
from holdfast.plugin.assign.consistent_hash import ConsistentHash
from holdfast.plugin.assign.members import Claim, Subscriber, last_owners
from holdfast.plugin.assign.names import goes_by_weight, strategy_of
from holdfast.plugin.assign.range_ import range_
from holdfast.plugin.assign.rooms import MachineRoom, MachineRoomNearby
from holdfast.plugin.assign.round_robin import round_robin
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
