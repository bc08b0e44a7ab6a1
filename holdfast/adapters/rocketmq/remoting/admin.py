"""Admin: requests of tools and tests: topics, groups, lag, resets, connected members."""

from __future__ import annotations

import json
import re
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.rocketmq.remoting import codes, membership
from holdfast.adapters.rocketmq.remoting.answers import BrokerRefused, Shape, loose_json
from holdfast.adapters.rocketmq.remoting.client import as_fields
from holdfast.adapters.rocketmq.remoting.in_flight import Request
from holdfast.adapters.rocketmq.remoting.membership import read_queue
from holdfast.adapters.rocketmq.remoting.routes import QueueData
from holdfast.errors import SourceUnavailable, UnknownGroup, UnknownTopic
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from holdfast.adapters.rocketmq.remoting.answers import Answer
    from holdfast.adapters.rocketmq.remoting.client import RemotingClient
    from holdfast.adapters.rocketmq.remoting.membership import GroupConnections
    from holdfast.records import Partition
    from holdfast.timing import Deadline


#: How long a name server that lists no master, or does not know a change yet, is left alone before it is asked again.
_AGAIN_S = 0.2
#: A broker that grants less than is asked for (brokerPermission) says so each time; a change is not lost so often.
_GRANTED = 5


class Cluster(NamedTuple):
    """All brokers that a name server knows."""

    brokers: Mapping[str, Mapping[int, str]]  #: name -> addresses by broker id; 0 is the master
    clusters: Mapping[str, list[str]]  #: name -> names of its brokers


class QueueLag(NamedTuple):
    """A group's progress in a queue."""

    broker_offset: int
    consumer_offset: int  #: 0 also if the group has committed none; `query_offset` tells which
    last_ms: int  #: the store time of the last message before the consumer's offset


class QueueStats(NamedTuple):
    """A queue's log."""

    min_offset: int
    max_offset: int
    last_ms: int


class GroupSettings(NamedTuple):
    """A broker's settings of a group; None: not known (the broker is older than RocketMQ 5, or refuses the request)."""

    #: Queues of the group's retry topic. With 0, the broker acknowledges messages that are sent back or put into
    #: %DLQ%group, and drops them.
    retry_queues: int | None = None
    #: How often a message is delivered again before the broker puts it into %DLQ%group.
    retry_times: int | None = None


