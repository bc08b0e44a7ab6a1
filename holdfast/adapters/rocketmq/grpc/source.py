"""LeasedSource: consumes RocketMQ 5 message by message, over gRPC. Joins settings, client and dead letters."""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.alike import Alike
from holdfast.adapters.rocketmq.dead_letter import RocketMQDeadLetters
from holdfast.adapters.rocketmq.grpc.broker_look import look_at_group
from holdfast.adapters.rocketmq.grpc.by_message import ByMessage
from holdfast.adapters.rocketmq.grpc.client import UNKNOWN_S, Client, load
from holdfast.adapters.rocketmq.grpc.config import GrpcConfig
from holdfast.adapters.rocketmq.left_behind import LeftBehindWatch
from holdfast.adapters.rocketmq.names import canonical, client_id, leased_record, retry_topic
from holdfast.adapters.rocketmq.reaching import look_for_all, reach
from holdfast.adapters.rocketmq.remoting import RemotingClient
from holdfast.adapters.rocketmq.remoting.network import credentials_of
from holdfast.dedup.groups_beside import groups_beside
from holdfast.errors import SettingError
from holdfast.runtime import MACHINE
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from holdfast.dedup.claims import ClaimStore
    from holdfast.dedup.coordinator import Coordinator
    from holdfast.plugin.ports import Batch
    from holdfast.plugin.settings import Settings
    from holdfast.records import Fence

_log = logging.getLogger("holdfast.rocketmq")

_LEAVE_S = 1.0
#: The time for brokers' answers at the start. Only checks need them; consuming does not.
_BROKERS_S = 3.0


