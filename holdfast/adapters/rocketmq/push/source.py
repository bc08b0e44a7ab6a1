"""PushSource: a LeasedSource over rocketmq-client-python's PushConsumer.

That client counts a message as sent back whether or not a broker has taken it (12 of 20 came again, of those given back
while the broker stood still). So nothing is handed back while it runs (what a lost session gives up is taken again from
the inbox), the batches that were begun are ended (`Leased._wind_up`), and the brokers are asked before the rest.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Any, Literal

from holdfast.adapters.rocketmq.alike import Alike
from holdfast.adapters.rocketmq.dead_letter import RocketMQDeadLetters
from holdfast.adapters.rocketmq.names import (
    check_subscribed,
    client_address,
    no_patterns,
    position_name,
    push_record,
    subscription_text,
)
from holdfast.adapters.rocketmq.packages import load_classic
from holdfast.adapters.rocketmq.push.client import RETRY, Arrived, PushClient, read
from holdfast.adapters.rocketmq.push.inbox import Inbox
from holdfast.adapters.rocketmq.push.servers import Servers
from holdfast.adapters.rocketmq.remoting import BrokerRefused, RemotingClient
from holdfast.adapters.rocketmq.upkeep import Upkeep
from holdfast.dedup.groups_beside import groups_beside
from holdfast.errors import NotAuthorised, SettingError, SourceError, SourceUnavailable
from holdfast.plugin.ports import Batch
from holdfast.process_name import process_name
from holdfast.records import Record
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from holdfast.adapters.rocketmq.left_behind import LeftBehindWatch
    from holdfast.adapters.rocketmq.remoting import Credentials
    from holdfast.dedup.claims import ClaimStore
    from holdfast.dedup.coordinator import Coordinator
    from holdfast.plugin.ports import Seen
    from holdfast.plugin.settings import Settings
    from holdfast.records import Fence, Partition

#: How long the client gets to stop fetching before callbacks are answered: one that returns earlier gets another batch.
_STOP_S = 0.1
_LOOK_S = 1.0
_LEAVE_S = 1.0
#: How often it is looked whether brokers have this member in the group yet.
_PLACE_S = 0.5

_log = logging.getLogger("holdfast")


class PushSource:
    """RocketMQ by rocketmq-client-python, whose native threads call back and wait here for what becomes of each record.

    A record is acknowledged when it is handled, known as done, or dead-lettered; never before. Without a business
    key it is known by its UNIQ_KEY, which stays the same when the message is delivered again. Where one broker has
    the topic, the first record of a queue waits for the member that has it (`queue_lease_wait_s` at most, since a
    native thread waits with it). What has run is skipped by its claim alone: no offset says which log it is of.

    What this client cannot do, whatever is wrapped around it:

    - It hands over batches of up to 32, one record after the other, in `threads` native threads: no order, also not
      in one queue; and no more than `threads` records at once, so that batch handlers get no more.
    - It gives back whole batches: what was done of one and what was not begun come again too, 10 s later and from
      the retry topic. The claims skip what was done. It happens at a stop whose handlers are too slow for half of
      `drain_timeout_s`, and counts as one of the 16 tries after which the broker puts a message into %DLQ%.
    - It counts a message as given back also where the broker has not taken it. So none is given back before every
      broker has answered; where none does, `close` leaves the client as it is, and the process has to be killed.
    - It does not say when it loses a queue: until its batches end, two members have it. Claims decide, P2 holds by
      them.
    - Where the broker does not answer its question for the group's offset, it begins at the end of the queue. What
      it skipped is told (`SourceTrouble`), not mended.
    - It tells neither a message's broker nor all of its properties: name those of yours that handlers need.
      `record.partition.broker` is "", or "retry" for records that came by the group's retry topic.
    - A body ends at its first NUL byte, when sent by it and when received: no protobuf, no compressed values.
    - It does not end without `shutdown()`, which `run()` calls; a process that is killed is no trouble.
    - It writes its own log under ~/logs/rocketmq-cpp.

    Args:
        namesrv: name servers, "host:port;host:port".
        group: the consumer group. Clustering only.
        tags: topic -> tag expression ("TagA || TagB"); all messages where a topic is not named. The same in all members
            of the group: one with others is refused, by the store and by the brokers.
        properties: names of user properties that come as headers, beside KEYS, TAGS, UNIQ_KEY and RECONSUME_TIMES.
        consume_from_where: where a group begins that has no offset in a topic: "earliest" or "latest". Queues that are
            new to a group that reads their topic are read from their beginning.
        threads: native threads, each with a batch in hand.
        queue_lease_wait_s: how long a queue's first record waits for the member that has the queue.
        credentials: access and secret key, where the broker asks for them.

    Raises:
        SettingError: a value that cannot work.
        MissingExtraError, ClientUnusable: the package, or its native library, is not there; says what to do.
    """

    #: A record has no lease at the broker: its callback waits for as long as its handler runs.
    lease_s = 30.0

    def __init__(
        self,
        *,
        namesrv: str,
        group: str,
        tags: Mapping[str, str] | None = None,
        properties: Sequence[str] = (),
        consume_from_where: Literal["earliest", "latest"] = "earliest",
        threads: int = 16,
        queue_lease_wait_s: float = 2.0,
        credentials: Credentials | None = None,
    ) -> None:
        for name, value in (("namesrv", namesrv), ("group", group)):
            if not value or any(map(str.isspace, value)):
                raise SettingError(name, value, "use a name without blanks" if name == "group" else 'use "host:port"')
        if consume_from_where not in {"earliest", "latest"}:
            raise SettingError("consume_from_where", consume_from_where, 'use "earliest" or "latest"')
        if threads < 1:
            raise SettingError("threads", threads, "use 1 or more")
        if queue_lease_wait_s < 0:
            raise SettingError("queue_lease_wait_s", queue_lease_wait_s, "use 0 (never wait) or more")
        self._group, self._namesrv, self._credentials = group, namesrv, credentials
        self._tags, self._properties, self._threads = dict(tags or {}), tuple(properties), threads
        self.queue_lease_wait_s = queue_lease_wait_s
        self._latest = consume_from_where == "latest"
        self._inbox = Inbox()
        self._servers: Servers | None = None
        self._left: LeftBehindWatch | None = None
        self._client: PushClient | None = None
        self._fence: Fence | None = None
        self._topics: frozenset[str] = frozenset()
        self._fault: Exception | None = None
        self._alike: Alike | None = None
        self._coordinator: Coordinator | None = None
        self._open_store = self._in_group = False
        self._place = Upkeep(f"{group}-place")
        load_classic()

    @property
    def group(self) -> str:
        """The consumer group's name."""
        return self._group

    def dead_letters(self) -> RocketMQDeadLetters:
        """Letters go to the same brokers; "%DLQ%" is the group's own topic of them."""
        return RocketMQDeadLetters(lambda: RemotingClient(self._namesrv, credentials=self._credentials), self._group)

    def check_settings(self, settings: Settings) -> None:
        """Raises SettingError for what this client cannot do."""
        self._open_store = settings.store_down == "open"
        if settings.ordering == "partition":
            raise SettingError(
                "ordering", "partition", "this client hands one queue's messages to several threads: use RocketMQSource"
            )

    def check_claims(self, claims: ClaimStore | None) -> None:
        """Note the store, in which members say what they subscribe to."""
        self._coordinator = groups_beside(claims)

    # ---- LeasedSource
    def reach(self, topics: Collection[str], deadline: Deadline) -> None:
        """Wait for the name servers, and look for the topics. Raises SourceError: UnknownTopic names all that are
        missing."""
        self._connected().reach([topic for topic in topics if not topic.startswith("^")], deadline)

    @property
    def in_group(self) -> bool:
        """Whether a broker has this member in the group, or a message has come. The client does not say it."""
        return self._in_group

    def _connected(self) -> Servers:
        if self._servers is None:
            self._servers = Servers(self._namesrv, self._group, self._credentials)
        return self._servers

    def open(self, topics: Collection[str], fence: Fence, deadline: Deadline) -> None:
        """Raises SourceUnavailable, UnknownTopic, UnknownGroup, SubscriptionDiffers, ClusterDiffers, LeftBehind,
        StoreError: asked before the client starts, which would say nothing."""
        patterns = sorted(topic for topic in topics if topic.startswith("^"))
        if patterns:
            raise no_patterns(patterns[0])
        check_subscribed("tags", self._tags, topics)
        self._fence, self._topics = fence, frozenset(topics)
        subscriptions = {topic: self._tags.get(topic, "*") for topic in topics}
        # By default the process id alone: two consumers of one process would be one to the broker.
        instance = f"{process_name()}-{uuid.uuid4().hex[:8]}"
        servers = self._connected()
        servers.open(subscriptions, deadline)
        self._left = servers.left_behind()
        self._left.start(deadline)
        self._alike = Alike(
            self._coordinator,
            self._group,
            client_id=f"{client_address()}@{instance}",
            records={push_record(self._group): subscription_text(topics, self._tags)},
            servers=servers.cluster,
            open_store=self._open_store,
        )
        self._alike.join(deadline)
        servers.begin(deadline, latest=self._latest)
        self._client = PushClient(
            namesrv=self._namesrv,
            group=self._group,
            instance=instance,
            threads=self._threads,
            credentials=self._credentials,
            subscriptions=subscriptions,
            take=self._take,
        )
        self._place.add("whether the group has this member", lambda left: self._look_for(instance, left), _PLACE_S)
        self._place.start()

    def _look_for(self, instance: str, deadline: Deadline) -> None:
        if not self._in_group:
            try:
                self._in_group = self._opened.lists(instance, deadline)
            except (NotAuthorised, BrokerRefused):  # a question of tools: it may be closed to who may consume
                self._in_group = True
        if self._in_group:
            self._place.stop(0.0)

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Return the messages that the client has called back with. Raises SubscriptionDiffers, ClusterDiffers: found
        by a process that was out of the group for a while."""
        if self._alike is not None and self._alike.refused is not None:
            raise self._alike.refused
        fault, self._fault = self._fault, None
        if fault is not None:
            raise SourceUnavailable(f"a message could not be read, and was sent back with its batch: {fault!r}")
        return Batch(self._inbox.take(max_records, timeout_s))

    def identity(self, record: Record) -> str:
        """UNIQ_KEY and the checksum of the body."""
        return self._inbox.identity(record)

    def extend(self, records: Sequence[Record]) -> None:
        """There is no lease to renew."""

    def acknowledge(self, records: Sequence[Record]) -> Sequence[Record]:
        """Let the callbacks of these records return."""
        return self._inbox.acknowledge(records)

    def release(self, records: Iterable[Record]) -> None:
        """Handed back by a session that was lost, say: they are delivered again from here, the broker is not asked."""
        self._inbox.give_again(records)

    def drain(self) -> None:
        """The client has been told by then; what waits goes back with its batch when it is closed."""

    # ---- QueueLeasedSource
    def queue(self, record: Record) -> Partition | None:
        """None: on the group's retry topic, or on one of several brokers, of which the client does not say which."""
        if self._servers is None or record.partition.broker == RETRY:
            return None
        return self._servers.queue(record.topic, record.partition.number)

    def position_name(self, queue: Partition) -> str:
        """The position's name, as RocketMQSource's: who moves from one to the other takes along what is done."""
        return position_name(self._group, queue)

    def look(self, queue: Partition, deadline: Deadline) -> Seen:
        """Raises SourceError."""
        return self._opened.look(queue, deadline, dense=self._tags.get(queue.topic, "*").strip() == "*")

    @property
    def _opened(self) -> Servers:
        if self._servers is None:
            raise AssertionError(self)
        return self._servers

    # ---- BatchedSource
    def wind_up(self) -> None:
        """The client stops fetching, hands over the rest of the batches that it has begun, and commits."""
        if self._client is not None:
            self._client.shut_down()

    @property
    def wound_up(self) -> bool:
        """Whether it has."""
        return self._client is None or self._client.wait(0.0)

    def close(self, deadline: Deadline) -> None:
        """Shut the client down. What has no answer yet is sent back to the broker, each with its whole batch.

        Not where a broker does not answer: the client would go on as if it had taken them, and commit behind them.
        """
        client, servers = self._client, self._servers
        if servers is None:
            return
        if client is None:  # it has not begun
            self._end(servers, deadline)
            return
        client.shut_down()
        if not client.wait(_STOP_S):
            while not servers.reachable(Deadline(deadline.left_s(_LOOK_S))):
                if deadline.passed:
                    _log.error(
                        "%s: no answer from the brokers, so what is in hand cannot be given back without losing it. "
                        "The client is left as it is, and this process does not end: kill it, and nothing is lost",
                        self._group,
                    )
                    return
        self._inbox.close()
        if not client.wait(deadline.left_s()):
            _log.warning("%s: the client is still shutting down: the process ends afterwards", self._group)
        self._end(servers, deadline)

    def _end(self, servers: Servers, deadline: Deadline) -> None:
        self._place.stop(deadline.left_s(_LEAVE_S))
        if self._alike is not None:
            self._alike.leave(Deadline(deadline.left_s(_LEAVE_S)))
        if self._left is not None:
            self._left.stop()
        servers.close()

    # ---- the client's threads
    def _take(self, message: Any) -> bool:  # noqa: ANN401 - see read()
        self._in_group = True
        try:
            return self._inbox.hand_over(*self._record(self._born_here(read(message, self._properties))))
        except BaseException as error:  # noqa: BLE001 - what leaves a callback has no defined effect in the client
            self._fault = error if isinstance(error, Exception) else RuntimeError(repr(error))
            return False

    def _born_here(self, arrived: Arrived) -> Arrived:
        """Read where a message of the retry topic was born, as it says itself: that may be a topic of others, or
        none."""
        topic = arrived.partition.topic
        if topic in self._topics:
            return arrived
        raise SourceError(f"{arrived.identity} says that it was born in {topic!r}, which is not read here")

    def _record(self, arrived: Arrived) -> tuple[Record, str]:
        if self._fence is None:
            raise AssertionError(arrived)
        return (
            Record(
                arrived.partition,
                arrived.offset,
                arrived.key,
                arrived.body,
                arrived.headers,
                arrived.born_ms,
                self._fence,
            ),
            arrived.identity,
        )
