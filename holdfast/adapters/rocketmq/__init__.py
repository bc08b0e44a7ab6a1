"""RocketMQ sources and producer. A client library is imported when a source that needs one is constructed."""

from holdfast.adapters.rocketmq.grpc import LeasedSource
from holdfast.adapters.rocketmq.outgoing import Message
from holdfast.adapters.rocketmq.producer import RocketMQProducer
from holdfast.adapters.rocketmq.push import PushSource
from holdfast.adapters.rocketmq.source import RocketMQSource
from holdfast.adapters.rocketmq.unique_keys import identity_of

__all__ = ["LeasedSource", "Message", "PushSource", "RocketMQProducer", "RocketMQSource", "identity_of"]