class LeasedSource(ByMessage):
    """Consumes a group's messages through RocketMQ's proxy, by rocketmq-python-client (`holdfast-mq[rocketmq5]`).

    The broker delivers messages one by one. Each is hidden from other members for `invisible_s`, which is renewed while
    it is in the process, and is acknowledged by itself. It is claimed by its business key or, without one, by its
    UNIQ_KEY. One thread owns the source: the app's.

    Limits of this protocol:

    - The broker's group offset moves when a message is delivered, not when it is acknowledged: a lag from offsets is 0
      while messages are not handled.
    - Messages have no order, except on FIFO topics with a FIFO group. Other messages with the same key are handled in
      the order of their arrival in this process.
    - A message that is given back, or was in a process that died, counts as delivered. After 16 deliveries
      (`retryMaxTimes` of the group) the proxy puts it into `%DLQ%<group>`. A group with `retryMaxTimes=-1` gets no
      message: the proxy puts each into `%DLQ%<group>` at its first delivery.
    - A new group begins at the first message of a queue only if that has offset 0 and is in the broker's memory, else
      at the last message.

    Args:
        endpoints: the proxy, "host:port"; several separated by semicolons.
        group: the consumer group.
        invisible_s: how long a message is hidden after its delivery, in whole seconds, 10 to 43,200. Messages of a
            process that died are delivered again after that time.
        in_flight: with this many messages in the process, no more are requested.
        tags: topic -> "*" or tags as in "paid || refunded". All members of the group must have the same tags for a
            topic; a member with others is refused.
        access_key: for proxies with access control.
        secret_key: the same.
        namespace: the namespace of topics and group.
        tls: use TLS, with the certificates that gRPC trusts, or those of the environment variable
            GRPC_DEFAULT_SSL_ROOTS_FILE_PATH. Client certificates are not supported.
        namesrv: name servers, "host:port". Needed for dead letter topics: letters use the remoting protocol. Also used
            to check the group, and to tell this cluster from others that share the store.
        request_timeout_s: the timeout of all requests except long polls, in whole seconds. None: a sixth of the lease,
            3 to 10.

    Raises:
        SettingError: a value that cannot work.
        MissingExtraError, ClientUnusable: `import rocketmq` does not find rocketmq-python-client.
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
        config = self._config = GrpcConfig(
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
        super().__init__(config, lambda topics: Client(config, topics, SYSTEM_CLOCK), MACHINE)
        self._alike: Alike | None = None
        self._coordinator: Coordinator | None = None
        self._open_store = False
        self._brokers: RemotingClient | None = None
        self._left: LeftBehindWatch | None = None

    def check_settings(self, settings: Settings) -> None:
        """Note whether the app runs without its store (`store_down="open"`)."""
        self._open_store = settings.store_down == "open"

    def check_claims(self, claims: ClaimStore | None) -> None:
        """Note the store, in which members list their subscriptions."""
        self._coordinator = groups_beside(claims)

    def reach(self, topics: Collection[str], deadline: Deadline) -> None:
        """Wait for the proxy, and look for the topics. Raises SourceError; UnknownTopic names all missing topics."""
        named = [topic for topic in topics if not topic.startswith("^")]
        client = Client(self._config, named, SYSTEM_CLOCK)
        unknown: Deadline | None = None

        def may_come() -> bool:
            nonlocal unknown
            unknown = unknown or Deadline(deadline.left_s(UNKNOWN_S))  # from the proxy's first such answer
            return not unknown.passed

        reach(lambda: look_for_all(named, client.queues), self._config.endpoints, deadline, may_come)

    def open(self, topics: Collection[str], fence: Fence, deadline: Deadline) -> None:
        """Check the group at the brokers, since the proxy does not report these faults; then open as `ByMessage` does.
        Raises UnknownGroup, NothingDelivered, LeftBehind too."""
        self._look_at_brokers(topics, deadline)
        self._look_for_left(deadline)
        super().open(topics, fence, deadline)

    def admitted(self, topics: Collection[str], deadline: Deadline) -> None:
        """Join the record of members. Raises SubscriptionDiffers, ClusterDiffers, StoreError."""
        group, config = self.group, self._config
        self._alike = Alike(
            self._coordinator,
            group,
            client_id=client_id(None),
            # A record for each topic: members may have different topics, since each requests its own.
            records={leased_record(group, topic): f"{topic}:{canonical(config.expression(topic))}" for topic in topics},
            servers=self._cluster,
            open_store=self._open_store,
        )
        self._alike.join(deadline)

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Poll as `ByMessage` does. Raises SubscriptionDiffers, ClusterDiffers: found after this process had been out
        of the group for a while."""
        if self._alike is not None and self._alike.refused is not None:
            raise self._alike.refused
        return super().poll(max_records, timeout_s)

    def close(self, deadline: Deadline) -> None:
        """Close as `ByMessage` does, and leave the record of members. Idempotent."""
        super().close(deadline)
        if self._alike is not None:
            self._alike.leave(Deadline(deadline.left_s(_LEAVE_S)))
        if self._left is not None:
            self._left.stop()
        if self._brokers is not None:
            self._brokers.close()

    def _look_at_brokers(self, topics: Collection[str], deadline: Deadline) -> None:
        """Check the group at the brokers, if name servers are given. Raises UnknownGroup, NothingDelivered."""
        if self._config.namesrv is None:
            _log.info(
                "%s: without namesrv= it is not known whether the group exists and would get messages (one with "
                "retryMaxTimes=-1 gets none), whether it is new, whether it was consumed in another way whose failed "
                "messages wait in its retry topic, and which cluster this is",
                self.group,
            )
            return
        self._brokers = self._connect_to_brokers()
        group, *names = map(self._at_brokers, (self.group, *topics))
        look_at_group(self._brokers, group, names, Deadline(deadline.left_s(_BROKERS_S)))

    def _look_for_left(self, deadline: Deadline) -> None:
        """Look for messages left behind, if name servers are given. Raises LeftBehind: a proxy delivers no message from
        the group's retry topic."""
        if self._brokers is not None:
            group = self._at_brokers(self.group)
            self._left = LeftBehindWatch(
                self._brokers,
                group,
                [retry_topic(group)],
                readers="a RocketMQSource, a PushSource or RocketMQ's own consumer (remoting)",
                members_read=True,
            )
            self._left.start(Deadline(deadline.left_s(_BROKERS_S)))

    def _at_brokers(self, name: str) -> str:
        """The name of a topic or group at the brokers."""
        namespace = self._config.namespace
        return f"{namespace}%{name}" if namespace else name

    def _cluster(self) -> frozenset[str]:
        """The brokers' addresses. Not the proxy's: a cluster may have several proxies."""
        return frozenset() if self._brokers is None else self._brokers.servers()

    def dead_letters(self) -> RocketMQDeadLetters:
        """Make the sender of dead letters, with the same credentials. Raises SettingError: `namesrv` is not given."""
        if self._config.namesrv is None:
            raise SettingError("namesrv", None, "dead letters need the name servers, or Holdfast(dead_letters=...)")
        return RocketMQDeadLetters(self._connect_to_brokers, self.group)

    def _connect_to_brokers(self) -> RemotingClient:
        config = self._config
        credentials = credentials_of(config.access_key, config.secret_key)
        tls = ssl.create_default_context() if config.tls else None
        return RemotingClient(config.namesrv or "", credentials=credentials, tls=tls)


def _timeout_s(invisible_s: int) -> int:
    """The default request timeout. Two of them fit between two renewals; a shorter one would leave more messages in
    doubt."""
    return max(3, min(10, int(invisible_s) // 6))
