"""`--app billing:app`: the broker, the group, the store and the topics as the application's own program has them. The
application is imported, and not run. What the command line says wins, and the environment stands behind both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.cli.options import DEFAULT_NAMESPACE
from holdfast.adapters.cli.running.application import load
from holdfast.adapters.cli.running.sources import broker_of, why_no_offsets
from holdfast.dedup.none import NoClaims
from holdfast.dedup.redis_existing import place_of
from holdfast.dedup.redis_store import RedisClaims
from holdfast.errors import SettingError

if TYPE_CHECKING:
    import argparse

    from holdfast.plugin.app_parts import AppParts

#: Options of which each names a broker.
_BROKERS = ("bootstrap", "kafka_config", "namesrv", "rocketmq_config")


def take(options: argparse.Namespace) -> None:
    """Give the command what its line does not say. Raises SettingError: it is no app, or has several topics;
    ImportFailed."""
    said = vars(options)
    parts = load(options.app, factory=options.factory, folder=options.app_dir).parts
    if "group" in said and (why := why_no_offsets(parts.source)):
        raise SettingError("--app", options.app, why)
    if not any(map(said.get, _BROKERS)):
        options.broker = broker_of(parts.source)
    if not said.get("group", "not asked for"):
        options.group = parts.source.group
    if said.get("topic", "not asked for") is None:
        options.topic = _topic(parts, options)
    if said.get("origin", ()) is None and not said.get("to") and said.get("app_topic") == "letters":
        options.origin = _origins(parts, options.topic)
    _take_store(parts, options)


def _topic(parts: AppParts, options: argparse.Namespace) -> str:
    if options.app_topic == "letters":
        return _one(sorted(parts.routes.letters), "dead letter topic", options.app)
    return _one([each for each in parts.routes.topics if not each.startswith("^")], "topic", options.app)


def _one(found: list[str], what: str, app: str) -> str:
    if len(found) != 1:
        why = f"has several {what}s: name one of {', '.join(found)}" if found else f"names no {what}: name one"
        raise SettingError("--topic", None, f"{app} {why}")
    return found[0]


def _origins(parts: AppParts, letters: str) -> list[str] | None:
    """The topics whose letters go there."""
    found = [topic for each in parts.routes.handlers if each.dead_letter == letters for topic in each.topics]
    return sorted(each for each in found if not each.startswith("^")) or None


def _take_store(parts: AppParts, options: argparse.Namespace) -> None:
    """The Redis of the app, where the command needs one, or that there is none. Of RocketMQ it has the owners, too."""
    said = vars(options)
    wants = "redis" in said.get("needed", ()) or (options.broker is not None and options.broker.rocketmq is not None)
    if not wants or said.get("redis") or said.get("no_store"):
        return
    if isinstance(parts.claims, NoClaims):
        options.no_store = True
    elif isinstance(parts.claims, RedisClaims) and (place := place_of(parts.claims)) is not None:
        options.redis, namespace = place
        if options.namespace == DEFAULT_NAMESPACE:
            options.namespace = namespace
