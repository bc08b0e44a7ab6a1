"""The check of a consumer's configuration before any client exists. Pure: no client, no I/O.

A value that contradicts the promise raises SettingError; one that only serves badly becomes a Finding, which
KafkaSource logs. `emission.emit` adds the values that the user has not set, and those that depend on the broker.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from holdfast.adapters.kafka.properties import as_bool, as_int
from holdfast.errors import SettingError
from holdfast.plugin import budget
from holdfast.plugin.budget import DEFAULT_MAX_POLL_MS, DEFAULT_SESSION_MS
from holdfast.plugin.secret_names import masked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Assignment = Literal["sticky", "keep"]

#: librdkafka's own default.
DEFAULT_STRATEGY = "range,roundrobin"
COOPERATIVE = "cooperative-sticky"

#: The property of a static member: a name that it keeps over a restart, so that nothing moves meanwhile.
STATIC_ID = "group.instance.id"
#: The rule of Kafka's own clients, as for a topic's name (Topic.validate, JoinGroupRequest.validateGroupInstanceId).
_STATIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

#: Properties of classic groups. librdkafka refuses to make a client that has one of them and
#: group.protocol=consumer (rd_kafka_conf_finalize).
CLASSIC_ONLY = {
    "session.timeout.ms": "the broker sets it: group configuration consumer.session.timeout.ms",
    "heartbeat.interval.ms": "the broker sets it: group configuration consumer.heartbeat.interval.ms",
    "partition.assignment.strategy": "use group.remote.assignor=uniform or range",
    "group.protocol.type": "it has one value only, leave it out",
}

# holdfast commits by itself, after the work. With these flags the client commits offsets of work that is not done.
_OWN_FLAGS = ("enable.auto.commit", "auto.commit.enable", "enable.auto.offset.store")

#: The client's values of auto.offset.reset.
_BEGINNINGS = frozenset({"smallest", "earliest", "beginning", "largest", "latest", "end", "error"})

# Callbacks that the engine needs itself. An application gets events instead.
_OWN_CALLBACKS = {
    "on_commit": "leave it out: holdfast commits; watch it with an observer",
    "offset_commit_cb": "leave it out: holdfast commits; watch it with an observer",
    "rebalance_cb": "leave it out: holdfast handles rebalances; watch them with an observer",
    "consume_cb": "leave it out: records go to the handlers",
}


class GroupProtocol(Enum):
    """How a group moves partitions."""

    EAGER = "eager"  #: classic, range or roundrobin: every rebalance takes everything from everyone
    COOPERATIVE = "cooperative"  #: classic, cooperative-sticky: only what moves is taken, in two rebalances
    CONSUMER = "consumer"  #: KIP-848: the broker assigns; only what moves is taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A setting that works, but serves badly."""

    field: str
    value: object
    reason: str
    remedy: str

    def __str__(self) -> str:
        said = f"{self.field}={self.value!r}" if self.value is not None else f"{self.field} is not set"
        return f"{said}: {self.reason}; {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CheckedConfig:
    """A configuration that can hold the promise; made by `check`. Its repr has no credentials."""

    conf: Mapping[str, object]
    assignment: Assignment | None
    findings: tuple[Finding, ...]

    def __repr__(self) -> str:
        return f"CheckedConfig(conf={masked(self.conf)!r}, assignment={self.assignment!r}, findings={self.findings!r})"

    @property
    def bootstrap(self) -> str:
        """The brokers as the user wrote them."""
        return str(self.conf["bootstrap.servers"])

    @property
    def group(self) -> str:
        """The group's id."""
        return str(self.conf["group.id"])

    @property
    def max_poll_ms(self) -> int:
        """How long the client may stay away from poll; it is the group's rebalance timeout too."""
        return as_int("max.poll.interval.ms", self.conf.get("max.poll.interval.ms", DEFAULT_MAX_POLL_MS))


def check(conf: Mapping[str, object], assignment: Assignment | None) -> CheckedConfig:
    """Check a configuration for `confluent_kafka.Consumer` against the promise. Raises SettingError."""
    if assignment not in ("sticky", "keep", None):
        raise SettingError("assignment", assignment, "use 'sticky', 'keep' or leave it out")
    mine = _as_read(conf)
    _check_names(mine)
    _check_owned(mine)
    protocol = _said_protocol(mine)
    strategies = _strategies(mine)
    if assignment == "sticky":
        _check_sticky(mine, protocol)
    if protocol == "consumer":
        _check_consumer_protocol(mine)
    else:
        _check_times(mine)
    if COOPERATIVE in strategies and len(strategies) > 1:
        raise SettingError(
            "partition.assignment.strategy",
            mine["partition.assignment.strategy"],
            f"use {COOPERATIVE} alone: librdkafka does not mix it with an eager assignor",
        )
    if as_int("max.poll.interval.ms", mine.get("max.poll.interval.ms", DEFAULT_MAX_POLL_MS)) <= 0:
        raise SettingError("max.poll.interval.ms", mine["max.poll.interval.ms"], "use a positive number")
    findings = _findings(mine, assignment, protocol, strategies)
    return CheckedConfig(conf=MappingProxyType(mine), assignment=assignment, findings=findings)


