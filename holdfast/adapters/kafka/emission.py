"""From a checked configuration and the broker's features to the client's configuration, with a reason for each key.
Pure."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from holdfast.adapters.kafka.config import (
    CLASSIC_ONLY,
    COOPERATIVE,
    Finding,
    GroupProtocol,
)
from holdfast.adapters.kafka.properties import as_int
from holdfast.errors import SettingError
from holdfast.plugin.budget import DEFAULT_HEARTBEAT_MS, DEFAULT_SESSION_MS, heartbeat_for
from holdfast.plugin.choice import Choice
from holdfast.plugin.librdkafka import FETCHING, START
from holdfast.plugin.secret_names import masked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.adapters.kafka.broker_features import BrokerFeatures
    from holdfast.adapters.kafka.config import CheckedConfig


# Values that are set where the user has set none.
_DEFAULTS: tuple[Choice[object], ...] = (
    Choice(
        "enable.auto.commit",
        False,
        "holdfast commits records that are done; the client would commit all that it has returned",
    ),
    Choice(
        "enable.auto.offset.store",
        False,
        "holdfast stores offsets of records that are done; the client would store all that it has returned",
    ),
    START,
    *FETCHING,
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ClientConfig:
    """The client's configuration. Its repr has no credentials.

    `conf` is for `confluent_kafka.Consumer` and has no `error_cb`: the source sets its own and calls the user's.
    """

    conf: Mapping[str, object]
    protocol: GroupProtocol
    group: str
    #: group.instance.id: a restart within the session timeout moves nothing.
    static_id: str | None
    #: None under the consumer protocol: only the broker knows it.
    session_timeout_s: float | None
    max_poll_interval_s: float
    error_cb: Callable[..., object] | None
    #: Keys that holdfast has set, changed or left out, and why.
    reasons: tuple[Choice[object], ...]
    #: Settings that could be better, from the check and from the broker's features.
    findings: tuple[Finding, ...]

    def __repr__(self) -> str:
        return (
            f"ClientConfig(conf={masked(self.conf)!r}, protocol={self.protocol}, group={self.group!r}, "
            f"static_id={self.static_id!r}, session_timeout_s={self.session_timeout_s}, "
            f"max_poll_interval_s={self.max_poll_interval_s})"
        )


def needs_answer(checked: CheckedConfig) -> bool:
    """Whether `emit` depends on the broker's features: only then the broker has to be asked."""
    return checked.assignment == "sticky" or _says_consumer(checked.conf)


def emit(checked: CheckedConfig, features: BrokerFeatures) -> ClientConfig:
    """Make the client's configuration. Raises SettingError: the broker does not support what the user has set.

    The same input gives the same output: every member of a group that asks the same broker gets the same protocol.
    """
    conf, findings = dict(checked.conf), list(checked.findings)
    reasons: list[Choice[object]] = []
    if _says_consumer(conf) and features.asked and not features.consumer_protocol:
        # With a broker below 4.0 librdkafka raises no error: it looks for another coordinator for ever.
        raise SettingError(
            "group.protocol",
            conf["group.protocol"],
            f"{features.why}; leave it out (assignment='sticky' then takes {COOPERATIVE}), or upgrade the brokers to "
            "4.0 with group.version=1",
        )
    if checked.assignment == "sticky":
        if features.consumer_protocol or _says_consumer(conf):
            _take_consumer(conf, features, reasons, findings)
        else:
            _take_cooperative(conf, features, reasons, findings)
    protocol = _protocol(conf)
    if protocol is not GroupProtocol.CONSUMER:
        _fit_heartbeat(conf, reasons)
    if "group.instance.id" in conf:
        why = "a static member: a restart within the session timeout moves nothing"
        if protocol is GroupProtocol.CONSUMER:
            why += ", which the broker sets (consumer.session.timeout.ms of the group, 45 s by default)"
        reasons.append(Choice("group.instance.id", conf["group.instance.id"], why))
    for default in _DEFAULTS:
        if default.key not in conf:
            conf[default.key] = default.value
            reasons.append(default)
    error_cb = conf.pop("error_cb", None)
    if error_cb is not None and not callable(error_cb):
        raise SettingError("error_cb", error_cb, "use a function of one argument")
    static_id = conf.get("group.instance.id")
    return ClientConfig(
        conf=MappingProxyType(conf),
        protocol=protocol,
        group=checked.group,
        static_id=None if static_id is None else str(static_id),
        session_timeout_s=None if protocol is GroupProtocol.CONSUMER else _session_ms(conf) / 1000,
        max_poll_interval_s=checked.max_poll_ms / 1000,
        error_cb=error_cb,
        reasons=tuple(reasons),
        findings=tuple(findings),
    )


