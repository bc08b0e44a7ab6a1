"""A small client of RocketMQ's remoting protocol. Needs only the standard library."""

from holdfast.adapters.rocketmq.remoting.admin import Admin, Cluster, QueueLag, QueueStats
from holdfast.adapters.rocketmq.remoting.answers import (
    Answer,
    BrokerBusy,
    BrokerRefused,
    CommitIgnored,
    Malformed,
    NoAnswer,
    NotTrusted,
)
from holdfast.adapters.rocketmq.remoting.client import Notice, RemotingClient
from holdfast.adapters.rocketmq.remoting.decoding import decode_messages
from holdfast.adapters.rocketmq.remoting.membership import Consumer, GroupConnections, GroupMember, Subscription
from holdfast.adapters.rocketmq.remoting.messages import StoredMessage
from holdfast.adapters.rocketmq.remoting.network import Credentials
from holdfast.adapters.rocketmq.remoting.queues import PullAnswer, PullRequest, PullStatus
from holdfast.adapters.rocketmq.remoting.routes import QueueData, Route
from holdfast.adapters.rocketmq.remoting.sending import Message, Sender, SendStatus, Sent

__all__ = [
    "Admin",
    "Answer",
    "BrokerBusy",
    "BrokerRefused",
    "Cluster",
    "CommitIgnored",
    "Consumer",
    "Credentials",
    "GroupConnections",
    "GroupMember",
    "Malformed",
    "Message",
    "NoAnswer",
    "NotTrusted",
    "Notice",
    "PullAnswer",
    "PullRequest",
    "PullStatus",
    "QueueData",
    "QueueLag",
    "QueueStats",
    "RemotingClient",
    "Route",
    "SendStatus",
    "Sender",
    "Sent",
    "StoredMessage",
    "Subscription",
    "decode_messages",
]
