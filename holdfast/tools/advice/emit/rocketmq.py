"""RocketMQ: what its Python clients are told, and the broker where it has a word in it.

The names are those of rocketmq-client-python 2.0.0 and 0.5.0rc2, and of rocketmq-python-client 5.1. Kafka's words for
what is missing here: nothing moves in good order, since no broker hands queues out; no member is fenced; there are no
static members. Java's client has no sheet: nothing of it has to agree with what a member in Python has.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from holdfast.errors import SettingError
from holdfast.plugin import budget
from holdfast.plugin.choice import Choice
from holdfast.tools.advice.emit.sheet import Sheet, Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.tools.advice.emit.workload import Workload

#: The most messages that brokers return in one pull, and in one receive by gRPC, even if more are requested.
_PULL = 32
_MOST_THREADS = 1_000
_DEFAULT_QUEUE = 1_000
#: Seconds of work that wait in the process. A long poll answers within milliseconds, so no more is needed.
_AHEAD_S = 2.0
#: The range that the proxy allows (minInvisibleTimeMillsForRecv, maxInvisibleTimeMills).
_INVISIBLE_RANGE_S = (10, 12 * 3600)
#: A message stays hidden for half as much again as it should take.
_SLACK = 1.5
#: A silent member counts as gone after that time, two minutes by default, where machines vanish as a rule. Of a process
#: that is killed the connection closes, and the broker knows at once.
_CRASH_SILENCE_MS = 30_000

_NOT_STICKY = (
    "RocketMQ has no sticky strategy: a member that joins or leaves moves queues of all others, and messages in "
    "progress of a queue that moves run again. holdfast's RocketMQSource(allocate_strategy='sticky') avoids both."
)
_NOT_STATIC = "RocketMQ has no static members: a restart moves the member's queues away and back, whatever its name."
_SKIPS = (
    "If the broker does not answer when this client asks for an offset, the client begins at the end of the queue and "
    "skips the rest. holdfast's PushSource uses this client, RocketMQSource does not."
)


def for_rocketmq(workload: Workload, version: str = "5.5", *, only: str | None = None) -> list[Sheet]:
    """A sheet for each client that brokers of this version serve, and one for the broker where that matters.

    Args:
        workload: what is known of the work.
        version: the brokers'.
        only: the name of the one sheet that is wanted.

    Raises:
        SettingError: times that do not fit; it names them, and what to change.
    """
    found = re.fullmatch(r"(\d+)\.(\d+)(\.\d+)*", version.strip())
    if found is None or int(found[1]) < 4:
        raise SettingError("broker version", version, "write it as 4.9 or 5.5.0; these clients need 4.0 or later")
    if workload.workers > _MOST_THREADS:
        raise SettingError("workers", workload.workers, f"RocketMQ's clients allow {_MOST_THREADS} at most")
    makers: dict[str, Callable[[Workload], Sheet]] = {"rocketmq-python": _python}
    if int(found[1]) >= 5:
        makers |= {"rocketmq-grpc-simple": _grpc_simple, "rocketmq-grpc-push": _grpc_push}
        if workload.restarts == "crash":
            makers["rocketmq-broker"] = _broker
    return [make(workload) for name, make in makers.items() if only in (None, name)]


def _python(workload: Workload) -> Sheet:
    choices: list[Choice[Value]] = [
        Choice("set_thread_count", workload.workers, "the number of messages that this member handles at a time")
    ]
    if workload.static_id is not None:
        why = "a part of the client id; clients assign queues in the order of these ids. Each member needs its own"
        choices.append(Choice("set_instance_name", workload.static_id, why))
    fixed = (
        f"The client's other times are fixed. One thread handles all messages of a pull, {_PULL} at most, as one "
        f"task: up to {_PULL * workload.handler_s:g} s here. shutdown() waits for the task without a limit: a pod's "
        "grace period has to be longer. One RECONSUME_LATER sends all of these messages back. "
        "set_message_batch_max_size has no effect."
    )
    return Sheet(
        name="rocketmq-python",
        where="for PushConsumer of rocketmq-client-python, with its setters, before start()",
        form="python_calls",
        choices=tuple(choices),
        notes=(fixed, _SKIPS, _NOT_STICKY, _NOT_STATIC),
    )


def _grpc_simple(workload: Workload) -> Sheet:
    least_s, most_s = _INVISIBLE_RANGE_S
    batch = min(_PULL, workload.batch or _PULL)
    if workload.batch is None and workload.handler_s > 0:
        # Its default would be too much for slow handlers: as many as the longest time is enough for.
        rounds = math.floor((most_s / _SLACK - budget.COMMIT_S) / workload.handler_s)
        batch = max(1, min(batch, rounds * workload.workers))
    batch_s = math.ceil(batch / workload.workers) * workload.handler_s
    wanted_s = math.ceil(_SLACK * (batch_s + budget.COMMIT_S))
    if wanted_s > most_s:
        raise SettingError(
            "handler_s",
            workload.handler_s,
            f"{batch} messages, {workload.workers} at a time, take {batch_s:g} s, and RocketMQ can hide a message for "
            f"{most_s} s at most: receive fewer at a time, or renew them while handlers run, as LeasedSource does",
        )
    return Sheet(
        name="rocketmq-grpc-simple",
        where="for SimpleConsumer of rocketmq-python-client: await_duration in its constructor, the others in "
        "receive()",
        form="dict",
        choices=(
            Choice("await_duration", 20, "how long a receive waits for messages; the proxy refuses less than 5 s"),
            Choice("max_message_num", batch, f"the proxy returns {_PULL} at most"),
            Choice(
                "invisible_duration",
                max(least_s, wanted_s),
                f"{batch} messages, {workload.workers} at a time, take {batch_s:g} s, plus half as much to spare; the "
                "proxy delivers a message again that is not acknowledged by then, even while its handler runs",
            ),
        ),
        notes=("The proxy delivers messages one by one: members own no queues, and their names have no effect.",),
    )


def _grpc_push(workload: Workload) -> Sheet:
    return Sheet(
        name="rocketmq-grpc-push",
        where="for PushConsumer of rocketmq-python-client, in its constructor",
        form="dict",
        choices=(
            Choice(
                "consumption_thread_count",
                workload.workers,
                "the number of messages that this member handles at a time",
            ),
            Choice(
                "max_cache_message_count",
                _ahead(workload),
                "the default is 1,024. shutdown() first handles all cached messages; messages that a killed member "
                "had cached stay hidden for two minutes",
            ),
        ),
        notes=("The proxy renews messages while handlers run: a handler may take any time.",),
    )


def _broker(_: Workload) -> Sheet:
    return Sheet(
        name="rocketmq-broker",
        where="for broker.conf of each broker",
        form="properties",
        choices=(
            Choice(
                "channelExpiredTimeout",
                _CRASH_SILENCE_MS,
                "a silent member (frozen, or on a machine that is gone) keeps its queues for this long; the default "
                "is 120,000. The heartbeat interval of every group has to be a third of it at most "
                "(heartbeatBrokerInterval, 30,000 by default)",
            ),
        ),
    )


def _ahead(workload: Workload) -> int:
    """Messages of a queue that wait in the process."""
    if workload.handler_s == 0:
        return _DEFAULT_QUEUE
    return min(_DEFAULT_QUEUE, max(2 * _PULL, math.ceil(_AHEAD_S * workload.workers / workload.handler_s)))
