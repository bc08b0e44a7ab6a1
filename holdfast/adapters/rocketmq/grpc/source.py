"""LeasedSource: RocketMQ 5 by message, over gRPC: its settings, its client and its dead letters."""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.alike import Alike
from holdfast.adapters.rocketmq.cluster_servers import servers_of
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
#: How long a start waits for name servers, for what does not need them.
_BROKERS_S = 3.0


class LeasedSource(ByMessage):
    """Consumes a group's messages through RocketMQ's proxy, by rocketmq-python-client (`holdfast[rocketmq5]`).

    The broker hands out messages one by one; each is hidden from others for `invisible_s`, which is renewed while it is
    in the process, and acknowledged alone. What is claimed for it is its business key or, without one, its UNIQ_KEY.

    What does not hold here: the broker's group offset moves when a message is handed out, not when it is acknowledged,
    so a lag by offsets says 0 while messages are unhandled; messages have no order, but for FIFO topics with a FIFO
    group; the order of other messages with one key is that of their arrival here. What is given back, or left by a
    process that died, counts as a delivery: after 16 of them (`retryMaxTimes` of the group) the proxy puts the message
    into `%DLQ%<group>`. A group with `retryMaxTimes=-1` gets no message: the proxy puts each into `%DLQ%<group>` at its
    first delivery. A new group begins at the first message of a queue where that has the offset 0 and is in the
    broker's memory, else at the last one.

    Args:
        endpoints: of the proxy, "host:port"; several with semicolons between.
        group: the consumer group.
        invisible_s: how long a message is hidden after it came, in whole seconds, 10 to 43,200. Who dies is found out
            after that time.
        in_flight: messages in the process from which on no more are asked for.
        tags: by topic, "*" or tags as in "paid || refunded". The same of a topic in all members of the group: one with
            others is refused.
        access_key: where the proxy asks for it.
        secret_key: the same.
        namespace: of topics and group.
        tls: with the certificates that gRPC trusts; others by the environment variable
            GRPC_DEFAULT_SSL_ROOTS_FILE_PATH. The client knows no certificates of its own.
        namesrv: name servers, "host:port", where handlers have dead letter topics: letters go by the other protocol;
            and to tell this cluster from others that share the store.
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
        """Note whether the app waits for its store."""
        self._open_store = settings.store_down == "open"

    def check_claims(self, claims: ClaimStore | None) -> None:
        """Note the store, in which members say what they subscribe to."""
        self._coordinator = groups_beside(claims)

    def reach(self, topics: Collection[str], deadline: Deadline) -> None:
        """Wait for the proxy, and look for the topics. Raises SourceError: UnknownTopic names all that are missing."""
        named = [topic for topic in topics if not topic.startswith("^")]
        client = Client(self._config, named, SYSTEM_CLOCK)
        unknown: Deadline | None = None

        def may_come() -> bool:
            nonlocal unknown
            unknown = unknown or Deadline(deadline.left_s(UNKNOWN_S))  # since the proxy first said so
            return not unknown.passed

        reach(lambda: look_for_all(named, client.queues), self._config.endpoints, deadline, may_come)

    def open(self, topics: Collection[str], fence: Fence, deadline: Deadline) -> None:
        """Open as `ByMessage` does. Raises UnknownGroup, NothingDelivered, LeftBehind too: asked of the brokers first,
        since the proxy says none of it."""
        self._look_at_brokers(topics, deadline)
        self._look_for_left(deadline)
        super().open(topics, fence, deadline)

    def admitted(self, topics: Collection[str], deadline: Deadline) -> None:
        """Raises SubscriptionDiffers, ClusterDiffers, StoreError."""
        group, config = self.group, self._config
        self._alike = Alike(
            self._coordinator,
            group,
            client_id=client_id(None),
            # By topic: members may have other topics, since each asks for its own.
            records={leased_record(group, topic): f"{topic}:{canonical(config.expression(topic))}" for topic in topics},
            servers=self._cluster,
            open_store=self._open_store,
        )
        self._alike.join(deadline)

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Poll as `ByMessage` does. Raises SubscriptionDiffers, ClusterDiffers: found by a process that was out of the
        group for a while."""
        if self._alike is not None and self._alike.refused is not None:
            raise self._alike.refused
        return super().poll(max_records, timeout_s)

    def close(self, deadline: Deadline) -> None:
        """Close as `ByMessage` does, and leave the others. Idempotent."""
        super().close(deadline)
        if self._alike is not None:
            self._alike.leave(Deadline(deadline.left_s(_LEAVE_S)))
        if self._left is not None:
            self._left.stop()
        if self._brokers is not None:
            self._brokers.close()

    def _look_at_brokers(self, topics: Collection[str], deadline: Deadline) -> None:
        """Where name servers are given. Raises UnknownGroup, NothingDelivered."""
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
        """Where name servers are given. Raises LeftBehind: a proxy gives none of what was sent back in the group."""
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
        """A topic or group as brokers call it."""
        namespace = self._config.namespace
        return f"{namespace}%{name}" if namespace else name

    def _cluster(self) -> frozenset[str]:
        """Of the brokers alone: a proxy may be one of several of one cluster."""
        return frozenset() if self._brokers is None else servers_of(self._brokers)

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


def _timeout_s(invisible_s: int) -> int:
    """Two may pass between two renewals; an answer that is awaited for too short leaves a message in doubt."""
    return max(3, min(10, int(invisible_s) // 6))
