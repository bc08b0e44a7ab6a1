"""The limit of dead letters: if most records of a handler fail, the handler is broken, not the records.

`engine/record/letter_brakes.py` counts and pauses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from holdfast.errors import SettingError


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterLimit:
    """How many records a handler may send to its dead letter topic before the handler is taken to be broken.

    The record that would exceed the limit is not sent to the dead letter topic, and waits. Each process counts for
    itself.

    Raises:
        SettingError: a value that cannot work.
    """

    #: Letters without a successfully handled record between them.
    in_a_row: int = 100
    #: The share of the records that ended within `over_s` that may be letters; 1.0: only `in_a_row` counts.
    share: float = 0.5
    #: Seconds over which the share is measured.
    over_s: float = 60.0
    #: The share counts once at least this many records have ended within `over_s`.
    at_least: int = 200
    #: "pause": the app reads no more of the handler's topics and writes none of its dead letters, until a record that
    #: has failed is handled. Every `pause_s` the next of these records is tried again. "stop": `run()` raises.
    then: Literal["pause", "stop"] = "pause"
    #: Seconds between two tries during a pause.
    pause_s: float = 60.0

    def __post_init__(self) -> None:
        for name in ("in_a_row", "at_least"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SettingError(f"dead_letter_limit.{name}", value, "use a whole number, 1 or more")
        for name, most in (("share", 1.0), ("over_s", math.inf), ("pause_s", math.inf)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
                at_most = "" if most == math.inf else f" and {most:g} at most"
                raise SettingError(f"dead_letter_limit.{name}", value, f"use a number above 0{at_most}")
        if self.then not in ("pause", "stop"):
            raise SettingError("dead_letter_limit.then", self.then, "use 'pause' or 'stop'")


_LIMIT, _LIMIT_OF_LEASED = DeadLetterLimit(), DeadLetterLimit(then="stop")


def limit_for(given: DeadLetterLimit | Literal["default"] | None, *, leased: bool) -> DeadLetterLimit | None:
    """The limit of one handler, from its argument. `leased`: its records are leased. Raises SettingError."""
    if given == "default":
        return _LIMIT_OF_LEASED if leased else _LIMIT
    if not isinstance(given, DeadLetterLimit | None):
        raise SettingError("dead_letter_limit", given, "use DeadLetterLimit(...), or None for however many")
    if leased and given is not None and given.then == "pause":
        # The waiting records would fill the process, and stop all other handlers.
        raise SettingError("dead_letter_limit.then", "pause", "use 'stop': a source of leased records delivers on")
    return given
