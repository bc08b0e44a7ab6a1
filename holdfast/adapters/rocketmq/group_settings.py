"""Settings of a consumer group at a broker, and whether the broker has the group at all.

With autoCreateSubscriptionGroup=true the request creates the group, as the first pull would. With false, the broker
accepts no pull and no commit of an unknown group, but answers its heartbeats as if all were well. holdfast creates no
group then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.rocketmq.remoting import Admin, BrokerRefused, codes
from holdfast.errors import UnknownGroup

if TYPE_CHECKING:
    from holdfast.adapters.rocketmq.remoting import RemotingClient
    from holdfast.timing import Deadline


class GroupSettings(NamedTuple):
    """A broker's settings of a group; None: not known (the broker is older than RocketMQ 5, or refuses the request)."""

    #: Queues of the group's retry topic. With 0, the broker acknowledges messages that are sent back or put into
    #: %DLQ%group, and drops them.
    retry_queues: int | None = None
    #: How often a message is delivered again before the broker puts it into %DLQ%group.
    retry_times: int | None = None


def group_settings(client: RemotingClient, group: str, broker: str, deadline: Deadline) -> GroupSettings:
    """Ask a broker's master. Raises UnknownGroup: it has no such group, and does not create it. Raises SourceError."""
    try:
        found = Admin(client).group(group, broker, deadline)
    except BrokerRefused as refusal:
        if refusal.code != codes.GROUP_NOT_EXIST:
            raise
        raise missing(group, broker) from refusal
    return GroupSettings() if found is None else GroupSettings(*found)


def missing(group: str, broker: str) -> UnknownGroup:
    """The error for a group that a broker does not have, with the remedy."""
    return UnknownGroup(
        f"{broker} has no consumer group {group!r}, and makes none for who consumes "
        f"(autoCreateSubscriptionGroup=false): nothing can be read or committed there. Make it: mqadmin updateSubGroup "
        f"-n <name server> -c <cluster> -g {group}"
    )