class Admin:
    """Sends the requests through a client, which the caller closes. Any thread; all methods wait, and raise
    SourceError."""

    def __init__(self, client: RemotingClient) -> None:
        self._client = client

    def cluster(self, deadline: Deadline) -> Cluster:
        """All brokers."""
        answer = self._client.ask_name_server(codes.Request.GET_BROKER_CLUSTER_INFO, {}, deadline)
        shape = Shape(f"the cluster by {answer.address}")
        body = shape.record(loose_json(answer.body), "the body")
        brokers: dict[str, Mapping[int, str]] = {}
        for name, value in shape.record(body.get("brokerAddrTable"), "brokerAddrTable").items():
            brokers[name] = shape.addresses(shape.record(value, name).get("brokerAddrs"), "brokerAddrs")
        clusters = {
            name: [shape.text(each, "a broker's name") for each in shape.array(value, name)]
            for name, value in shape.record(body.get("clusterAddrTable"), "clusterAddrTable").items()
        }
        return Cluster(brokers, clusters)

    def version(self, deadline: Deadline) -> str:
        """The lowest version of all masters, such as "5.5.0".

        A name server forgets a broker whose connection to it breaks, as on a busy machine, and lists the broker again
        at its next registration (`registerNameServerPeriod`, 30 s). A list without a master is asked for again until
        the deadline.
        """
        request = Request(codes.Request.GET_BROKER_RUNTIME_INFO, "a broker's version", {})
        found = []
        while not (masters := self._listed_masters(deadline)):
            if deadline.left_s() <= _AGAIN_S:
                raise SourceUnavailable("no broker has a master now")
            SYSTEM_CLOCK.sleep(_AGAIN_S)
        for address in masters:
            answer = self._client.network.ask(address, request, deadline).expect()
            shape = Shape(f"what {answer.address} says of itself")
            table = shape.record(shape.record(loose_json(answer.body), "the body").get("table"), "table")
            found.append(shape.text(table.get("brokerVersionDesc"), "brokerVersionDesc"))  # such as V5_5_0
        numbers = [tuple(int(part) for part in re.findall(r"\d+", each)) for each in found]
        return ".".join(map(str, min(numbers)))

    def _listed_masters(self, deadline: Deadline) -> list[str]:
        """Addresses."""
        brokers = self.cluster(deadline).brokers.values()
        return [addresses[codes.MASTER] for addresses in brokers if codes.MASTER in addresses]

    def create_topic(
        self,
        topic: str,
        deadline: Deadline,
        *,
        queues: int = 8,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int = codes.PERM_READ | codes.PERM_WRITE,
        brokers: Collection[str] | None = None,
        attributes: str = "",
    ) -> None:
        """Create or change a topic on these brokers (None: all). Name servers know it when this returns.

        A name server takes a broker's word on a topic that it knows only if it comes with a version of all topics that
        is new to it. Where a broker makes another topic meanwhile, as a group's retry topic by its first heartbeat, a
        change can be lost (RocketMQ 5.5, RouteInfoManager.isTopicConfigChanged). It is sent again then.

        Args:
            topic: its name.
            deadline: for all requests.
            queues: number of queues on each broker.
            read_queues: None: as `queues`. More than write_queues while queues are being removed.
            write_queues: None: as `queues`.
            perm: 4 read, 2 write; a broker that grants less itself (brokerPermission) keeps to that.
            brokers: their names.
            attributes: as RocketMQ 5 writes them ("+message.type=NORMAL").

        Raises:
            SourceUnavailable: a name server does not know the change by the deadline, or as for all methods.
        """
        read = queues if read_queues is None else read_queues
        write = queues if write_queues is None else write_queues
        fields = as_fields(
            {
                "topic": topic,
                "defaultTopic": "TBW102",
                "readQueueNums": read,
                "writeQueueNums": write,
                "perm": perm,
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0,
                "order": False,
                "attributes": attributes,
            }
        )
        request = Request(codes.Request.CREATE_TOPIC, f"creating {topic}", fields)
        for sent in count(1):
            changed = self._masters(request, brokers, deadline)
            wanted = [QueueData(name, read, write, perm) for name in changed]
            if self._known(topic, wanted, deadline, granted_less=sent >= _GRANTED):
                return
            if deadline.left_s() <= _AGAIN_S:
                raise SourceUnavailable(f"creating {topic}: brokers have it, and name servers do not in time")
            SYSTEM_CLOCK.sleep(_AGAIN_S)

    def delete_topic(self, topic: str, deadline: Deadline) -> None:
        """Remove a topic from all brokers and name servers."""
        fields = {"topic": topic}
        self._masters(Request(codes.Request.DELETE_TOPIC_IN_BROKER, f"deleting {topic}", fields), None, deadline)
        request = Request(codes.Request.DELETE_TOPIC_IN_NAME_SERVER, f"deleting {topic}", fields)
        for address in self._client.network.name_servers:
            self._client.network.ask(address, request, deadline).expect()

    def create_group(
        self,
        group: str,
        deadline: Deadline,
        *,
        consume_enable: bool = True,
        retry_queues: int = 1,
        retry_max_times: int = 16,
        brokers: Collection[str] | None = None,
    ) -> None:
        """Create or change a consumer group on these brokers (None: all)."""
        body = {
            "groupName": group,
            "consumeEnable": consume_enable,
            "consumeFromMinEnable": True,
            "consumeBroadcastEnable": True,
            "retryQueueNums": retry_queues,
            "retryMaxTimes": retry_max_times,
            "brokerId": 0,
            "whichBrokerWhenConsumeSlowly": 1,
            "notifyConsumerIdsChangedEnable": True,
        }
        code, what = codes.Request.CREATE_SUBSCRIPTION_GROUP, f"creating the group {group}"
        self._masters(Request(code, what, {}, json.dumps(body).encode()), brokers, deadline)

    def group_settings(self, group: str, broker: str, deadline: Deadline) -> GroupSettings:
        """A broker's settings of a group. With autoCreateSubscriptionGroup=true the request creates the group, as the
        first pull would. With false, the broker accepts no pull and no commit of an unknown group, but answers its
        heartbeats as if all were well; holdfast creates no group then.

        Raises UnknownGroup: the broker has no such group, and does not create it. Raises SourceError.
        """
        what = f"asking for the settings of {group}"
        request = Request(codes.Request.GET_SUBSCRIPTION_GROUP, what, {"group": group})
        answer = self._client.network.ask(self._client.master(broker), request, deadline)
        if answer.code in (codes.NOT_SUPPORTED, codes.NO_PERMISSION):
            return GroupSettings()
        shape = Shape(f"the settings of {group} by {answer.address}")
        try:
            body = shape.record(loose_json(answer.expect().body), "the body")
        except BrokerRefused as refusal:
            if refusal.code != codes.GROUP_NOT_EXIST:
                raise
            raise missing_group(group, broker) from refusal
        times = body.get("retryMaxTimes")
        queues = shape.number(body.get("retryQueueNums"), "retryQueueNums")
        return GroupSettings(queues, None if times is None else shape.number(times, "retryMaxTimes"))

    def delete_group(self, group: str, deadline: Deadline, *, clean_offsets: bool = True) -> None:
        """Remove a group from all brokers, by default with its offsets."""
        fields = as_fields({"groupName": group, "cleanOffset": clean_offsets})
        request = Request(codes.Request.DELETE_SUBSCRIPTION_GROUP, f"deleting the group {group}", fields)
        self._masters(request, None, deadline)

    def lag(self, group: str, topic: str, deadline: Deadline) -> dict[Partition, QueueLag]:
        """The group's progress in each queue of a topic."""
        answers = self._of_topic(topic, ask_lag(group, topic), deadline)
        return {queue: lag for answer in answers for queue, lag in read_lag(answer).items()}

    def topic_stats(self, topic: str, deadline: Deadline) -> dict[Partition, QueueStats]:
        """The log of each queue of a topic."""
        answers = self._of_topic(topic, ask_stats(topic), deadline)
        return {queue: stats for answer in answers for queue, stats in read_stats(answer).items()}

    def reset(self, group: str, queue: Partition, offset: int, deadline: Deadline) -> None:
        """Reset a group's offset so that members notice: the broker answers the next pull by MOVED, and ignores commits
        until then.

        Needs RocketMQ 5: older brokers do not know the field `offset`, and would send the members to the end instead.
        """
        fields = as_fields(
            {
                "group": group,
                "topic": queue.topic,
                "queueId": queue.number,
                "offset": offset,
                "timestamp": -1,
                "isForce": True,
            }
        )
        request = Request(codes.Request.RESET_CONSUMER_OFFSET, f"resetting {group} in {queue} to {offset}", fields)
        self._client.ask_master(queue, request, deadline).expect()

    def connections(self, broker: str, group: str, deadline: Deadline) -> GroupConnections | None:
        """The members of the group that are connected to this broker; None: there are none."""
        request = membership.connections(group)
        return membership.read_connections(self._client.network.ask(self._client.master(broker), request, deadline))

    def _known(self, topic: str, wanted: Iterable[QueueData], deadline: Deadline, *, granted_less: bool) -> bool:
        """Whether name servers have a topic's queues so. `granted_less`: with this permission or less."""
        try:
            route = self._client.route(topic, deadline, fresh=True)
        except UnknownTopic:
            return False
        found = {data.broker: data for data in route.queue_datas}
        return all(
            (data := found.get(each.broker)) is not None
            and (data.read, data.write) == (each.read, each.write)
            and (data.perm == each.perm or (granted_less and data.perm & ~each.perm == 0))
            for each in wanted
        )

    def _masters(self, request: Request, brokers: Collection[str] | None, deadline: Deadline) -> Collection[str]:
        """Ask the masters of these brokers (None: of all), each in its turn; the brokers' names."""
        known = self.cluster(deadline).brokers
        wanted = known if brokers is None else brokers
        masters = {name: address for name in wanted if (address := known.get(name, {}).get(codes.MASTER)) is not None}
        if not masters or (brokers is not None and len(masters) < len(wanted)):
            raise SourceUnavailable(f"{request.what}: no master of {sorted(wanted) or 'any broker'} is known now")
        for address in masters.values():
            self._client.network.ask(address, request, deadline).expect()
        return masters.keys()

    def _of_topic(self, topic: str, request: Request, deadline: Deadline) -> list[Answer]:
        """The answers of the masters of all brokers that have the topic."""
        route = self._client.route(topic, deadline)
        names = sorted({queue.broker for queue in route.queues()})
        return [self._client.network.ask(self._client.master(name), request, deadline) for name in names]


