"""From a few words on a group to the configuration of its clients and brokers, each key with its reason. Pure."""

from holdfast.tools.advice.emit.kafka import KafkaBrokers, for_kafka
from holdfast.tools.advice.emit.render import as_properties, as_python, native
from holdfast.tools.advice.emit.rocketmq import for_rocketmq
from holdfast.tools.advice.emit.sheet import Sheet
from holdfast.tools.advice.emit.workload import Workload

__all__ = [
    "KafkaBrokers",
    "Sheet",
    "Workload",
    "as_properties",
    "as_python",
    "for_kafka",
    "for_rocketmq",
    "native",
]