def check_drain(checked: CheckedConfig, drain_timeout_s: float) -> None:
    """Check that a drain ends before max.poll.interval.ms, since it happens between two polls. Raises SettingError."""
    if (misfit := budget.drain_fits(drain_timeout_s, checked.max_poll_ms)) is not None:
        raise misfit.error()


def shorter_drain(checked: CheckedConfig, drain_s: float) -> Finding | None:
    """The finding that the drain, which the user has not set, is shorter than the default; None = it is not."""
    if drain_s >= budget.DEFAULT_DRAIN_S:
        return None
    return Finding(
        field="drain_timeout_s",
        value=None,
        reason=f"{budget.DEFAULT_DRAIN_S:g} s, its default, and {budget.COMMIT_S:g} s for the commit do not fit into "
        f"max.poll.interval.ms={checked.max_poll_ms}, so a hand-over waits {drain_s:g} s for what runs",
        remedy="raise max.poll.interval.ms, or set drain_timeout_s to what your handlers need",
    )


def _as_read(conf: Mapping[str, object]) -> dict[str, object]:
    """A copy as the client reads it: without values that are None, with the group's id as text, and with the brokers as
    bootstrap.servers only."""
    mine = {name: value for name, value in conf.items() if value is not None}
    if "group.id" in mine:
        mine["group.id"] = str(mine["group.id"])
    if "metadata.broker.list" in mine:
        alias = mine.pop("metadata.broker.list")
        if mine.setdefault("bootstrap.servers", alias) != alias:
            raise SettingError("metadata.broker.list", alias, "it is an alias of bootstrap.servers: set one of them")
    return mine


def _check_names(conf: Mapping[str, object]) -> None:
    for name, example in (("bootstrap.servers", "'broker-1:9092,broker-2:9092'"), ("group.id", "'billing'")):
        value = conf.get(name)
        if name not in conf and (other := name.replace(".", "_")) in conf:
            raise SettingError(other, conf[other], f"librdkafka calls it {name}")
        if not isinstance(value, str) or not value.strip():
            raise SettingError(name, value, f"set it, such as {example}")
    if STATIC_ID in conf:
        check_static_id(STATIC_ID, conf[STATIC_ID])


def _check_owned(conf: Mapping[str, object]) -> None:
    if "default.topic.config" in conf:
        # Its content would bypass every check below. (No value in the message: it is a dictionary of anything.)
        raise SettingError("default.topic.config", "...", "write its properties beside the others")
    for name, remedy in _OWN_CALLBACKS.items():
        if name in conf:
            raise SettingError(name, "...", remedy)
    for name in _OWN_FLAGS:
        if name in conf and as_bool(name, conf[name]):
            raise SettingError(
                name, conf[name], "leave it out: holdfast commits done records, the client all it has read"
            )
    if (begins := conf.get("auto.offset.reset")) is not None and str(begins).lower() not in _BEGINNINGS:
        raise SettingError("auto.offset.reset", begins, "use earliest, latest or error")
    if str(conf.get("offset.store.method", "broker")) != "broker":
        raise SettingError("offset.store.method", conf["offset.store.method"], "leave it out: offsets go to the broker")


def _said_protocol(conf: Mapping[str, object]) -> str | None:
    if "group.protocol" not in conf:
        return None
    said = str(conf["group.protocol"]).strip().lower()
    if said not in ("classic", "consumer"):
        raise SettingError("group.protocol", conf["group.protocol"], "use 'classic' or 'consumer'")
    return said


def _strategies(conf: Mapping[str, object]) -> tuple[str, ...]:
    if "partition.assignment.strategy" not in conf:
        return ()
    names = tuple(each.strip() for each in str(conf["partition.assignment.strategy"]).split(","))
    if not all(each in ("range", "roundrobin", COOPERATIVE) for each in names):
        raise SettingError(
            "partition.assignment.strategy",
            conf["partition.assignment.strategy"],
            f"use range, roundrobin or {COOPERATIVE}: librdkafka has no others, and takes none from Python",
        )
    return names


