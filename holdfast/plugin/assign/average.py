"""RocketMQ's default and its sister: the same number of each topic for each client, in runs or dealt out."""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING

from holdfast.plugin.assign.topics import by_topic, in_order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.dedup.groups import GroupMember
    from holdfast.records import Partition


def average(
    members: Sequence[GroupMember],
    queues: Sequence[Partition],
    previous: Mapping[Partition, str],  # noqa: ARG001 - it forgets
) -> dict[Partition, str]:
    """AllocateMessageQueueAveragely ("AVG"): what RocketMQ's own clients of these client ids would do; weights and the
    previous plan do not count.

    The first clients in order get one queue more, of each topic: with many topics they have more in all, and a client
    that comes or goes moves most queues of all others. For comparison, and for groups that rely on runs of queues.
    """
    ordered = in_order(members)
    owners: dict[Partition, str] = {}
    for found in by_topic(queues).values():
        each, more = divmod(len(found), len(ordered))
        rest = iter(found)
        for i, member in enumerate(ordered[: len(found)]):
            owners.update(dict.fromkeys(islice(rest, each + (i < more)), member.id))
    return owners


def by_circle(
    members: Sequence[GroupMember],
    queues: Sequence[Partition],
    previous: Mapping[Partition, str],  # noqa: ARG001 - it forgets
) -> dict[Partition, str]:
    """AllocateMessageQueueAveragelyByCircle ("AVG_BY_CIRCLE"): one queue after the other to one client after the other.

    As uneven over several topics as "AVG", since each topic begins with the first client; a client that comes or goes
    moves as many queues or more.
    """
    ordered = [member.id for member in in_order(members)]
    return {
        queue: owner for found in by_topic(queues).values() for queue, owner in zip(found, cycle(ordered), strict=False)
    }
