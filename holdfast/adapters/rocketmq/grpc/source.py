"""LeasedSource: RocketMQ 5 by message, over gRPC: its settings, its client and its dead letters."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.dead_letter import RocketMQDeadLetters
from holdfast.adapters.rocketmq.grpc.by_message import ByMessage
from holdfast.adapters.rocketmq.grpc.client import Client, load
from holdfast.adapters.rocketmq.grpc.config import GrpcConfig
from holdfast.adapters.rocketmq.remoting import RemotingClient
from holdfast.adapters.rocketmq.remoting.network import credentials_of
from holdfast.errors import SettingError
from holdfast.runtime import MACHINE
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Mapping


class LeasedSource(ByMessage):
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
