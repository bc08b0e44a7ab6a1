"""librdkafka's properties: which exist, which only a consumer knows, and how a value is read.

The names are those of its CONFIGURATION.md (2.16). Secrets: plugin/secret_names.py.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from holdfast.adapters.kafka._client import Consumer, KafkaException
from holdfast.errors import SettingError
from holdfast.plugin.librdkafka import PROPERTIES
from holdfast.plugin.secret_names import masked

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The port of an address that names none.
DEFAULT_PORT = 9092
#: Properties that only a consumer knows (column C). A producer or an admin client logs a warning for each.
CONSUMER_ONLY = frozenset(
    {
        "auto.commit.enable",
        "auto.commit.interval.ms",
        "auto.offset.reset",
        "check.crcs",
        "consume.callback.max.messages",
        "coordinator.query.interval.ms",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "fetch.error.backoff.ms",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "fetch.min.bytes",
        "fetch.queue.backoff.ms",
        "fetch.wait.max.ms",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.protocol.type",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "isolation.level",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "offset.store.method",
        "offset.store.path",
        "offset.store.sync.interval.ms",
        "on_commit",
        "partition.assignment.strategy",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "session.timeout.ms",
    }
)

# Known to every client, but meant for this consumer only: its callbacks, and whether subscribing may create topics.
_ABOUT_THIS_CONSUMER = frozenset(
    {"allow.auto.create.topics", "error_cb", "statistics.interval.ms", "stats_cb", "throttle_cb"}
)

_TRUE = frozenset({"true", "t", "1"})
_FALSE = frozenset({"false", "f", "0"})

#: No property has this name. The client reads one property after the other. It comes to this one only if it knows all
#: before it, and then makes no client.
_NO_PROPERTY = "holdfast.last"
_UNKNOWN = re.compile(r'No such configuration property: "(.*)"')
#: Properties that are left out of the check: the client would load these libraries.
_NOT_TRIED = ("plugin.library.paths",)
_CLOSE = 0.75


def for_helpers(conf: Mapping[str, object]) -> dict[str, object]:
    """The part of a consumer's configuration that a producer or an admin client takes over: addresses and credentials.
    Unknown properties are included, because later versions mostly add security properties."""
    return {
        name: value for name, value in conf.items() if name not in CONSUMER_ONLY and name not in _ABOUT_THIS_CONSUMER
    }


def addresses(conf: Mapping[str, object]) -> str:
    """The brokers as the user wrote them, for messages."""
    return str(conf.get("bootstrap.servers") or conf.get("metadata.broker.list") or "")


def as_bool(name: str, value: object) -> bool:
    """A flag as librdkafka reads it. Raises SettingError."""
    said = str(value).strip().lower()
    if said in _TRUE:
        return True
    if said in _FALSE:
        return False
    raise SettingError(name, value, "use true or false")


def as_int(name: str, value: object) -> int:
    """A whole number, or a text with one. Raises SettingError."""
    try:
        return int(str(value).strip())
    except ValueError:
        raise SettingError(name, value, "use a whole number") from None


def check_known(conf: Mapping[str, object]) -> None:
    """Raises SettingError: the client has no property of that name. Needs no connection (0.1 ms)."""
    found = None
    try:
        Consumer({name: value for name, value in conf.items() if name not in _NOT_TRIED} | {_NO_PROPERTY: "x"})
    except KafkaException as error:
        found = _UNKNOWN.match(error.args[0].str())
    if found is None or found[1] == _NO_PROPERTY:
        return  # a wrong value raises when the client begins
    name = found[1]
    raise SettingError(name, masked(conf).get(name), f"librdkafka has no such property: {_meant(name)}")


def _meant(name: str) -> str:
    near = difflib.get_close_matches(re.sub(r"[_-]", ".", name), PROPERTIES, 1, _CLOSE)
    return f"did you mean {near[0]}?" if near else "check the spelling, or leave it out"
