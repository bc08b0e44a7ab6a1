"""Delays as settings write them, and as the names of retry topics have them. Pure."""

from __future__ import annotations

import re
from datetime import timedelta

from holdfast.errors import SettingError

_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
#: The units in names, the largest first: the first that divides the delay is used.
_NAMES_MS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))


def seconds_of(delay: str | float | timedelta) -> float:
    """A delay in seconds. Raises SettingError: not a delay, or below a millisecond."""
    if isinstance(delay, timedelta):
        seconds = delay.total_seconds()
    elif isinstance(delay, str):
        found = _TEXT.fullmatch(delay.strip())
        seconds = float(found[1]) * _UNITS_S[found[2]] if found else 0.0
    else:
        try:
            seconds = float(delay)
        except TypeError:
            seconds = 0.0
    if not 0.001 <= seconds < float("inf"):
        raise SettingError("topics", delay, 'name delays: "10s", "1min", "2h", seconds, or a timedelta; 1 ms or more')
    return seconds


def delay_in(topic: str, group: str) -> float | None:
    """The delay in seconds that the name of a group's retry topic has, if it follows the default of `Retry.topic_name`;
    None: the topic is none of them."""
    _, between, delay = topic.rpartition(f".{group}.retry.")
    return seconds_of(delay) if between and _TEXT.fullmatch(delay) else None


def name_of(seconds: float) -> str:
    """A delay as a topic's name has it: `10s`, `10min`."""
    ms = round(seconds * 1000)
    unit, factor = next(each for each in _NAMES_MS if ms % each[1] == 0)
    return f"{ms // factor}{unit}"
