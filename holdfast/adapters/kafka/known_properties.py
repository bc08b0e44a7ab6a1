"""Which properties the client knows. Checked where the source is made, long before the client begins."""

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

#: No property has this name. The client reads one property after the other. It comes to this one only if it knows all
#: before it, and then makes no client.
_NONE_OF_ITS_OWN = "holdfast.last"
_UNKNOWN = re.compile(r'No such configuration property: "(.*)"')
#: Properties that are left out of the check: the client would load these libraries.
_NOT_TRIED = ("plugin.library.paths",)
_CLOSE = 0.75


def check_known(conf: Mapping[str, object]) -> None:
    """Raises SettingError: the client has no property of that name. Needs no connection (0.1 ms)."""
    found = None
    try:
        Consumer({name: value for name, value in conf.items() if name not in _NOT_TRIED} | {_NONE_OF_ITS_OWN: "x"})
    except KafkaException as error:
        found = _UNKNOWN.match(error.args[0].str())
    if found is None or found[1] == _NONE_OF_ITS_OWN:
        return  # a wrong value raises when the client begins
    name = found[1]
    raise SettingError(name, masked(conf).get(name), f"librdkafka has no such property: {_meant(name)}")


def _meant(name: str) -> str:
    near = difflib.get_close_matches(re.sub(r"[_-]", ".", name), PROPERTIES, 1, _CLOSE)
    return f"did you mean {near[0]}?" if near else "check the spelling, or leave it out"
