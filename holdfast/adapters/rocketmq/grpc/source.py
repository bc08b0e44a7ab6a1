"""LeasedSource: RocketMQ 5 by message, over gRPC. Threads of its own poll; nothing it is asked for blocks the loop."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.dead_letter import RocketMQDeadLetters
from holdfast.adapters.rocketmq.grpc.client import Client, load
from holdfast.adapters.rocketmq.grpc.config import GrpcConfig
from holdfast.adapters.rocketmq.grpc.leases import Leases
from holdfast.adapters.rocketmq.grpc.receiving import Receiving
from holdfast.adapters.rocketmq.remoting import RemotingClient
from holdfast.adapters.rocketmq.remoting.messages import UNIQUE_KEY
from holdfast.adapters.rocketmq.remoting.network import credentials_of
from holdfast.errors import SettingError, SourceUnavailable, UnknownTopic
from holdfast.plugin.ports import NOTHING, Batch
from holdfast.records import Partition, Record
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from holdfast.records import Fence
    from holdfast.timing import Deadline

#: As long as trouble lasts it is told so often.
_TELL_S = 10.0
_CLOSE_STEP_S = 0.05


class LeasedSource:
    """Consumes a group's messages through RocketMQ's proxy, by rocketmq-python-client (`holdfast[rocketmq5]`).

    The broker hands out messages one by one; each is hidden from others for `invisible_s`, which is renewed while it is
    in the process, and acknowledged alone. What is claimed for it is its business key or, without one, its UNIQ_KEY.

    What does not hold here: the broker's group offset moves when a message is handed out, not when it is acknowledged,
    so a lag by offsets says 0 while messages are unhandled; messages have no order, but for FIFO topics with a FIFO
    group; the order of other messages with one key is that of their arrival here. What is given back, or left by a
    process that died, counts as a delivery: after 16 of them (`retryMaxTimes` of the group) the proxy puts the message
    into `%DLQ%<group>`.

    Args:
        endpoints: of the proxy, "host:port"; several with semicolons between.
        group: the consumer group.
        invisible_s: how long a message is hidden after it came, in whole seconds, 10 to 43,200. Who dies is found out
            after that time.
        in_flight: messages in the process from which on no more are asked for.
        tags: by topic, "*" or tags as in "paid || refunded".
        access_key: where the proxy asks for it.
        secret_key: the same.
        namespace: of topics and group.
        tls: with the certificates that gRPC trusts; others by the environment variable
            GRPC_DEFAULT_SSL_ROOTS_FILE_PATH. The client knows no certificates of its own.
        namesrv: name servers, "host:port", where handlers have dead letter topics: letters go by the other protocol.
        request_timeout_s: how long the proxy may take to answer anything but a long poll, in whole seconds. None: a
            sixth of the lease, 3 to 10.

    Raises:
        SettingError: a value that cannot work.
        MissingExtraError, ClientUnusable: rocketmq-python-client is not what `import rocketmq` finds.
    """

    def __init__(
        self,
        endpoints: str,
        group: str,
        *,
        invisible_s: int = 30,
        in_flight: int = 128,
        tags: Mapping[str, str] | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        namespace: str = "",
        tls: bool = False,
        namesrv: str | None = None,
        request_timeout_s: int | None = None,
    ) -> None:
        self._config = GrpcConfig(
            endpoints=endpoints,
            group=group,
            invisible_s=invisible_s,
            in_flight=in_flight,
            tags=tags or {},
            access_key=access_key,
            secret_key=secret_key,
            namespace=namespace,
            tls=tls,
            namesrv=namesrv,
            request_timeout_s=_timeout_s(invisible_s) if request_timeout_s is None else request_timeout_s,
        )
        load()
        self._clock = SYSTEM_CLOCK
        self._client: Client | None = None
        self._fence: Fence
        self._leases: Leases
        self._receiving: Receiving
        self._told_at = -_TELL_S

    @property
    def group(self) -> str:
        """The consumer group's name."""
        return self._config.group

    @property
    def lease_s(self) -> float:
        """How long a message stays hidden after it came or was renewed."""
        return float(self._config.invisible_s)

    def dead_letters(self) -> RocketMQDeadLetters:
        """Letters go to the brokers with the same credentials. Raises SettingError: no name servers are given."""
        if self._config.namesrv is None:
            raise SettingError("namesrv", None, "dead letters need the name servers, or Holdfast(dead_letters=...)")
        return RocketMQDeadLetters(self._connect_to_brokers, self.group)

    def _connect_to_brokers(self) -> RemotingClient:
        config = self._config
        credentials = credentials_of(config.access_key, config.secret_key)
        tls = ssl.create_default_context() if config.tls else None
        return RemotingClient(config.namesrv or "", credentials=credentials, tls=tls)

    def open(self, topics: Collection[str], fence: Fence, deadline: Deadline) -> None:
        """Connect and begin to poll. Raises SourceError, SettingError (patterns; tags of other topics)."""
        for topic in topics:
            if topic.startswith("^"):
                raise SettingError("topics", topic, "RocketMQ's proxy knows no patterns: name the topics")
        for topic in self._config.tags:
            if topic not in topics:
                raise SettingError("tags", topic, "no handler has this topic")
        self._fence = fence
        self._client = Client(self._config, topics, self._clock)
        self._leases = Leases(self._client, self._config.invisible_s, self._clock)
        self._receiving = Receiving(self._client, self._leases, self._config, self._clock)
        self._client.open(deadline)
        self._receiving.tend()

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """What has come. Raises SourceError where nothing has: what the polls met, each 10 s while it lasts."""
        leases = self._leases
        self._receiving.wanted()
        leases.repeat()
        taken = leases.take(max_records)
        if not taken and timeout_s > 0:
            leases.wait(timeout_s)
            taken = leases.take(max_records)
        if not taken:
            self._tell_trouble()
            return NOTHING
        return Batch(
            [
                Record(
                    Partition(delivery.topic, 0),
                    number,
                    delivery.key,
                    delivery.body,
                    delivery.headers,
                    delivery.born_ms,
                    self._fence,
                )
                for number, delivery in taken
            ]
        )

    def identity(self, record: Record) -> str:
        """The message's UNIQ_KEY."""
        return (record.header(UNIQUE_KEY) or b"").decode()

    def extend(self, records: Sequence[Record]) -> None:
        """Begin to renew these and what waits, as far as it is due; look whether topics are on other brokers by now."""
        self._leases.renew(record.offset for record in records)
        self._leases.repeat()
        self._receiving.tend()

    def acknowledge(self, records: Sequence[Record]) -> Sequence[Record]:
        """Begin it. Replies with as many as came too late since the last call."""
        self._leases.done(record.offset for record in records)
        return records[: self._leases.late(len(records))]

    def release(self, records: Iterable[Record]) -> None:
        """Begin to give them back: they come again after some four seconds, the least that the broker can do."""
        self._leases.back(record.offset for record in records)

    def drain(self) -> None:
        """Give back what waits, and what polls under way still bring."""
        self._receiving.stop()
        self._leases.drain()

    def close(self, deadline: Deadline) -> None:
        """Wait for polls under way, 5 s at most, and for what is owed, then end the client. Idempotent.

        A poll that is cancelled loses what is on its way to us: nobody would have that before `invisible_s` are over.
        """
        client, self._client = self._client, None
        if client is None:
            return
        self.drain()
        while not (self._receiving.over and self._leases.settled) and not deadline.passed:
            self._leases.repeat()
            self._leases.wait(deadline.left_s(_CLOSE_STEP_S))
        client.close()
        self._receiving.join(1.0)

    def _tell_trouble(self) -> None:
        trouble = self._receiving.trouble()
        if trouble is None:
            return
        now = self._clock.now()
        if not trouble.retriable and not isinstance(trouble, UnknownTopic):  # a name server may be about to learn it
            raise trouble
        if now - self._told_at >= _TELL_S:
            self._told_at = now
            raise SourceUnavailable(str(trouble)) from trouble


def _timeout_s(invisible_s: int) -> int:
    """Two may pass between two renewals; an answer that is awaited for too short leaves a message in doubt."""
    return max(3, min(10, int(invisible_s) // 6))
