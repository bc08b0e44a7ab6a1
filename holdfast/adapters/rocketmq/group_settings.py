"""Settings of a consumer group as a broker has them, and whether it has the group at all.

The question makes the group, where the broker's operator lets whoever comes make one (autoCreateSubscriptionGroup), as
the first pull would. Where he does not, no pull and no commit is ever taken, and heartbeats are answered as if all were
well. Nothing here makes a group against that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.rocketmq.remoting import Admin, BrokerRefused, codes
from holdfast.errors import UnknownGroup

if TYPE_CHECKING:
    from holdfast.adapters.rocketmq.remoting import RemotingClient
    from holdfast.timing import Deadline


class GroupSettings(NamedTuple):
    """A broker's settings of a group; None = it does not tell (it is older than RocketMQ 5, or we may not ask)."""

    #: Queues of the group's retry topic. 0: what is sent back, or to be put away, is dropped, and all is said to be
    #: well.
    retry_queues: int | None = None
    #: How often a message is delivered again before it is put into %DLQ%group.
    retry_times: int | None = None


def group_settings(client: RemotingClient, group: str, broker: str, deadline: Deadline) -> GroupSettings:
    """Ask a broker's master. Raises UnknownGroup: it has no such group, and makes none. Raises SourceError."""
    try:
        found = Admin(client).group(group, broker, deadline)
    except BrokerRefused as refusal:
        if refusal.code != codes.GROUP_NOT_EXIST:
            raise
        raise missing(group, broker) from refusal
    return GroupSettings() if found is None else GroupSettings(*found)


def missing(group: str, broker: str) -> UnknownGroup:
    """The error that says what to do about a group that a broker does not have."""
    return UnknownGroup(
        f"{broker} has no consumer group {group!r}, and makes none for who consumes "
        f"(autoCreateSubscriptionGroup=false): nothing can be read or committed there. Make it: mqadmin updateSubGroup "
        f"-n <name server> -c <cluster> -g {group}"
    )
