"""PushSourceLook: checks the servers and topics of a PushSource without joining its group, before a deployment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.names import no_patterns
from holdfast.adapters.rocketmq.remoting import RemotingClient
from holdfast.adapters.rocketmq.tools.look import NameServersLook

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.rocketmq.push.source import PushSource
    from holdfast.timing import Deadline


class PushSourceLook(NameServersLook):
    """`tools.ports.SourceLook`. One thread.

    Args:
        source: the source; it need not be open.
    """

    def __init__(self, source: PushSource) -> None:
        namesrv, credentials = source._namesrv, source._credentials  # noqa: SLF001 - the same package
        super().__init__(namesrv, RemotingClient(namesrv, credentials=credentials))

    def matching(self, pattern: str, deadline: Deadline) -> Sequence[str]:  # noqa: ARG002 - as it is called
        """Raises SourceError, as the start of the source does: patterns are not supported."""
        raise no_patterns(pattern)