def _check_sticky(conf: Mapping[str, object], protocol: str | None) -> None:
    """With `sticky` holdfast chooses: settings that choose already have to agree."""
    strategy, assignor = conf.get("partition.assignment.strategy"), conf.get("group.remote.assignor")
    if strategy is not None:
        raise SettingError(
            "partition.assignment.strategy",
            strategy,
            "assignment='sticky' chooses by what the broker can: leave one of the two out, or say assignment='keep'",
        )
    if protocol == "classic":
        raise SettingError(
            "group.protocol",
            conf["group.protocol"],
            "assignment='sticky' takes the consumer protocol where the broker has it: leave one of the two out, or say "
            f"assignment='keep' with partition.assignment.strategy={COOPERATIVE}",
        )
    if assignor is not None and assignor != "uniform":
        raise SettingError(
            "group.remote.assignor", assignor, "assignment='sticky' is uniform: leave it out, or say assignment='keep'"
        )


def _check_consumer_protocol(conf: Mapping[str, object]) -> None:
    for name, remedy in CLASSIC_ONLY.items():
        if name in conf:
            raise SettingError(
                name,
                conf[name],
                f"leave it out: group.protocol=consumer does not know it (librdkafka refuses it); {remedy}",
            )


def _check_times(conf: Mapping[str, object]) -> None:
    session_ms = as_int("session.timeout.ms", conf.get("session.timeout.ms", DEFAULT_SESSION_MS))
    if session_ms <= 0:
        raise SettingError("session.timeout.ms", conf["session.timeout.ms"], "use a positive number")
    if "heartbeat.interval.ms" in conf:
        heartbeat_ms = as_int("heartbeat.interval.ms", conf["heartbeat.interval.ms"])
        if (misfit := budget.heartbeat_fits(heartbeat_ms, session_ms)) is not None:
            raise misfit.error()
    if "max.poll.interval.ms" in conf or "session.timeout.ms" in conf:
        max_poll_ms = as_int("max.poll.interval.ms", conf.get("max.poll.interval.ms", DEFAULT_MAX_POLL_MS))
        if (misfit := budget.session_below_poll(session_ms, max_poll_ms)) is not None:
            raise misfit.error()


def _findings(
    conf: Mapping[str, object], assignment: Assignment | None, protocol: str | None, strategies: tuple[str, ...]
) -> tuple[Finding, ...]:
    found = []
    if assignment is None and protocol != "consumer" and not strategies:
        found.append(
            Finding(
                field="partition.assignment.strategy",
                value=None,
                reason=f"the default, {DEFAULT_STRATEGY}, is eager: every rebalance stops the whole group",
                remedy="say assignment='sticky' (or 'keep', if that is meant). In a running group, members change one "
                f"by one to the consumer protocol (brokers 4.0 and later); to {COOPERATIVE} all have to stop first, "
                "since librdkafka does not mix it with the eager ones",
            )
        )
    if "group.remote.assignor" in conf and protocol != "consumer" and assignment != "sticky":
        found.append(
            Finding(
                field="group.remote.assignor",
                value=conf["group.remote.assignor"],
                reason="only group.protocol=consumer knows it, so it has no effect",
                remedy="leave it out, or set group.protocol=consumer",
            )
        )
    session_ms = as_int("session.timeout.ms", conf.get("session.timeout.ms", DEFAULT_SESSION_MS))
    misfits = [budget.session_allowed(session_ms)]
    if STATIC_ID in conf and protocol != "consumer":
        misfits.append(budget.restart_fits(session_ms))
    found += [_of_misfit(each) for each in misfits if each is not None]
    return tuple(found)


def _of_misfit(misfit: budget.Misfit) -> Finding:
    return Finding(field=misfit.field, value=misfit.value, reason=misfit.effect, remedy=misfit.remedy)


# ---- static members
def check_static_id(field: str, name: object) -> str:
    """Check a static id. Raises SettingError."""
    said = "" if name is None else str(name)
    if not _STATIC_NAME.fullmatch(said) or said in (".", ".."):
        raise SettingError(
            field,
            name,
            "use a name that one member alone has, of 1 to 249 letters, digits, '.', '_' and '-', such as a pod's name",
        )
    return said


def with_static_id(conf: Mapping[str, object], static_id: object) -> dict[str, object]:
    """The configuration with this static id. Raises SettingError."""
    name = check_static_id("static_id", static_id)
    if conf.get(STATIC_ID, name) != name:
        raise SettingError(
            "static_id", static_id, f"{STATIC_ID}={conf[STATIC_ID]!r} says another: leave one of them out"
        )
    return {**conf, STATIC_ID: name}


def asked_static_id(told: Callable[[], str]) -> str:
    """Call the user's function for the static id. Raises SettingError."""
    try:
        return check_static_id("static_id", told())
    except SettingError:
        raise
    except Exception as error:
        raise SettingError(
            "static_id", told, f"it failed ({type(error).__name__}: {error}): let it return this member's name"
        ) from error