def ask_lag(group: str, topic: str) -> Request:
    """A request for a group's progress in the queues of a topic at one broker."""
    fields = {"consumerGroup": group, "topic": topic}
    return Request(codes.Request.GET_CONSUME_STATS, f"asking for the lag of {group}", fields)


def read_lag(answer: Answer) -> dict[Partition, QueueLag]:
    """The answer to `ask_lag`. Raises SourceError."""
    found = _table(answer.expect(), ("brokerOffset", "consumerOffset", "lastTimestamp"))
    return {queue: QueueLag(*numbers) for queue, numbers in found.items()}


def ask_stats(topic: str) -> Request:
    """A request for the logs of a topic at one broker."""
    return Request(codes.Request.GET_TOPIC_STATS, f"asking for the logs of {topic}", {"topic": topic})


def read_stats(answer: Answer) -> dict[Partition, QueueStats]:
    """The answer to `ask_stats`. Raises SourceError."""
    found = _table(answer.expect(), ("minOffset", "maxOffset", "lastUpdateTimestamp"))
    return {queue: QueueStats(*numbers) for queue, numbers in found.items()}


def _table(answer: Answer, names: tuple[str, str, str]) -> dict[Partition, tuple[int, int, int]]:
    """A table by queue, whose keys are objects."""
    shape = Shape(f"{answer.what} at {answer.address}")
    body = shape.record(loose_json(answer.body), "the body")
    found: dict[Partition, tuple[int, int, int]] = {}
    for key, value in shape.pairs(body.get("offsetTable"), "offsetTable"):
        numbers = [shape.number(shape.record(value, "a queue").get(name), name) for name in names]
        found[read_queue(shape, key)] = (numbers[0], numbers[1], numbers[2])
    return found


def missing_group(group: str, broker: str) -> UnknownGroup:
    """The error for a group that a broker does not have, with the remedy."""
    return UnknownGroup(
        f"{broker} has no consumer group {group!r}, and makes none for consumers "
        f"(autoCreateSubscriptionGroup=false): nothing can be read or committed there. Make it: mqadmin updateSubGroup "
        f"-n <name server> -c <cluster> -g {group}"
    )
