"""PushSource: a LeasedSource over rocketmq-client-python's PushConsumer.

That client counts a message as sent back even if no broker has accepted it: of 20 messages sent back while the broker
was stopped, 12 were delivered again. Therefore no message is sent back while the client runs: records of a lost session
are taken from the inbox again. At the end, begun batches are completed (`Leased._wind_up`), and the rest is sent back
only after the brokers have answered.
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

#: The time for the client to stop fetching before callbacks are answered: an earlier answer would bring another batch.
_STOP_S = 0.1
_LOOK_S = 1.0
_LEAVE_S = 1.0
#: How often brokers are asked whether they list this member.
_MEMBER_S = 0.5

_log = logging.getLogger("holdfast")


class PushSource:
    """Consumes RocketMQ through rocketmq-client-python, whose native threads wait here for each record's outcome.

    A record is acknowledged when it is handled, known as done, or dead-lettered, never before. Without a business key
    it is identified by its UNIQ_KEY, which is the same in all deliveries. If only one broker has the topic, the first
    record of a queue waits for the member that has the queue, at most `queue_lease_wait_s`, since a native thread waits
    with it. Records that have run are skipped only by their claims: no offset says which log it belongs to. One thread
    owns the source: the app's.

    Limits of this client, which no wrapper can remove:

    - It delivers batches of up to 32 messages, one record after the other, on `threads` native threads. There is no
      order, not even within a queue, and at most `threads` records at once, so that batch handlers get no more.
    - It sends back whole batches: the records that are done and those that were not begun are delivered again too, 10 s
      later, from the retry topic. Claims skip the done ones. It happens at a stop if handlers are too slow for half of
      `drain_timeout_s`, and counts as one of the 16 deliveries after which the broker puts a message into %DLQ%.
    - It counts a message as sent back even if the broker has not accepted it. Therefore none is sent back before every
      broker has answered. If one does not, `close` leaves the client as it is, and the process must be killed.
    - It does not report that it loses a queue: until its batches end, two members have the queue. Claims decide, and
      promise P2 holds by them.
    - If the broker does not answer its request for the group's offset, it begins at the end of the queue. Skipped
      messages are reported (`SourceTrouble`), not recovered.
    - It reports neither a message's broker nor all of its properties: name the properties that handlers need.
      `record.partition.broker` is "", or "retry" for records from the group's retry topic.
    - A body ends at its first NUL byte, when sent and when received: no protobuf, no compressed values.
    - It must be ended by `shutdown()`, which `run()` calls. Killing the process does no harm.
    - It writes its own log under ~/logs/rocketmq-cpp.

    Args:
        namesrv: name servers, "host:port;host:port".
        group: the consumer group. Clustering only.
        tags: topic -> tag expression ("TagA || TagB"); a topic that is not named is read with all its messages. All
            members of the group must have the same: the store and the brokers refuse a member with others.
        properties: names of user properties that become headers, besides KEYS, TAGS, UNIQ_KEY and RECONSUME_TIMES.
        consume_from_where: where a group without an offset in a topic begins: "earliest" or "latest". If the group
            already reads a topic, its new queues are read from their beginning.
        threads: native threads, each with one batch.
        queue_lease_wait_s: seconds that a queue's first record waits for the member that has the queue.
        credentials: access and secret key, for brokers with access control.

    Raises:
        SettingError: a value that cannot work.
        MissingExtraError, ClientUnusable: the package or its native library is missing; with the remedy.
    """

    #: Records have no lease at the broker: a callback waits as long as the handler runs.
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
        self._left_behind: LeftBehindWatch | None = None
        self._client: PushClient | None = None
        self._fence: Fence | None = None
        self._topics: frozenset[str] = frozenset()
        #: What a callback of the client has raised; the next poll raises it in the loop's thread.
        self._fault: Exception | None = None
        self._alike: Alike | None = None
        self._coordinator: Coordinator | None = None
        self._open_store = self._in_group = False
        #: Asks the brokers until one lists this member.
        self._member_check = Upkeep(f"{group}-member")
        load_classic()

    @property
    def group(self) -> str:
        """The consumer group's name."""
        return self._group

    def dead_letters(self) -> RocketMQDeadLetters:
        """Make the sender of dead letters, to the same brokers. "%DLQ%" means the group's own dead letter topic."""
        return RocketMQDeadLetters(lambda: RemotingClient(self._namesrv, credentials=self._credentials), self._group)

    def check_settings(self, settings: Settings) -> None:
        """Check the app's settings. Raises SettingError: this client cannot keep the order of a partition."""
        self._open_store = settings.store_down == "open"
        if settings.ordering == "partition":
            raise SettingError(
                "ordering", "partition", "this client hands one queue's messages to several threads: use RocketMQSource"
            )

    def check_claims(self, claims: ClaimStore | None) -> None:
        """Note the store, in which members list their subscriptions."""
        self._coordinator = groups_beside(claims)

    # ---- LeasedSource
    def reach(self, topics: Collection[str], deadline: Deadline) -> None:
        """Wait for the name servers, and look for the topics. Raises SourceError; UnknownTopic names all missing
        topics."""
        self._servers_made().reach([topic for topic in topics if not topic.startswith("^")], deadline)

    @property
    def in_group(self) -> bool:
        """Whether a broker lists this member, or a message has arrived. The client itself does not report it."""
        return self._in_group

    def _servers_made(self) -> Servers:
        if self._servers is None:
            self._servers = Servers(self._namesrv, self._group, self._credentials)
        return self._servers

    def open(self, topics: Collection[str], fence: Fence, deadline: Deadline) -> None:
        """Check servers, topics and group, since the client would report no fault; then start it. Raises
        SourceUnavailable, UnknownTopic, UnknownGroup, SubscriptionDiffers, ClusterDiffers, LeftBehind, StoreError."""
        patterns = sorted(topic for topic in topics if topic.startswith("^"))
        if patterns:
            raise no_patterns(patterns[0])
        check_subscribed("tags", self._tags, topics)
        self._fence, self._topics = fence, frozenset(topics)
        subscriptions = {topic: self._tags.get(topic, "*") for topic in topics}
        # The client's default is the process id: the broker would take two consumers of one process for one.
        instance = f"{process_name()}-{uuid.uuid4().hex[:8]}"
        servers = self._servers_made()
        servers.check(subscriptions, deadline)
        self._left_behind = servers.left_behind()
        self._left_behind.start(deadline)
        self._alike = Alike(
            self._coordinator,
            self._group,
            client_id=f"{client_address()}@{instance}",
            records={push_record(self._group): subscription_text(topics, self._tags)},
            servers=servers.cluster,
            open_store=self._open_store,
        )
        self._alike.join(deadline)
        servers.commit_first_offsets(deadline, latest=self._latest)
        self._client = PushClient(
            namesrv=self._namesrv,
            group=self._group,
            instance=instance,
            threads=self._threads,
            credentials=self._credentials,
            subscriptions=subscriptions,
            take=self._take,
        )
        self._member_check.add(
            "whether the group has this member", lambda deadline: self._check_member(instance, deadline), _MEMBER_S
        )
        self._member_check.start()

    def _check_member(self, instance: str, deadline: Deadline) -> None:
        if not self._in_group:
            try:
                self._in_group = self._servers_checked.lists(instance, deadline)
            except (NotAuthorised, BrokerRefused):  # a tools' request, which may need more permissions than consuming
                self._in_group = True
        if self._in_group:
            self._member_check.stop(0.0)

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Return records from the client's callbacks. Raises SubscriptionDiffers, ClusterDiffers: found after this
        process had been out of the group for a while."""
        if self._alike is not None and self._alike.refused is not None:
            raise self._alike.refused
        fault, self._fault = self._fault, None
        if fault is not None:
            raise SourceUnavailable(f"a message could not be read, and was sent back with its batch: {fault!r}")
        return Batch(self._inbox.take(max_records, timeout_s))

    def identity(self, record: Record) -> str:
        """The message's identity: UNIQ_KEY and the checksum of the body."""
        return self._inbox.identity(record)

    def extend(self, records: Sequence[Record]) -> None:
        """Do nothing: there is no lease to renew."""

    def acknowledge(self, records: Sequence[Record]) -> Sequence[Record]:
        """Let the callbacks of these records return."""
        return self._inbox.acknowledge(records)

    def release(self, records: Iterable[Record]) -> None:
        """Put records back, for example those of a lost session: `poll` returns them again, without the broker."""
        self._inbox.give_again(records)

    def drain(self) -> None:
        """Do nothing: `wind_up` has stopped the client, and `close` sends waiting records back with their batches."""

    # ---- QueueLeasedSource
    def queue(self, record: Record) -> Partition | None:
        """The record's queue; None: one of the group's retry topic, or several brokers have the topic, and the client
        does not report which."""
        if self._servers is None or record.partition.broker == RETRY:
            return None
        return self._servers.queue(record.topic, record.partition.number)

    def position_name(self, queue: Partition) -> str:
        """The position's name, the same as RocketMQSource's: a group that changes the source keeps its positions."""
        return position_name(self._group, queue)

    def look(self, queue: Partition, deadline: Deadline) -> Seen:
        """The queue's log and the group's offset. Raises SourceError."""
        return self._servers_checked.look(queue, deadline, dense=self._tags.get(queue.topic, "*").strip() == "*")

    @property
    def _servers_checked(self) -> Servers:
        if self._servers is None:
            raise AssertionError(self)
        return self._servers

    # ---- BatchedSource
    def wind_up(self) -> None:
        """Begin the client's shutdown: it stops fetching, delivers the rest of the begun batches, and commits."""
        if self._client is not None:
            self._client.shut_down()

    @property
    def wound_up(self) -> bool:
        """Whether the client's shutdown has ended."""
        return self._client is None or self._client.wait(0.0)

    def close(self, deadline: Deadline) -> None:
        """Shut the client down. Records without an answer are sent back to the broker, each with its whole batch.

        If a broker does not answer, they are not sent back: the client would take them for accepted, and commit past
        them.
        """
        client, servers = self._client, self._servers
        if servers is None:
            return
        if client is None:  # the client was not started
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
        self._member_check.stop(deadline.left_s(_LEAVE_S))
        if self._alike is not None:
            self._alike.leave(Deadline(deadline.left_s(_LEAVE_S)))
        if self._left_behind is not None:
            self._left_behind.stop()
        servers.close()

    # ---- the client's threads
    def _take(self, message: Any) -> bool:  # noqa: ANN401 - see read()
        self._in_group = True
        try:
            return self._inbox.hand_over(*self._record(self._born_here(read(message, self._properties))))
        except BaseException as error:  # noqa: BLE001 - an error that leaves a callback is undefined in the C++ client
            self._fault = error if isinstance(error, Exception) else RuntimeError(repr(error))
            return False

    def _born_here(self, arrived: Arrived) -> Arrived:
        """Check the topic of a message. One from the retry topic names its origin itself, which may be a topic that
        this source does not read. Raises SourceError."""
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
