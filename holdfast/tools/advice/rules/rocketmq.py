"""Rules over a RocketMQ push consumer's configuration, by the names of rocketmq-client 5.5 (Java). Pure."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING

from holdfast.tools.advice.rules.conf import Client
from holdfast.tools.advice.rules.finding import Effect, Rule, Seen, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from holdfast.tools.advice.rules.conf import ClientConf

#: What DefaultMQPushConsumerImpl.checkConfig takes; another value ends in an exception at the start.
RANGES = {
    "consume_thread_min": (1, 1_000),
    "consume_thread_max": (1, 1_000),
    "consume_concurrently_max_span": (1, 65_535),
    "pull_threshold_for_queue": (1, 65_535),
    "pull_threshold_for_topic": (1, 6_553_500),
    "pull_threshold_size_for_queue": (1, 1_024),
    "pull_threshold_size_for_topic": (1, 102_400),
    "pull_interval": (0, 65_535),
    "consume_message_batch_max_size": (1, 1_024),
    "pull_batch_size": (1, 1_024),
    "pop_invisible_time": (5_000, 300_000),
    "pop_batch_nums": (1, 32),
}
#: -1: no limit.
_MAY_BE_OFF = frozenset({"pull_threshold_for_topic", "pull_threshold_size_for_topic"})
#: After how long of silence brokers hold a member for gone (CHANNEL_EXPIRED_TIMEOUT of ConsumerManager); what they give
#: a pull at most (maxTransferCountOnMessageInMemory).
_SILENT_MS, _MOST_A_PULL = 120_000, 32
_USUAL_PERSIST_MS = 5_000
_LATE_ROUTES_MS = 60_000


def _of_rocketmq(look: Callable[[ClientConf], Iterable[Seen]]) -> Callable[[ClientConf], Iterable[Seen]]:
    @wraps(look)
    def seen(conf: ClientConf) -> Iterable[Seen]:
        return look(conf) if conf.client is Client.ROCKETMQ else ()

    return seen


def _seen(conf: ClientConf, name: str, why: str, remedy: str, severity: Severity | None = None) -> Seen:
    return Seen(conf.spelled(name), conf.shown(name), why, remedy, severity)


@_of_rocketmq
def _namesrv(conf: ClientConf) -> Iterator[Seen]:
    name = "namesrv_addr"
    if not conf.to_be_filled_in(name) and not conf.text(name):
        yield _seen(
            conf,
            name,
            "without it the client looks in the environment (NAMESRV_ADDR), then at a built-in web address; it starts "
            "anyway, and reads nothing",
            "set the name servers, as host:port;host:port",
        )


@_of_rocketmq
def _ranges(conf: ClientConf) -> Iterator[Seen]:
    for name, (least, most) in RANGES.items():
        value = conf.number(name)
        if value is not None and not least <= value <= most and not (value == -1 and name in _MAY_BE_OFF):
            yield _seen(conf, name, "the client does not start with this value", f"use {least} to {most}")


@_of_rocketmq
def _threads(conf: ClientConf) -> Iterator[Seen]:
    least, most = conf.number("consume_thread_min"), conf.number("consume_thread_max")
    if least is not None and most is not None and least > most:
        yield _seen(
            conf,
            "consume_thread_min",
            f"the client does not start if it is above {conf.spelled('consume_thread_max')}={most}",
            "raise the maximum too",
        )


@_of_rocketmq
def _broadcasting(conf: ClientConf) -> Iterator[Seen]:
    if (conf.text("message_model") or "").upper() == "BROADCASTING":
        yield _seen(
            conf,
            "message_model",
            "every member handles every message, and each host keeps the offsets in its own file: a process that "
            "starts on another host does not find them",
            "use CLUSTERING, unless every process needs all messages",
        )


@_of_rocketmq
def _from_last(conf: ClientConf) -> Iterator[Seen]:
    if (conf.text("consume_from_where") or "").startswith("CONSUME_FROM_LAST"):
        yield _seen(
            conf,
            "consume_from_where",
            "a group without an offset begins at the end: at its first start, and in queues that are added later, it "
            "skips the messages that are already there, without an error",
            "use CONSUME_FROM_FIRST_OFFSET, or CONSUME_FROM_TIMESTAMP with a time",
        )


@_of_rocketmq
def _strategy(conf: ClientConf) -> Iterator[Seen]:
    name = "allocate_message_queue_strategy"
    said = (conf.text(name) or "").rpartition(".")[2]
    if conf.to_be_filled_in(name):
        return
    if "ConsistentHash" in said or said == "CONSISTENT_HASH":
        why = "it assigns queues by hash, so one member may have several times as many as another"
    elif not said or said in ("AVG", "AVG_BY_CIRCLE") or "Averagely" in said:
        why = (
            "it assigns each topic separately and begins with the same member each time, so with several topics the "
            "first member gets the most queues; each join or leave moves most queues, and their messages in progress "
            "run again on another member"
        )
    else:
        return
    yield Seen(
        conf.spelled(name),
        conf.shown(name) if said else "AllocateMessageQueueAveragely (the default)",
        why,
        "RocketMQ has no sticky strategy; holdfast's RocketMQSource has one, over all topics together; `holdfast "
        "plan` shows both",
    )


@_of_rocketmq
def _persist(conf: ClientConf) -> Iterator[Seen]:
    name = "persist_consumer_offset_interval"
    interval_ms = conf.number(name)
    if interval_ms is not None and interval_ms > _USUAL_PERSIST_MS:
        yield _seen(
            conf,
            name,
            f"the client stores offsets at the broker every {interval_ms / 1000:g} s: after a crash, and whenever a "
            "queue moves, that much runs again, since the next owner begins at the broker's offset",
            f"use {_USUAL_PERSIST_MS}, the default, or less",
        )


@_of_rocketmq
def _consume_timeout(conf: ClientConf) -> Iterator[Seen]:
    minutes, handler_s = conf.number("consume_timeout"), conf.circumstances.handler_s
    if minutes is None or handler_s is None:
        return
    batch = conf.number("consume_message_batch_max_size") or 1
    takes_s = handler_s * batch
    if takes_s >= minutes * 60:
        of = f"{batch} messages of {handler_s:g} s each: {takes_s:g} s" if batch > 1 else f"{handler_s:g} s"
        yield _seen(
            conf,
            "consume_timeout",
            f"if handling takes longer than {minutes} min, the client sends the message back to the broker, and it "
            f"runs again on another member while the first run goes on: your handler takes {of}",
            f"use {int(takes_s // 60) + 1} minutes or more" + (", or smaller batches" if batch > 1 else ""),
        )


@_of_rocketmq
def _batch(conf: ClientConf) -> Iterator[Seen]:
    name = "consume_message_batch_max_size"
    size = conf.number(name)
    if size is not None and size > 1:
        yield _seen(
            conf,
            name,
            f"a listener that fails on one of {size} messages sends all of them back unless it sets ackIndex: "
            "messages that were done run again",
            "set ackIndex, or take one message at a time (1)",
        )


@_of_rocketmq
def _pull_batch(conf: ClientConf) -> Iterator[Seen]:
    size = conf.number("pull_batch_size")
    if size is not None and _MOST_A_PULL < size <= RANGES["pull_batch_size"][1]:
        yield _seen(
            conf,
            "pull_batch_size",
            f"brokers return {_MOST_A_PULL} messages per pull at most, unless their maxTransferCountOnMessageInMemory "
            "is higher",
            f"use {_MOST_A_PULL}, or raise that setting at the brokers",
        )


@_of_rocketmq
def _no_retry(conf: ClientConf) -> Iterator[Seen]:
    if conf.number("max_reconsume_times") == 0:
        yield _seen(
            conf,
            "max_reconsume_times",
            "a message that fails once goes straight to the group's dead letters: if a database is down for a second, "
            "every message of that second ends in %DLQ%",
            "leave it out (the default is 16), or process the dead letters",
        )


@_of_rocketmq
def _instance(conf: ClientConf) -> Iterator[Seen]:
    said = conf.text("instance_name")
    if said is not None and conf.said("instance_name") and said != "DEFAULT":
        yield _seen(
            conf,
            "instance_name",
            "a member's name is address@instance: two processes on one host with this configuration count as one "
            "member, so both get the same queues, and some others have no owner",
            "leave it out, and each process gets its own; or set a different one for each process",
        )


@_of_rocketmq
def _heartbeat(conf: ClientConf) -> Iterator[Seen]:
    name = "heartbeat_broker_interval"
    interval_ms = conf.number(name)
    if interval_ms is not None and interval_ms * 3 > _SILENT_MS:
        yield _seen(
            conf,
            name,
            f"brokers remove a member that sends no heartbeat for {_SILENT_MS // 1000} s: its queues go to others, "
            "and come back with its next heartbeat",
            f"use {_SILENT_MS // 3} or less, so that two heartbeats may be lost; the default is 30000",
            Severity.ERROR if interval_ms >= _SILENT_MS else None,
        )


@_of_rocketmq
def _routes(conf: ClientConf) -> Iterator[Seen]:
    name = "poll_name_server_interval"
    interval_ms = conf.number(name)
    if interval_ms is not None and interval_ms > _LATE_ROUTES_MS:
        yield _seen(
            conf,
            name,
            "the client sees added queues, and brokers that come back at another address, only after up to "
            f"{interval_ms / 1000:g} s: meanwhile no member reads them",
            "use 30000, the default",
        )


RULES = (
    Rule(
        name="rocketmq-out-of-range",
        severity=Severity.ERROR,
        effect=Effect.REFUSED,
        title="a number outside the range that the client accepts",
        look=_ranges,
    ),
    Rule(
        name="rocketmq-threads",
        severity=Severity.ERROR,
        effect=Effect.REFUSED,
        title="`consumeThreadMin` above `consumeThreadMax`",
        look=_threads,
    ),
    Rule(
        name="rocketmq-consume-timeout",
        severity=Severity.ERROR,
        effect=Effect.REPEATS,
        title="handlers that take `consumeTimeout` or longer; needs `--handler`",
        look=_consume_timeout,
        needs_handler=True,
    ),
    Rule(
        name="rocketmq-namesrv-missing",
        severity=Severity.WARNING,
        effect=Effect.STANDSTILL,
        title="the name servers are missing",
        look=_namesrv,
    ),
    Rule(
        name="rocketmq-from-last",
        severity=Severity.WARNING,
        effect=Effect.SKIPS,
        title="`CONSUME_FROM_LAST_OFFSET`, set or by default",
        look=_from_last,
    ),
    Rule(
        name="rocketmq-strategy",
        severity=Severity.WARNING,
        effect=Effect.UNEVEN,
        title="an average or consistent-hash strategy, set or by default",
        look=_strategy,
    ),
    Rule(
        name="rocketmq-instance-name",
        severity=Severity.WARNING,
        effect=Effect.REPEATS,
        title="an `instanceName` that processes of one host share",
        look=_instance,
    ),
    Rule(
        name="rocketmq-heartbeat",
        severity=Severity.WARNING,
        effect=Effect.STORM,
        title="`heartbeatBrokerInterval` above a third of the time that brokers wait for a silent member",
        look=_heartbeat,
        also=((Severity.ERROR, "if it is not below that time"),),
    ),
    Rule(
        name="rocketmq-broadcasting",
        severity=Severity.WARNING,
        effect=Effect.REPEATS,
        title="`BROADCASTING`",
        look=_broadcasting,
    ),
    Rule(
        name="rocketmq-persist-interval",
        severity=Severity.WARNING,
        effect=Effect.REPEATS,
        title="offsets stored at the broker more than 5 s apart",
        look=_persist,
    ),
    Rule(
        name="rocketmq-no-retry",
        severity=Severity.WARNING,
        effect=Effect.SKIPS,
        title="`maxReconsumeTimes=0`",
        look=_no_retry,
    ),
    Rule(
        name="rocketmq-batch",
        severity=Severity.NOTE,
        effect=Effect.REPEATS,
        title="a listener that gets several messages at once",
        look=_batch,
    ),
    Rule(
        name="rocketmq-pull-batch",
        severity=Severity.NOTE,
        effect=Effect.IGNORED,
        title="`pullBatchSize` above what brokers return",
        look=_pull_batch,
    ),
    Rule(
        name="rocketmq-routes",
        severity=Severity.NOTE,
        effect=Effect.BACKLOG,
        title="`pollNameServerInterval` above a minute",
        look=_routes,
    ),
)
