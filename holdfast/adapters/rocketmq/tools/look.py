"""A look at what a RocketMQSource would find, without joining its group: for a check before a deployment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.names import matching
from holdfast.adapters.rocketmq.remoting.admin import Admin
from holdfast.adapters.rocketmq.topics import Topics
from holdfast.tools.ports import Configured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.rocketmq.remoting import RemotingClient
    from holdfast.adapters.rocketmq.source import RocketMQSource
    from holdfast.plugin.retrying.keeping import Flaw
    from holdfast.timing import Deadline


class NameServersLook:
    """`tools.ports.SourceLook`, by the name servers and brokers. One thread.

    Args:
        addresses: of the name servers.
        client: not connected yet; closed with this.
    """

    default_port = None

    def __init__(self, addresses: str, client: RemotingClient) -> None:
        self.addresses, self._client = addresses, client

    def reach(self, deadline: Deadline) -> str:
        """Ask the name servers for the brokers, and one of these. Raises SourceError."""
        return f"RocketMQ {Admin(self._client).version(deadline)} by {self.addresses} answers"

    def configuration(self) -> Configured:
        """Judged when the source was made: there is no other client's to judge."""
        return Configured()

    def partitions(self, topic: str, deadline: Deadline) -> int:
        """How many queues a topic has that can be read. Raises UnknownTopic and other SourceErrors."""
        return len(self._client.route(topic, deadline, fresh=True).queues())

    def flaws(self, topic: str, delay_s: float | None, deadline: Deadline) -> Sequence[Flaw]:  # noqa: ARG002 - as it is called
        """Nothing: a broker has one time for all its topics, and it does not compact these."""
        return ()

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()


class RocketMQSourceLook(NameServersLook):
    """A look for a source that pulls, which knows patterns. One thread.

    Args:
        source: it need not be open.
    """

    def __init__(self, source: RocketMQSource) -> None:
        settings = source._settings  # noqa: SLF001 - the same package; they have credentials, so they are nobody else's
        super().__init__(settings.namesrv, settings.connect())
        self._topics = Topics(self._client, settings.group, settings.subscriptions)

    def matching(self, pattern: str, deadline: Deadline) -> Sequence[str]:
        """The topics that a pattern (^...) names now. Raises SourceError."""
        return sorted(matching(self._topics.all_names(deadline), [pattern]))
