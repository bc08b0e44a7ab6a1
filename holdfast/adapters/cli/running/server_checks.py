"""Checks that ask the broker and the store of an app, before it is deployed. They join no group and write nothing."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from holdfast.adapters.cli.output import count
from holdfast.adapters.cli.running.check import Check
from holdfast.adapters.cli.running.sources import look_at
from holdfast.adapters.sql.store import SqlPositions
from holdfast.dedup.memory import MemoryClaims
from holdfast.dedup.none import NoClaims
from holdfast.dedup.redis_store import RedisClaims
from holdfast.errors import HoldfastError
from holdfast.plugin.listening import await_listener
from holdfast.timing import Deadline
from holdfast.tools.advice import doctor
from holdfast.tools.advice.doctor import Circumstances, Client, ClientConf, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from holdfast.plugin.app_parts import AppParts
    from holdfast.plugin.settings import Settings
    from holdfast.tools.advice.doctor import Finding
    from holdfast.tools.ports import SourceLook

#: Topics that a pattern matches are shown up to so many.
_SHOWN = 5


def of_source(parts: AppParts, timeout_s: float, *, offline: bool) -> Iterator[Check]:
    """The broker, the configuration for it, and the topics. Not the broker and the topics, if `offline`."""
    try:
        look = look_at(parts.source)
    except HoldfastError as error:
        yield Check("configuration", "error", str(error))
        return
    if look is None:
        why = f"a {type(parts.source).__name__} cannot be checked from outside"
        yield Check("broker", "skipped", why)
        return
    with closing(look):
        reached = False
        if not offline:
            broker = _reach(look, timeout_s)
            yield broker
            reached = broker.result == "ok"
        yield from _configuration(look, parts)
        if reached:
            yield from _topics(look, parts, timeout_s)
        elif not offline:
            yield Check("topic", "skipped", "the broker was not reached")


def of_store(parts: AppParts) -> Check:
    """The store of claims."""
    claims = parts.claims
    if isinstance(claims, NoClaims):
        return Check("store", "ok", "none, as claims=None says")
    if isinstance(claims, MemoryClaims):
        return Check("store", "warning", "MemoryClaims is in this process alone, for tests: use RedisClaims")
    if isinstance(claims, SqlPositions):
        return _looked_at(claims.look)
    if not isinstance(claims, RedisClaims):
        return Check("store", "skipped", f"a {type(claims).__name__} cannot be checked from outside")
    return _looked_at(claims.look)


def _looked_at(look: Callable[[], str]) -> Check:
    try:
        return Check("store", "ok", look())
    except HoldfastError as error:
        return Check("store", "error", str(error))


def _reach(look: SourceLook, timeout_s: float) -> Check:
    try:
        await_listener(look.addresses, look.default_port, timeout_s)
        return Check("broker", "ok", look.reach(Deadline(timeout_s)))
    except HoldfastError as error:
        return Check("broker", "error", str(error))


def _configuration(look: SourceLook, parts: AppParts) -> Iterator[Check]:
    try:
        configured = look.configuration()
    except HoldfastError as error:
        yield Check("configuration", "error", str(error))
        return
    found = [] if configured.conf is None else _judged(configured.conf, parts.fitted)
    for each in found:
        detail = f"{each.where}: {each.found}: {each.why}; {each.remedy} [{each.rule}]"
        yield Check("configuration", "error" if each.severity is Severity.ERROR else "warning", detail)
    judged = {each.where for each in found}
    warnings = [text for setting, text in configured.warnings.items() if setting not in judged]
    for text in warnings:
        yield Check("configuration", "warning", text)
    if not found and not warnings and configured.conf is not None:
        yield Check("configuration", "ok", "holdfast doctor finds nothing")


def _judged(conf: Mapping[str, object], settings: Settings) -> list[Finding]:
    """Ask the doctor, and leave its notes out."""
    circumstances = Circumstances(
        workers=max(settings.workers, 1), drain_s=settings.drain_s, polls_meanwhile=settings.workers > 0
    )
    texts = {name: value for name, value in conf.items() if not callable(value)}
    findings = doctor.examine_conf(ClientConf(texts, client=Client.HOLDFAST, circumstances=circumstances))
    return [each for each in findings if each.severity is not Severity.NOTE]


def _topics(look: SourceLook, parts: AppParts, timeout_s: float) -> Iterator[Check]:
    for topic in parts.routes.topics:
        yield _topic(look, topic, topic, timeout_s)
    delays = parts.routes.delays
    # RocketMQ's own (%DLQ%...) are made by their brokers.
    for topic in (each for each in parts.routes.targets if not each.startswith("%")):
        called = f"{topic} ({'retries' if topic in delays else 'dead letters'})"
        found = _topic(look, topic, called, timeout_s)
        yield found
        if found.result == "ok":
            yield from _flaws(look, topic, delays.get(topic), timeout_s)


def _topic(look: SourceLook, topic: str, called: str, timeout_s: float) -> Check:
    try:
        if not topic.startswith("^"):
            return Check("topic", "ok", f"{called}: {count(look.partitions(topic, Deadline(timeout_s)), 'partition')}")
        found = look.matching(topic, Deadline(timeout_s))
    except HoldfastError as error:
        return Check("topic", "error", f"{called}: {error}")
    if not found:
        return Check("topic", "warning", f"{called}: no topic matches it now")
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return Check("topic", "ok", f"{called}: {', '.join(found[:_SHOWN])}{more}")


def _flaws(look: SourceLook, topic: str, delay_s: float | None, timeout_s: float) -> Iterator[Check]:
    """Whether a topic keeps what waits in it."""
    try:
        for flaw in look.flaws(topic, delay_s, Deadline(timeout_s)):
            yield Check("topic", "error" if flaw.fatal else "warning", str(flaw))
    except HoldfastError as error:
        yield Check("topic", "warning", f"whether {topic} keeps its records is not known: {error}")
