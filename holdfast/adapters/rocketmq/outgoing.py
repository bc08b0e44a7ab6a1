"""Messages to send: checks them before anything is sent, and compresses large values. Pure.

A RocketMQ broker (5.5.0) acknowledges a message before its queue shows it, and accepts a message for a topic that is
closed to writing. It fails at a message without a body, unless it comes in a batch: therefore a letter without a value
is sent as a batch of one.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.headers import RESERVED, fits
from holdfast.adapters.rocketmq.remoting.messages import DELAY, KEYS, MOST_PROPERTIES_BYTES, TAGS, UNIQUE_KEY
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The default messageDelayLevel of brokers; the first is level 1.
DELAYS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h".split()  # noqa: SIM905 - as the broker writes it
#: The sysFlag of a body compressed by zlib: 1 = compressed, and its kind (3 << 8). Level 5, as in Java's producers.
ZLIB, _LEVEL = 1 | 3 << 8, 5
#: Larger values are compressed, as in Java's producers.
COMPRESS_ABOVE_BYTES = 4096

_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
# Room for properties that the broker adds to a message (INNER_..., CLUSTER, __CRC32#, a trace's).
_ROOM_BYTES = 512
# Bytes of a message in a batch besides body and properties: size, magic, CRC, flag, two lengths.
_BATCH_HEAD_BYTES = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message to send. Frozen; any thread.

    Raises:
        SettingError: RocketMQ, or its tools, cannot process it.
    """

    value: bytes
    #: Business keys, by which RocketMQ's tools find the message. No key may contain a blank.
    keys: str | Sequence[str] = ()
    #: The tag by which consumers may filter.
    tag: str | None = None
    #: Your own properties. RocketMQ's names are refused.
    properties: Mapping[str, str] = field(default_factory=dict)
    #: 0: at once; 1 to 18: after 1s 5s 10s 30s 1m ... 2h, if the broker has its default levels.
    delay_level: int = 0
    #: The message's UNIQ_KEY, to send it again after an error; None: a new one is made.
    unique_key: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.value, bytes):
            raise SettingError("value", type(self.value).__name__, "a message's value is bytes: encode it")
        if not self.value:
            raise SettingError("value", self.value, "RocketMQ's brokers take no empty message: give it a byte")
        if not 0 <= self.delay_level <= len(DELAYS):
            raise SettingError(
                "delay_level", self.delay_level, f"0 = at once, 1 to {len(DELAYS)} = {DELAYS[0]} to {DELAYS[-1]}"
            )
        for each in self.all_keys:
            if not each or not fits(each) or " " in each:
                raise SettingError("keys", each, "a key is not empty and has no blank: blanks separate keys")
        if self.tag is not None and (not self.tag or not fits(self.tag) or "|" in self.tag or self.tag.strip() == "*"):
            raise SettingError(
                "tag", self.tag, "one tag, not empty, without '|', which separates tags in subscriptions"
            )
        if self.unique_key is not None and (not self.unique_key or not fits(self.unique_key)):
            raise SettingError("unique_key", self.unique_key, "give the one that an error told, or leave it out")
        for name, value in self.properties.items():
            _check_property(name, value)

    @property
    def all_keys(self) -> Sequence[str]:
        """The message's keys as a sequence, also if there is only one."""
        return (self.keys,) if isinstance(self.keys, str) else self.keys

    def told(self, unique_key: str) -> dict[str, str]:
        """All properties of the message. Raises SettingError: together they are too long."""
        found = {**self.properties, UNIQUE_KEY: self.unique_key or unique_key}
        if self.all_keys:
            found[KEYS] = " ".join(self.all_keys)
        if self.tag is not None:
            found[TAGS] = self.tag
        if self.delay_level:
            found[DELAY] = str(self.delay_level)
        check_properties(found)
        return found


def _check_property(name: object, value: object) -> None:
    if not isinstance(name, str) or not isinstance(value, str):
        raise SettingError("properties", {name: value}, "names and values are text: encode what is not")
    if name in RESERVED:
        helps = {
            "KEYS": "give keys=",
            "TAGS": "give tag=",
            "DELAY": "give delay_level=",
            "UNIQ_KEY": "give unique_key=",
        }
        raise SettingError("properties", name, f"that name is RocketMQ's own: {helps.get(name, 'take another')}")
    if not name or not value or not fits(name) or not fits(value):
        raise SettingError(
            "properties", {name: value}, "neither is empty, and neither has the bytes 1 or 2, which separate them"
        )


def check_properties(properties: Mapping[str, str]) -> None:
    """Raises SettingError: the properties are too long for the log."""
    size = properties_bytes(properties)
    if size > MOST_PROPERTIES_BYTES - _ROOM_BYTES:
        raise SettingError(
            "properties",
            f"{size:,} bytes",
            f"they take {MOST_PROPERTIES_BYTES - _ROOM_BYTES:,} at most: put more into the value",
        )


def properties_bytes(properties: Mapping[str, str]) -> int:
    """The size of the properties in the log."""
    return sum(len(name.encode()) + len(value.encode()) + 2 for name, value in properties.items())


def check_topic(topic: str) -> None:
    """Raises SettingError: no topic can have this name."""
    if _TOPIC.fullmatch(topic) is None:
        raise SettingError("topic", topic, "1 to 127 characters of a-z, A-Z, 0-9, _ - % |")


def packed(value: bytes, above_bytes: int | None) -> tuple[bytes, int]:
    """The body as it is sent, and its sysFlag. Compressed if the value is above the limit and gets smaller by it."""
    if above_bytes is None or len(value) <= above_bytes:
        return value, 0
    small = zlib.compress(value, _LEVEL)
    return (small, ZLIB) if len(small) < len(value) else (value, 0)


def check_size(size_bytes: int, at_most_bytes: int, what: str) -> None:
    """Raises SettingError: the broker would refuse this size."""
    if size_bytes > at_most_bytes:
        raise SettingError(
            what,
            f"{size_bytes:,} bytes",
            f"brokers take {at_most_bytes:,} at most: send less, or raise the brokers' maxMessageSize and this "
            "producer's max_message_bytes",
        )


def batch_bytes(values: Sequence[bytes], properties: Sequence[Mapping[str, str]]) -> int:
    """The size of a batch, as the broker measures it."""
    return sum(
        _BATCH_HEAD_BYTES + len(value) + properties_bytes(each) for value, each in zip(values, properties, strict=True)
    )
