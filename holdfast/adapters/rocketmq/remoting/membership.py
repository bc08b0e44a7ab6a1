"""Requests about a group's members: 34, 35, 38, 41, 42, 203."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.adapters.rocketmq.remoting import codes
from holdfast.adapters.rocketmq.remoting.answers import Shape, loose_json
from holdfast.adapters.rocketmq.remoting.in_flight import Request
from holdfast.errors import SettingError
from holdfast.plugin.assign.java import java_hash
from holdfast.records import Partition
from holdfast.timing import wall_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.adapters.rocketmq.remoting.answers import Answer

ALL: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A group's subscription to a topic. The group has only one: a heartbeat with another replaces it for all members.

    Args:
        topic: its name.
        expression: "*", or tags separated by "||"; with kind SQL92 an SQL condition, if the broker allows it.
        kind: TAG or SQL92.
        version: milliseconds; a higher one is newer. Members with the same subscription may have different versions.
    """

    topic: str
    expression: str = ALL
    kind: str = "TAG"
    version: int = field(default_factory=wall_ms, compare=False)

    def __post_init__(self) -> None:
        if not self.topic:
            raise SettingError("topic", self.topic, "a topic's name is wanted")
        if self.kind == "TAG" and self.expression != ALL and not self.tags:
            raise SettingError("expression", self.expression, "'*', or tags parted by '||'")

    @property
    def tags(self) -> frozenset[str]:
        """The tags; empty: all messages."""
        if self.kind != "TAG" or self.expression == ALL:
            return frozenset()
        return frozenset(tag.strip() for tag in self.expression.split("||")) - {""}

    def data(self) -> dict[str, Any]:
        """The subscription as a heartbeat has it."""
        tags = sorted(self.tags)
        return {
            "topic": self.topic,
            "subString": self.expression,
            "tagsSet": tags,
            "codeSet": [java_hash(tag) for tag in tags],
            "subVersion": self.version,
            "expressionType": self.kind,
            "classFilterMode": False,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """A group that this client is a member of, as RocketMQ's tools show it."""

    group: str
    subscriptions: tuple[Subscription, ...]
    consume_type: str = "CONSUME_PASSIVELY"
    model: str = "CLUSTERING"
    start: str = "CONSUME_FROM_LAST_OFFSET"

    def data(self) -> dict[str, Any]:
        """The consumer as a heartbeat has it."""
        return {
            "groupName": self.group,
            "consumeType": self.consume_type,
            "messageModel": self.model,
            "consumeFromWhere": self.start,
            "subscriptionDataSet": [each.data() for each in self.subscriptions],
            "unitMode": False,
        }


def heartbeat(client_id: str, consumers: Iterable[Consumer], producers: Iterable[str]) -> Request:
    """A heartbeat, with the client's groups and subscriptions."""
    body = {
        "clientID": client_id,
        "consumerDataSet": [each.data() for each in consumers],
        "producerDataSet": [{"groupName": group} for group in producers],
    }
    return Request(codes.Request.HEART_BEAT, "a heartbeat", {}, json.dumps(body).encode())


def unregister(client_id: str, group: str, *, producer: bool) -> Request:
    """A request of a member that leaves."""
    name = "producerGroup" if producer else "consumerGroup"
    return Request(codes.Request.UNREGISTER_CLIENT, f"leaving {group}", {"clientID": client_id, name: group})


def members(group: str) -> Request:
    """A request for the members of a group."""
    return Request(
        codes.Request.GET_CONSUMER_LIST_BY_GROUP, f"asking for the members of {group}", {"consumerGroup": group}
    )


def read_members(answer: Answer) -> list[str] | None:
    """Client ids; None: the answer has code 1, which means no members, or a failure. Raises SourceError."""
    if answer.code == codes.SYSTEM_ERROR:
        return None
    answer.expect()
    shape = Shape(f"the members by {answer.address}")
    body = shape.record(loose_json(answer.body) if answer.body else None, "the body")
    return [shape.text(each, "consumerIdList") for each in shape.array(body.get("consumerIdList"), "consumerIdList")]


class GroupMember(NamedTuple):
    """One member of a group, as a broker lists it. A client with two connections is listed twice."""

    client_id: str
    address: str
    language: str
    version: int


class GroupConnections(NamedTuple):
    """A group as a broker sees it."""

    members: list[GroupMember]
    subscriptions: Mapping[str, str]  #: topic -> expression
    consume_type: str
    model: str


def connections(group: str) -> Request:
    """A request for the members of a group with details. Meant for tools: it may need more permissions."""
    return Request(
        codes.Request.GET_CONSUMER_CONNECTIONS, f"asking for the connections of {group}", {"consumerGroup": group}
    )


def read_connections(answer: Answer) -> GroupConnections | None:
    """The group's members; None: there are none. Raises SourceError."""
    if answer.code == codes.CONSUMER_NOT_ONLINE:
        return None
    answer.expect()
    shape = Shape(f"the connections by {answer.address}")
    body = shape.record(loose_json(answer.body), "the body")
    found: list[GroupMember] = []
    for one in shape.array(body.get("connectionSet"), "connectionSet"):
        each = shape.record(one, "a connection")
        name, address, language = (shape.text(each.get(key), key) for key in ("clientId", "clientAddr", "language"))
        found.append(GroupMember(name, address, language, shape.number(each.get("version"), "version")))
    subscriptions = {
        topic: shape.text(shape.record(each, topic).get("subString"), "subString")
        for topic, each in shape.record(body.get("subscriptionTable"), "subscriptionTable").items()
    }
    kind, model = (str(body.get(name) or "") for name in ("consumeType", "messageModel"))
    return GroupConnections(found, subscriptions, kind, model)


class RunningInfo(NamedTuple):
    """A client's description of itself, requested through a broker."""

    subscriptions: Mapping[str, str]  #: topic -> expression
    queues: frozenset[Partition]  #: the queues that it reads
    properties: Mapping[str, str]  #: PROP_CLIENT_VERSION and others


def running(group: str, client_id: str) -> Request:
    """A request for a member's subscriptions and queues, which the broker forwards to the member. A client that does
    not support the request does not answer, and the broker waits."""
    fields = {"consumerGroup": group, "clientId": client_id, "jstackEnable": "false"}
    return Request(codes.Request.GET_CONSUMER_RUNNING_INFO, f"asking {client_id} what it reads", fields)


def read_running(answer: Answer) -> RunningInfo:
    """The answer to `running`. Raises SourceError: the member is not connected, or does not answer."""
    answer.expect()
    shape = Shape(f"{answer.what} by {answer.address}")
    body = shape.record(loose_json(answer.body), "the body")
    subscriptions = {}
    for one in shape.array(body.get("subscriptionSet"), "subscriptionSet"):
        each = shape.record(one, "a subscription")
        subscriptions[shape.text(each.get("topic"), "topic")] = shape.text(each.get("subString"), "subString")
    queues = frozenset(read_queue(shape, key) for key, _ in shape.pairs(body.get("mqTable"), "mqTable"))
    properties = {str(name): str(value) for name, value in shape.record(body.get("properties"), "properties").items()}
    return RunningInfo(subscriptions, queues, properties)


def read_reset(body: bytes) -> dict[Partition, int]:
    """The offsets at which members must go on after a reset (request 220). Brokers send Java clients a table whose keys
    are queues, and other clients a list. Raises SourceError."""
    shape = Shape("a reset by the broker")
    table = shape.record(loose_json(body), "the body").get("offsetTable")
    if isinstance(table, list) and all(isinstance(each, dict) for each in table):
        return {read_queue(shape, each): shape.number(each.get("offset"), "offset") for each in table}
    pairs = shape.pairs(table, "offsetTable")
    return {read_queue(shape, key): shape.number(offset, "an offset") for key, offset in pairs}


def topics_of(group: str) -> Request:
    """A request for the topics in which a group has offsets."""
    return Request(codes.Request.QUERY_TOPICS_BY_CONSUMER, f"asking for the topics of {group}", {"group": group})


def read_topics(answer: Answer) -> list[str]:
    """The answer to `topics_of`. Raises SourceError."""
    return _read_names(answer, "topicList")


def readers_of(topic: str) -> Request:
    """A request for the groups that have members or offsets in a topic."""
    return Request(codes.Request.QUERY_TOPIC_CONSUME_BY_WHO, f"asking who reads {topic}", {"topic": topic})


def read_readers(answer: Answer) -> list[str]:
    """The answer to `readers_of`. Raises SourceError."""
    return _read_names(answer, "groupList")


def _read_names(answer: Answer, field: str) -> list[str]:
    answer.expect()
    shape = Shape(f"{answer.what} by {answer.address}")
    body = shape.record(loose_json(answer.body) if answer.body else None, "the body")
    return [shape.text(each, field) for each in shape.array(body.get(field), field)]


def lock(client_id: str, group: str, queues: Sequence[Partition], *, undo: bool = False) -> Request:
    """A request for the locks of ordered consumers. They end after 60 s, and are advisory: other clients can pull."""
    body = {
        "consumerGroup": group,
        "clientId": client_id,
        "onlyThisBroker": False,
        "mqSet": [{"topic": each.topic, "brokerName": each.broker, "queueId": each.number} for each in queues],
    }
    code = codes.Request.UNLOCK_BATCH_MQ if undo else codes.Request.LOCK_BATCH_MQ
    what = "unlocking" if undo else "locking"
    return Request(code, f"{what} {len(queues)} queues for {group}", {}, json.dumps(body).encode())


def read_locked(answer: Answer) -> list[Partition]:
    """The queues that are locked for this client now. Raises SourceError."""
    answer.expect()
    shape = Shape(f"the locks by {answer.address}")
    body = shape.record(loose_json(answer.body) if answer.body else None, "the body")
    return sorted(read_queue(shape, each) for each in shape.array(body.get("lockOKMQSet"), "lockOKMQSet"))


def read_queue(shape: Shape, value: object) -> Partition:
    """Read Java's MessageQueue from JSON. Raises Malformed."""
    data = shape.record(value, "a queue")
    return Partition(
        shape.text(data.get("topic"), "topic"),
        shape.number(data.get("queueId"), "queueId"),
        shape.text(data.get("brokerName"), "brokerName"),
    )
