"""Rules over how a configuration is written: names that nobody knows, values that cannot be read. Pure."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from holdfast.tools.advice.rules.conf import DEFAULTS, KNOWN, Client
from holdfast.tools.advice.rules.finding import Effect, Rule, Seen, Severity
from holdfast.tools.advice.rules.names import ALIASES, HOLDFAST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.tools.advice.rules.conf import ClientConf

_OF = {
    Client.LIBRDKAFKA: "librdkafka",
    Client.HOLDFAST: "librdkafka",
    Client.JAVA: "Kafka's Java client",
    Client.ROCKETMQ: "RocketMQ's client",
}
_DROPPED = (Severity.WARNING, Effect.IGNORED)
#: What these names mean at the other client, where that is no guess.
_ELSEWHERE = {
    (Client.LIBRDKAFKA, "max.poll.records"): "pass the number of records to consume(n)",
    (Client.LIBRDKAFKA, "fetch.max.wait.ms"): "use fetch.wait.max.ms here",
    (Client.LIBRDKAFKA, "default.api.timeout.ms"): "pass a timeout to each call",
    (Client.LIBRDKAFKA, "request.timeout.ms"): "for a consumer use socket.timeout.ms",
    (Client.LIBRDKAFKA, "ssl.truststore.location"): "use ssl.ca.location here",
    (Client.LIBRDKAFKA, "sasl.jaas.config"): "use sasl.username and sasl.password here",
    (Client.JAVA, "fetch.wait.max.ms"): "use fetch.max.wait.ms here",
    (Client.JAVA, "sasl.mechanisms"): "use sasl.mechanism here",
    (Client.JAVA, "metadata.broker.list"): "use bootstrap.servers here",
    (Client.JAVA, "ssl.ca.location"): "use ssl.truststore.location here",
    (Client.JAVA, "sasl.username"): "sasl.jaas.config says it here",
    (Client.JAVA, "sasl.password"): "sasl.jaas.config says it here",
}
_ENUMS = {
    (Client.LIBRDKAFKA, "isolation.level"): ("read_uncommitted", "read_committed"),
    (Client.JAVA, "isolation.level"): ("read_uncommitted", "read_committed"),
    (Client.LIBRDKAFKA, "auto.offset.reset"): (
        "smallest", "earliest", "beginning", "largest", "latest", "end", "error",
    ),
    (Client.JAVA, "auto.offset.reset"): ("earliest", "latest", "none", "by_duration:..."),
    (Client.ROCKETMQ, "message_model"): ("CLUSTERING", "BROADCASTING"),
    (Client.ROCKETMQ, "consume_from_where"): (
        "CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP",
    ),
}  # fmt: skip


def _unknown(conf: ClientConf) -> Iterator[Seen]:
    whose, known = _OF[conf.client], KNOWN[conf.client]
    for name, spelled in conf.names.items():
        if name in known:
            continue
        if conf.client is Client.ROCKETMQ and name in HOLDFAST:
            yield Seen(
                spelled,
                conf.shown(name),
                f"{whose} has no such setting; holdfast's own sources have it, and check it when they are created",
                "set it there",
                Severity.NOTE,
                Effect.IGNORED,
            )
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
        others = [_OF[other] for other in (Client.LIBRDKAFKA, Client.JAVA) if name in KNOWN[other]]
        bad: tuple[Severity, Effect] | tuple[()] = _DROPPED
        if conf.librdkafka:
            why, bad = "the consumer does not start", ()
        elif conf.client is Client.JAVA:
            why = "it logs one line, and the setting has no effect"
        else:
            why = "the setting has no effect"
        if others and conf.kafka:
            remedy = _ELSEWHERE.get((_kind(conf), name), f"it is a setting of {others[0]}: leave it out")
        elif near:
            remedy = f"did you mean {conf.spelled(near[0])}?"
        else:
            remedy = "check the spelling, or leave it out"
        yield Seen(spelled, conf.shown(name), f"{whose} has no such setting: {why}", remedy, *bad)


def _kind(conf: ClientConf) -> Client:
    return Client.LIBRDKAFKA if conf.librdkafka else conf.client


def _unused(conf: ClientConf) -> Iterator[Seen]:
    if conf.librdkafka:
        for name in ("max.poll.records", "request.timeout.ms"):
            if conf.said(name):
                yield Seen(
                    name,
                    conf.shown(name),
                    "librdkafka accepts it, but a group's consumer does not use it",
                    _ELSEWHERE[Client.LIBRDKAFKA, name],
                )


def _aliases(conf: ClientConf) -> Iterator[Seen]:
    for older, newer in ALIASES.items():
        if conf.librdkafka and conf.said(older) and conf.said(newer) and conf.raw(older) != conf.raw(newer):
            yield Seen(
                f"{older}, {newer}",
                f"{conf.shown(older)}, {conf.shown(newer)}",
                "they are two names of one setting: only the one that is set last applies, and the configuration does "
                "not show which one that is",
                f"leave {older} out",
            )


def _values(conf: ClientConf) -> Iterator[Seen]:
    for name, default in DEFAULTS[conf.client].items():
        if not conf.said(name) or conf.to_be_filled_in(name):
            continue
        said, where, found = conf.text(name) or "", conf.spelled(name), conf.shown(name)
        if re.fullmatch(r"-?\d+", default) and conf.number(name) is None:
            why = "it is not a whole number, and the client does not start"
            if conf.librdkafka and (digits := re.match(r"\d+", said)):
                why = f"it is not a whole number: librdkafka reads {digits[0]}, and ignores the rest without an error"
            yield Seen(where, found, why, f"write a whole number{_unit(name)}, such as {default}")
        elif default in ("true", "false") and conf.flag(name) is None:
            yield Seen(
                where, found, "it is neither true nor false, and the client does not start", "write true or false"
            )
        elif (known := _ENUMS.get((_kind(conf), name))) is not None and not _one_of(said, known, conf):
            yield Seen(
                where,
                found,
                "the client does not know this value, and does not start",
                f"use one of {', '.join(known)}",
            )


def _unit(name: str) -> str:
    return " of milliseconds" if name.endswith(".ms") else ""


def _one_of(said: str, known: tuple[str, ...], conf: ClientConf) -> bool:
    if conf.librdkafka:
        said = said.lower()
    return said in known or (said.startswith("by_duration:") and "by_duration:..." in known)


def _open(conf: ClientConf) -> Iterator[Seen]:
    for name, spelled in conf.names.items():
        if name in DEFAULTS[conf.client] and conf.to_be_filled_in(name):
            yield Seen(
                spelled,
                conf.shown(name),
                "a deployment fills in this value, so no rule has checked it",
                "check the configuration that the process gets",
            )


RULES = (
    Rule(
        name="bad-value",
        severity=Severity.ERROR,
        effect=Effect.REFUSED,
        title="a value that the client cannot read: `6s`, `yes`, a word that the setting does not have",
        look=_values,
    ),
    Rule(
        name="unknown-key",
        severity=Severity.ERROR,
        effect=Effect.REFUSED,
        title="a name that the client does not know, with the nearest known one",
        look=_unknown,
        also=(
            (Severity.WARNING, "Java and RocketMQ, which ignore it"),
            (Severity.NOTE, "RocketMQ, if holdfast has it"),
        ),
    ),
    Rule(
        name="alias-clash",
        severity=Severity.WARNING,
        effect=Effect.IGNORED,
        title="two names of one setting with different values (librdkafka)",
        look=_aliases,
    ),
    Rule(
        name="unused-key",
        severity=Severity.NOTE,
        effect=Effect.IGNORED,
        title="a name that librdkafka accepts and a group's consumer does not use",
        look=_unused,
    ),
    Rule(
        name="placeholder",
        severity=Severity.NOTE,
        effect=Effect.IGNORED,
        title="a value that a deployment fills in; it is not checked",
        look=_open,
    ),
)
