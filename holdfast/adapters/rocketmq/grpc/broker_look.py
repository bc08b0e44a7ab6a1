"""Checks a group at the brokers before its first poll, since the proxy does not report these faults.

- A group with retryMaxTimes below 0 gets no message: the proxy puts each one into %DLQ%group at its first delivery
  (observed on 5.5.0). For classic clients, -1 means no limit.
- A new group begins at the first message of a queue only if that has offset 0 and is still in the broker's memory; else
  at the last message (PopMessageProcessor.getInitOffset). No client setting changes that.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.remoting import Admin
from holdfast.errors import SourceError, UnknownGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.rocketmq.remoting import RemotingClient
    from holdfast.records import Partition
    from holdfast.timing import Deadline

_log = logging.getLogger("holdfast.rocketmq")

#: The most queues that a log line names.
_NAMED = 4


class NothingDelivered(SourceError):
    """A setting of the group makes the proxy put each message into the dead letters before a handler gets it."""


def look_at_group(client: RemotingClient, group: str, topics: Sequence[str], deadline: Deadline) -> None:
    """Check the group at the brokers of these topics. Brokers that do not answer are skipped.

    Raises:
        UnknownGroup: a broker does not have the group, and does not create it.
        NothingDelivered: the group's retryMaxTimes is below 0.
    """
    try:
        queues = [queue for topic in topics for queue in client.route(topic, deadline).queues()]
        for broker in sorted({queue.broker for queue in queues}):
            _check_times(group, broker, Admin(client).group_settings(group, broker, deadline).retry_times)
        passed = {queue: count for queue in queues if (count := _passed_over(client, group, queue, deadline)) > 0}
    except (UnknownGroup, NothingDelivered):
        raise
    except SourceError as error:
        _log.info("what brokers say of the group %s is not known: %s", group, error)
        return
    if passed:
        _log.warning(
            "the group %s is new to %s%s, whose first messages have been deleted: there the broker lets it begin at "
            "the last message, and passes over %d before that. To have those, set its offsets before the start: "
            "mqadmin resetOffsetByTime -n <name server> -g %s -t <topic> -s 0",
            group,
            ", ".join(map(str, sorted(passed)[:_NAMED])),
            f" and {len(passed) - _NAMED} more" if len(passed) > _NAMED else "",
            sum(passed.values()),
            group,
        )


def _check_times(group: str, broker: str, times: int | None) -> None:
    if times is not None and times < 0:
        raise NothingDelivered(
            f"the group {group} has retryMaxTimes={times} at {broker}: the proxy puts each of its messages into "
            f"%DLQ%{group} at the first delivery, and no handler gets one. Give it 16, say: mqadmin updateSubGroup "
            f"-n <name server> -c <cluster> -g {group} -r 16"
        )


def _passed_over(client: RemotingClient, group: str, queue: Partition, deadline: Deadline) -> int:
    """How many messages a group that is new to this queue does not get; 0 if it is not new. Raises SourceError."""
    if client.query_offset(queue, group, deadline) is not None or not (first := client.min_offset(queue, deadline)):
        return 0
    return client.max_offset(queue, deadline) - 1 - first
