"""Rules over a Kafka client's configuration: how it is a member of its group. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.tools.advice.rules.conf import Client
from holdfast.tools.advice.rules.finding import Effect, Rule, Seen, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.tools.advice.rules.conf import ClientConf

STRATEGY, ASSIGNOR, PROTOCOL, STATIC_ID = (
    "partition.assignment.strategy",
    "group.remote.assignor",
    "group.protocol",
    "group.instance.id",
)
COOPERATIVE = "cooperative-sticky"
#: Classic assignors that can only be used eagerly. Java's sticky is one of them.
EAGER = frozenset({"range", "roundrobin", "sticky"})

# What clients refuse under the consumer protocol, and where it is said instead.
_CLASSIC_ONLY = {
    "session.timeout.ms": "if the default does not fit, set consumer.session.timeout.ms of the group at the broker",
    "heartbeat.interval.ms": "if the default does not fit, set consumer.heartbeat.interval.ms of the group at the "
    "broker",
    STRATEGY: f"set {ASSIGNOR}=uniform (sticky) or range",
    "group.protocol.type": "it has only one value",
}


def eager(conf: ClientConf) -> bool:
    """Whether each rebalance takes all partitions from all members."""
    return bool(EAGER.intersection(conf.assignors))


def _eager_assignor(conf: ClientConf) -> Iterator[Seen]:
    mixed = COOPERATIVE in conf.assignors and conf.librdkafka  # refused: _mixed_assignors
    if eager(conf) and not mixed and (conf.said(STRATEGY) or conf.client is not Client.HOLDFAST):
        how = f"{STRATEGY}={COOPERATIVE} alone"
        if conf.client is Client.JAVA:
            how = f"{STRATEGY}=org.apache.kafka.clients.consumer.CooperativeStickyAssignor alone"
        yield Seen(
            conf.spelled(STRATEGY),
            conf.shown(STRATEGY),
            "these assignors are eager: whenever a member joins or leaves, every member gives up all its partitions "
            "and waits until all have joined again; records in progress run again on another member",
            f"on brokers 4.0 and later set {PROTOCOL}=consumer with {ASSIGNOR}=uniform, one member at a time; on "
            f"older brokers set {how}. `holdfast migrate` shows the steps",
        )


def _mixed_assignors(conf: ClientConf) -> Iterator[Seen]:
    if COOPERATIVE not in conf.assignors or not eager(conf) or not conf.said(STRATEGY):
        return
    if conf.librdkafka:
        yield Seen(
            STRATEGY,
            conf.shown(STRATEGY),
            "librdkafka refuses a list that mixes eager and cooperative assignors, and the consumer does not start",
            f"use {COOPERATIVE} alone",
        )
    else:
        yield Seen(
            STRATEGY,
            conf.shown(STRATEGY),
            "such a list is the first step of a migration; as long as a member has it, the group stays eager",
            "when every member has this list, remove the eager assignors, one member at a time, until only "
            f"{COOPERATIVE} is left",
            Severity.NOTE,
        )


def _unknown_assignor(conf: ClientConf) -> Iterator[Seen]:
    known = EAGER - {"sticky"} | {COOPERATIVE} if conf.librdkafka else None
    for each in conf.assignors:
        if known is not None and each not in known:
            yield Seen(
                STRATEGY,
                conf.shown(STRATEGY),
                f"librdkafka has no assignor {each}, and none can be added: the consumer does not start",
                f"use {COOPERATIVE}, range or roundrobin",
            )
        elif known is None and conf.said(STRATEGY) and each in _SHORT and "." not in str(conf.raw(STRATEGY)):
            yield Seen(
                STRATEGY,
                conf.shown(STRATEGY),
                f"Java's client expects the name of a class, and there is no class {each}: the consumer does not start",
                f"write {_SHORT[each]}",
            )


_SHORT = {
    short: f"org.apache.kafka.clients.consumer.{name}"
    for short, name in (
        ("range", "RangeAssignor"),
        ("roundrobin", "RoundRobinAssignor"),
        ("sticky", "StickyAssignor"),
        (COOPERATIVE, "CooperativeStickyAssignor"),
    )
}


def _unknown_remote_assignor(conf: ClientConf) -> Iterator[Seen]:
    said = conf.text(ASSIGNOR)
    if conf.consumer_protocol and said and said not in ("uniform", "range"):
        yield Seen(
            ASSIGNOR,
            conf.shown(ASSIGNOR),
            "brokers have uniform and range, unless others were added (group.consumer.assignors); they refuse a "
            "member that asks for an assignor they do not have",
            "use uniform, or make sure that all brokers have this one",
        )


def _classic_keys(conf: ClientConf) -> Iterator[Seen]:
    for name, remedy in _CLASSIC_ONLY.items():
        if conf.consumer_protocol and conf.said(name):
            yield Seen(
                name,
                conf.shown(name),
                f"with {PROTOCOL}=consumer the broker decides this, and the client refuses to start with both settings",
                f"leave it out; {remedy}",
            )


def _remote_assignor_unused(conf: ClientConf) -> Iterator[Seen]:
    if not conf.kafka or conf.consumer_protocol or not conf.said(ASSIGNOR) or conf.to_be_filled_in(PROTOCOL):
        return
    java = conf.client is Client.JAVA
    yield Seen(
        ASSIGNOR,
        conf.shown(ASSIGNOR),
        f"it works only with {PROTOCOL}=consumer: "
        + ("Java's client does not start" if java else "it is ignored here, and the classic assignors apply"),
        f"set {PROTOCOL}=consumer, or leave it out",
        Severity.ERROR if java else None,
    )


def _unknown_protocol(conf: ClientConf) -> Iterator[Seen]:
    said = conf.text(PROTOCOL)
    if conf.kafka and said is not None and said.lower() not in ("classic", "consumer"):
        yield Seen(PROTOCOL, conf.shown(PROTOCOL), "no client starts with this value", "use classic or consumer")


def _static_id_missing(conf: ClientConf) -> Iterator[Seen]:
    if conf.kafka and not conf.said(STATIC_ID):
        yield Seen(
            STATIC_ID,
            "not set",
            "without it each restart is a leave and a join: a deployment of n members causes 2n rebalances, and "
            "partitions move away and back",
            "give each process its own id that stays the same after a restart, such as its pod name in a StatefulSet; "
            "if there is no such name, leave it out: an id that two processes share is worse than none",
        )


def _static_id_invalid(conf: ClientConf) -> Iterator[Seen]:
    said = conf.text(STATIC_ID)
    if conf.kafka and said is not None and (not said or len(said) > 249 or not _legal(said)):
        yield Seen(
            STATIC_ID,
            conf.shown(STATIC_ID),
            "an id has 1 to 249 letters, digits, '.', '_' and '-'; Java's client and holdfast refuse others",
            "use such an id",
            Severity.WARNING if conf.client is Client.LIBRDKAFKA else None,
        )


def _legal(name: str) -> bool:
    return name not in (".", "..") and all(each.isascii() and (each.isalnum() or each in "._-") for each in name)


def _group_missing(conf: ClientConf) -> Iterator[Seen]:
    name = "consumer_group" if conf.client is Client.ROCKETMQ else "group.id"
    said = conf.text(name)
    if not conf.to_be_filled_in(name) and (said in (None, "", "DEFAULT_CONSUMER") or not str(said).strip()):
        why = "a consumer cannot join a group without it"
        if conf.librdkafka:
            why = "the consumer does not start without it; an empty one makes confluent-kafka 2.16 end the process"
        elif conf.client is Client.ROCKETMQ:
            why = "the consumer does not start without it, nor with DEFAULT_CONSUMER"
        yield Seen(conf.spelled(name), conf.shown(name), why, "name the group")


RULES = (
    Rule(
        name="group-missing",
        severity=Severity.ERROR,
        effect=Effect.REFUSED,
        title="the group's name is missing",
        look=_group_missing,
    ),
    Rule(
        name="unknown-protocol",
        severity=Severity.ERROR,
        effect=Effect.REFUSED,
        title="`group.protocol` is neither `classic` nor `consumer`",
        look=_unknown_protocol,
    ),
    Rule(
        name="classic-keys",
        severity=Severity.ERROR,
        effect=Effect.REFUSED,
        title="session, heartbeat or strategy together with `group.protocol=consumer`",
        look=_classic_keys,
    ),
    Rule(
        name="mixed-assignors",
        severity=Severity.ERROR,
        effect=Effect.REFUSED,
        title="eager and cooperative assignors in one list",
        look=_mixed_assignors,
        also=((Severity.NOTE, "Java, as a step of a migration"),),
    ),
    Rule(
        name="unknown-assignor",
        severity=Severity.ERROR,
        effect=Effect.REFUSED,
        title="an assignor that the client does not have",
        look=_unknown_assignor,
    ),
    Rule(
        name="unknown-remote-assignor",
        severity=Severity.WARNING,
        effect=Effect.REFUSED,
        title="a `group.remote.assignor` that brokers do not have by default",
        look=_unknown_remote_assignor,
    ),
    Rule(
        name="remote-assignor-unused",
        severity=Severity.WARNING,
        effect=Effect.IGNORED,
        title="`group.remote.assignor` without the consumer protocol",
        look=_remote_assignor_unused,
        also=((Severity.ERROR, "Java"),),
    ),
    Rule(
        name="eager-assignor",
        severity=Severity.WARNING,
        effect=Effect.STANDSTILL,
        title="range, roundrobin or (Java's) sticky, set or by default",
        look=_eager_assignor,
    ),
    Rule(
        name="static-id-invalid",
        severity=Severity.ERROR,
        effect=Effect.REFUSED,
        title="a `group.instance.id` that is not valid",
        look=_static_id_invalid,
        also=((Severity.WARNING, "librdkafka"),),
    ),
    Rule(
        name="static-id-missing",
        severity=Severity.NOTE,
        effect=Effect.STORM,
        title="no `group.instance.id`",
        look=_static_id_missing,
    ),
)