def _take_consumer(
    conf: dict[str, object], features: BrokerFeatures, reasons: list[Choice[object]], findings: list[Finding]
) -> None:
    for name, remedy in CLASSIC_ONLY.items():
        if name in conf:
            value = conf.pop(name)
            why = f"with the consumer protocol the client refuses this setting; {remedy}"
            reasons.append(Choice(name, None, why))
            findings.append(
                Finding(
                    field=name, value=value, reason=f"left out: {why}", remedy="set it there, and leave it out here"
                )
            )
    chosen = (
        Choice(
            "group.protocol", "consumer", f"{features.why}: the broker assigns, and only the partitions that move stop"
        ),
        Choice("group.remote.assignor", "uniform", "balances over all topics and moves as few partitions as it can"),
    )
    for each in chosen:
        if each.key not in conf:
            conf[each.key] = each.value
            reasons.append(each)


def _take_cooperative(
    conf: dict[str, object], features: BrokerFeatures, reasons: list[Choice[object]], findings: list[Finding]
) -> None:
    if conf.pop("group.remote.assignor", None) is not None:
        reasons.append(Choice("group.remote.assignor", None, "it works only with the consumer protocol"))
    conf["partition.assignment.strategy"] = COOPERATIVE
    why = f"{features.why}; this is the only classic strategy that stops only the partitions that move"
    reasons.append(Choice("partition.assignment.strategy", COOPERATIVE, why))
    if not features.asked:
        findings.append(
            Finding(
                field="assignment",
                value="sticky",
                reason=f"{features.why}, so holdfast uses {COOPERATIVE}, which every broker supports",
                remedy="if all brokers are 4.0 or later, set group.protocol=consumer yourself",
            )
        )


def _fit_heartbeat(conf: dict[str, object], reasons: list[Choice[object]]) -> None:
    """Set the heartbeat for a short session: the default interval is too long for it."""
    session_ms = _session_ms(conf)
    if "heartbeat.interval.ms" not in conf and (heartbeat_ms := heartbeat_for(session_ms)) < DEFAULT_HEARTBEAT_MS:
        conf["heartbeat.interval.ms"] = heartbeat_ms
        why = f"a third of session.timeout.ms={session_ms}, so that two heartbeats may be lost; the default is 3000"
        reasons.append(Choice("heartbeat.interval.ms", conf["heartbeat.interval.ms"], why))


def _session_ms(conf: Mapping[str, object]) -> int:
    return as_int("session.timeout.ms", conf.get("session.timeout.ms", DEFAULT_SESSION_MS))


def _says_consumer(conf: Mapping[str, object]) -> bool:
    return str(conf.get("group.protocol", "")).strip().lower() == "consumer"


def _protocol(conf: Mapping[str, object]) -> GroupProtocol:
    if _says_consumer(conf):
        return GroupProtocol.CONSUMER
    # The check allows the cooperative strategy only without others.
    return (
        GroupProtocol.COOPERATIVE
        if str(conf.get("partition.assignment.strategy", "")).strip() == COOPERATIVE
        else GroupProtocol.EAGER
    )
