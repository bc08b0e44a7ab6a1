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
from holdfast.plugin.advice.emit.sheet import Choice, Sheet

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.plugin.advice.emit.workload import Workload

#: What the brokers give in one pull, and in one receive by gRPC, whatever is asked for.
_PULL = 32
_MOST_THREADS = 1_000
_DEFAULT_QUEUE = 1_000
#: What waits in the process lasts for so long. A long poll answers within milliseconds, so it need not be more.
_AHEAD_S = 2.0
#: What the proxy allows (minInvisibleTimeMillsForRecv, maxInvisibleTimeMills).
_INVISIBLE_RANGE_S = (10, 12 * 3600)
#: A message stays hidden for half as much again as it should take.
_SLACK = 1.5
#: A silent member counts as gone after that time, two minutes by default, where machines vanish as a rule. Of a process
#: that is killed the connection closes, and the broker knows at once.
_CRASH_SILENCE_MS = 30_000

_NOT_STICKY = (
    "No strategy of RocketMQ's is sticky: who comes or goes moves queues of all others, and what is in hand of a queue "
    "that moves runs again. RocketMQSource(allocate_strategy='sticky') of holdfast does neither."
)
_NOT_STATIC = "There are no static members: a restart moves the member's queues away and back, whatever its name."
_SKIPS = (
    "Without an answer to its question for an offset it begins at the end of the queue and skips the rest. PushSource "
    "of holdfast is wrapped around this client, RocketMQSource does without it."
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
        raise SettingError("workers", workload.workers, f"RocketMQ's clients take {_MOST_THREADS} at most")
    makers: dict[str, Callable[[Workload], Sheet]] = {"rocketmq-python": _python}
    if int(found[1]) >= 5:
        makers |= {"rocketmq-grpc-simple": _grpc_simple, "rocketmq-grpc-push": _grpc_push}
        if workload.restarts == "crash":
            makers["rocketmq-broker"] = _broker
    return [make(workload) for name, make in makers.items() if only in (None, name)]


def _python(workload: Workload) -> Sheet:
    choices = [Choice("set_thread_count", workload.workers, "as many at a time as this member is to handle")]
    if workload.static_id is not None:
        why = "a part of the client id, by whose order queues are dealt. Each member's own"
        choices.append(Choice("set_instance_name", workload.static_id, why))
    fixed = (
        f"Its other times are fixed. What a pull brings, {_PULL} messages at most, is one task in one thread: up to "
        f"{_PULL * workload.handler_s:g} s here. shutdown() waits for it without a limit: a pod's grace period has to "
        "be longer. One RECONSUME_LATER sends all of them back. set_message_batch_max_size has no effect."
    )
    return Sheet(
        name="rocketmq-python",
        where="for PushConsumer of rocketmq-client-python, by its setters, before start()",
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
            f"{batch} messages, {workload.workers} at a time, take {batch_s:g} s, and a message can be hidden for "
            f"{most_s} s at most: take fewer at a time, or renew them while they are handled, as LeasedSource does",
        )
    return Sheet(
        name="rocketmq-grpc-simple",
        where="for SimpleConsumer of rocketmq-python-client: await_duration at its making, the others of receive()",
        form="dict",
        choices=(
            Choice("await_duration", 20, "how long a receive waits for messages; below 5 s the proxy refuses it"),
            Choice("max_message_num", batch, f"the proxy gives {_PULL} at most"),
            Choice(
                "invisible_duration",
                max(least_s, wanted_s),
                f"{batch} messages, {workload.workers} at a time, take {batch_s:g} s, and half as much to spare: what "
                "is not acknowledged by then comes again while it is handled",
            ),
        ),
        notes=("Messages are handed out one by one: no queue is anybody's, and names of members mean nothing.",),
    )


def _grpc_push(workload: Workload) -> Sheet:
    return Sheet(
        name="rocketmq-grpc-push",
        where="for PushConsumer of rocketmq-python-client, at its making",
        form="dict",
        choices=(
            Choice("consumption_thread_count", workload.workers, "as many at a time as this member is to handle"),
            Choice(
                "max_cache_message_count",
                _ahead(workload),
                "1,024 by default. shutdown() handles all that is cached first, and what a killed member had cached "
                "stays hidden for two minutes",
            ),
        ),
        notes=("The proxy renews what is being handled: a handler may take as long as it likes.",),
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
                "so long a silent member keeps its queues, 120,000 by default: frozen, or on a machine that is gone. "
                "Every group's heartbeats have to be a third of it (heartbeatBrokerInterval, 30,000 by default)",
            ),
        ),
    )


def _ahead(workload: Workload) -> int:
    """Messages of a queue that wait in the process."""
    if workload.handler_s == 0:
        return _DEFAULT_QUEUE
    return min(_DEFAULT_QUEUE, max(2 * _PULL, math.ceil(_AHEAD_S * workload.workers / workload.handler_s)))
