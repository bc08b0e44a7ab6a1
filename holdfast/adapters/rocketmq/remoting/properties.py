"""A message's properties as RocketMQ writes them: name 0x01 value 0x02, in UTF-8."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping

UNIQUE_KEY: Final = "UNIQ_KEY"
KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
DELAY: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
#: How often a message has been tried, as a header of its record: the message has it in its frame, not here.
RECONSUME_TIMES: Final = "RECONSUME_TIMES"

MOST_BYTES: Final = 32767  # the length is an i16

_SEPARATORS = re.compile("[\x01\x02]")


def read(text: str) -> dict[str, str]:
    """Name to value. What has no name, or no value, is left out, as Java's reader does; of several the last counts, but
    of identities the first: a batch's own may follow (4.9)."""
    found: dict[str, str] = {}
    for pair in text.split("\x02"):
        name, _, value = pair.partition("\x01")
        if name and value and not (name == UNIQUE_KEY and name in found):
            found[name] = value
    return found


def write(properties: Mapping[str, str]) -> str:
    """The text for the wire. Raises SettingError for what cannot be told apart any more, or is too long."""
    for name, value in properties.items():
        if not name or _SEPARATORS.search(name) or _SEPARATORS.search(value):
            raise SettingError("properties", {name: value}, "a name is not empty, and neither has the bytes 1 and 2")
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    if len(text.encode()) > MOST_BYTES:
        raise SettingError(
            "properties", f"<{len(text)} characters>", f"{MOST_BYTES} bytes at most: put it into the body"
        )
    return text
