"""LeasedSourceLook: checks the servers and topics of a LeasedSource without joining its group, before a deployment."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.grpc.client import Client
from holdfast.adapters.rocketmq.names import no_patterns
from holdfast.errors import UnknownTopic
from holdfast.timing import SYSTEM_CLOCK
from holdfast.tools.ports import Configured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.rocketmq.grpc.source import LeasedSource
    from holdfast.plugin.retrying.keeping import Flaw
    from holdfast.timing import Deadline

#: A topic that does not exist. A request for its route shows whether the proxy answers.
_NO_TOPIC = "holdfast-asks-whether-you-answer"


class LeasedSourceLook:
    """`tools.ports.SourceLook` through the proxy. One thread; each request takes `request_timeout_s` at most.

    Args:
        source: the source; it need not be open.
    """

    default_port = None

    def __init__(self, source: LeasedSource) -> None:
        config = source._config  # noqa: SLF001 - the same package; private, since it has credentials
        self.addresses = config.endpoints
        self._client = Client(config, (), SYSTEM_CLOCK)

    def reach(self, deadline: Deadline) -> str:
        """Log in at the proxy. Raises SourceError."""
        with suppress(UnknownTopic):
            self.partitions(_NO_TOPIC, deadline)
        return f"RocketMQ's proxy at {self.addresses} answers"

    def configuration(self) -> Configured:
        """Nothing to check: the source has validated its settings at construction."""
        return Configured()

    def partitions(self, topic: str, deadline: Deadline) -> int:  # noqa: ARG002 - the client has a bound of its own
        """The number of a topic's readable queues. Raises UnknownTopic and other SourceErrors."""
        return self._client.queues(topic)

    def matching(self, pattern: str, deadline: Deadline) -> Sequence[str]:  # noqa: ARG002 - as it is called
        """Raises SourceError, as the start of the source does: patterns are not supported."""
        raise no_patterns(pattern)

    def flaws(self, topic: str, delay_s: float | None, deadline: Deadline) -> Sequence[Flaw]:  # noqa: ARG002 - as it is called
        """Empty: brokers have one retention for all topics, and do not compact these."""
        return ()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
