"""Rules over a Kafka client's configuration: how it is a member of its group. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.plugin.advice.rules.conf import Client
from holdfast.plugin.advice.rules.finding import Effect, Rule, Seen, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.plugin.advice.rules.conf import ClientConf

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
    "session.timeout.ms": "where the default does not fit, set the group's consumer.session.timeout.ms there",
    "heartbeat.interval.ms": "where the default does not fit, set consumer.heartbeat.interval.ms there",
    STRATEGY: f"say {ASSIGNOR}=uniform (sticky) or range",
    "group.protocol.type": "it has one value only",
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
            "these assignors are eager: at each join and leave every member gives up all its partitions and waits "
            "until all have joined again, and what was in hand runs again elsewhere",
            f"on brokers 4.0 and later {PROTOCOL}=consumer with {ASSIGNOR}=uniform, member by member; before that "
            f"{how}. `holdfast migrate` tells the order of a migration",
        )


def _mixed_assignors(conf: ClientConf) -> Iterator[Seen]:
    if COOPERATIVE not in conf.assignors or not eager(conf) or not conf.said(STRATEGY):
        return
    if conf.librdkafka:
        yield Seen(
            STRATEGY,
            conf.shown(STRATEGY),
            "librdkafka does not mix eager and cooperative assignors and makes no consumer",
            f"say {COOPERATIVE} alone",
        )
    else:
        yield Seen(
            STRATEGY,
            conf.shown(STRATEGY),
            "a list like that is the first step of a migration, and as long as it stands the group stays eager",
            f"when every member has this list, take the others out, member by member, so that {COOPERATIVE} is left",
            Severity.NOTE,
        )


def _unknown_assignor(conf: ClientConf) -> Iterator[Seen]:
    known = EAGER - {"sticky"} | {COOPERATIVE} if conf.librdkafka else None
    for each in conf.assignors:
        if known is not None and each not in known:
            yield Seen(
                STRATEGY,
                conf.shown(STRATEGY),
                f"librdkafka does not know {each}, and takes no assignor from outside: it makes no consumer",
                f"use {COOPERATIVE}, range or roundrobin",
            )
        elif known is None and conf.said(STRATEGY) and each in _SHORT and "." not in str(conf.raw(STRATEGY)):
            yield Seen(
                STRATEGY,
                conf.shown(STRATEGY),
                f"Java's client wants the name of a class, and finds none that is called {each}: it makes no consumer",
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
            "brokers have uniform and range unless somebody has added others (group.consumer.assignors), and refuse a "
            "member that asks for an assignor that they do not have",
            "use uniform, or see that all brokers have this one",
        )


def _classic_keys(conf: ClientConf) -> Iterator[Seen]:
    for name, remedy in _CLASSIC_ONLY.items():
        if conf.consumer_protocol and conf.said(name):
            yield Seen(
                name,
                conf.shown(name),
                f"{PROTOCOL}=consumer does not know it: the broker decides, and the client makes no consumer of the "
                "two",
                f"leave it out, and leave it to the broker; {remedy}",
            )


def _remote_assignor_unused(conf: ClientConf) -> Iterator[Seen]:
    if not conf.kafka or conf.consumer_protocol or not conf.said(ASSIGNOR) or conf.to_be_filled_in(PROTOCOL):
        return
    java = conf.client is Client.JAVA
    yield Seen(
        ASSIGNOR,
        conf.shown(ASSIGNOR),
        f"only {PROTOCOL}=consumer knows it: "
        + (
            "Java's client makes no consumer of it" if java else "it has no effect, and the classic default is in force"
        ),
        f"set {PROTOCOL}=consumer, or leave it out",
        Severity.ERROR if java else None,
    )


def _unknown_protocol(conf: ClientConf) -> Iterator[Seen]:
    said = conf.text(PROTOCOL)
    if conf.kafka and said is not None and said.lower() not in ("classic", "consumer"):
        yield Seen(PROTOCOL, conf.shown(PROTOCOL), "no client makes a consumer of it", "use classic or consumer")


def _static_id_missing(conf: ClientConf) -> Iterator[Seen]:
    if conf.kafka and not conf.said(STATIC_ID):
        yield Seen(
            STATIC_ID,
            "not set",
            "each restart is a leave and a join, so a deployment of n members makes 2n rebalances, and the "
            "partitions move to and fro",
            "give each process a name that it keeps over a restart and nobody else has, such as its pod's in a "
            "StatefulSet; without one, say nothing: a name that two share is worse than none",
        )


def _static_id_invalid(conf: ClientConf) -> Iterator[Seen]:
    said = conf.text(STATIC_ID)
    if conf.kafka and said is not None and (not said or len(said) > 249 or not _legal(said)):
        yield Seen(
            STATIC_ID,
            conf.shown(STATIC_ID),
            "names have 1 to 249 letters, digits, '.', '_' and '-': Java's clients and holdfast refuse others",
            "use such a name",
            Severity.WARNING if conf.client is Client.LIBRDKAFKA else None,
        )


def _legal(name: str) -> bool:
    return name not in (".", "..") and all(each.isascii() and (each.isalnum() or each in "._-") for each in name)


def _group_missing(conf: ClientConf) -> Iterator[Seen]:
    name = "consumer_group" if conf.client is Client.ROCKETMQ else "group.id"
    said = conf.text(name)
    if not conf.to_be_filled_in(name) and (said in (None, "", "DEFAULT_CONSUMER") or not str(said).strip()):
        why = "there is no group without it"
        if conf.librdkafka:
            why = "a consumer is not made without it; of an empty one confluent-kafka 2.16 ends the process"
        elif conf.client is Client.ROCKETMQ:
            why = "the consumer does not start without it, nor with DEFAULT_CONSUMER"
        yield Seen(conf.spelled(name), conf.shown(name), why, "name the group")


RULES = (
    Rule(
        name="group-missing",
        severity=Severity.ERROR,
        effect=Effect.REFUSED,
        title="no group is named",
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
        title="session, heartbeat or strategy beside `group.protocol=consumer`",
        look=_classic_keys,
    ),
    Rule(
        name="mixed-assignors",
        severity=Severity.ERROR,
        effect=Effect.REFUSED,
        title="eager and cooperative assignors in one list",
        look=_mixed_assignors,
        also=((Severity.NOTE, "Java, where it is a step of a migration"),),
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
        title="a `group.remote.assignor` that brokers do not have by themselves",
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
        title="range, roundrobin or (Java's) sticky: said, or by default",
        look=_eager_assignor,
    ),
    Rule(
        name="static-id-invalid",
        severity=Severity.ERROR,
        effect=Effect.REFUSED,
        title="a `group.instance.id` that is no name",
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
