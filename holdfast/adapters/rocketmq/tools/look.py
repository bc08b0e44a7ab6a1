"""RocketMQSourceLook: checks the servers and topics of a source without joining its group, before a deployment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.names import matching
from holdfast.adapters.rocketmq.remoting.admin import Admin
from holdfast.adapters.rocketmq.topics import Topics
from holdfast.errors import SettingError
from holdfast.tools.ports import Configured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.rocketmq.remoting import RemotingClient
    from holdfast.adapters.rocketmq.source import RocketMQSource
    from holdfast.plugin.retrying.keeping import Flaw
    from holdfast.timing import Deadline


class NameServersLook:
    """`tools.ports.SourceLook` through the name servers and brokers. One thread.

    Args:
        addresses: the name servers' addresses.
        client: a client without connections; `close` closes it.
    """

    default_port = None

    def __init__(self, addresses: str, client: RemotingClient) -> None:
        self.addresses, self._client = addresses, client

    def reach(self, deadline: Deadline) -> str:
        """Ask the name servers for the brokers, and one of these. Raises SourceError."""
        return f"RocketMQ {Admin(self._client).version(deadline)} by {self.addresses} answers"

    def configuration(self) -> Configured:
        """Nothing to check: the source has validated its settings at construction."""
        return Configured()

    def partitions(self, topic: str, deadline: Deadline) -> int:
        """The number of a topic's readable queues. Raises UnknownTopic and other SourceErrors."""
        return len(self._client.route(topic, deadline, fresh=True).queues())

    def flaws(self, topic: str, delay_s: float | None, deadline: Deadline) -> Sequence[Flaw]:  # noqa: ARG002 - as it is called
        """Empty: brokers have one retention for all topics, and do not compact these."""
        return ()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def login_of(source: RocketMQSource) -> dict[str, str]:
    """Name servers and credentials as the program has them: for tools that ask the same servers. Raises SettingError:
    its TLS context is the program's own."""
    settings = source._settings  # noqa: SLF001 - the same package; private, since they have credentials
    if settings.tls is not None:
        raise SettingError(
            "--app", None, "its TLS context cannot be read: give --rocketmq-config, and --app for the rest"
        )
    login = {"namesrv": settings.namesrv, "access_key": settings.access_key, "secret_key": settings.secret_key}
    return {name: value for name, value in login.items() if value is not None}


class RocketMQSourceLook(NameServersLook):
    """The look for a RocketMQSource, which supports patterns. One thread.

    Args:
        source: the source; it need not be open.
    """

    def __init__(self, source: RocketMQSource) -> None:
        settings = source._settings  # noqa: SLF001 - the same package; private, since they have credentials
        super().__init__(settings.namesrv, settings.connect())
        self._topics = Topics(self._client, settings.group, settings.subscriptions)

    def matching(self, pattern: str, deadline: Deadline) -> Sequence[str]:
        """The topics that a pattern (^...) matches now. Raises SourceError."""
        return sorted(matching(self._topics.all_names(deadline), [pattern]))
