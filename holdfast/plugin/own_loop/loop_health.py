"""LoopHealth: the health of the user's loop, for probes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from holdfast.plugin.engine.lifecycle import longest_start_s
from holdfast.plugin.observe.health import HealthCheck
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from holdfast.plugin.observe.health import Health
    from holdfast.plugin.own_loop.driven import Driven


class LoopHealth:
    """The health of one loop. Any thread but that of an event loop.

    Args:
        driven: the engine that the loop drives.
        may_be_away_s: the longest time between two calls before the broker gives the partitions to other members.
    """

    def __init__(self, driven: Driven, may_be_away_s: float) -> None:
        self._driven, self._may_be_away_s = driven, may_be_away_s
        self._check, self._asked = HealthCheck(SYSTEM_CLOCK), threading.Lock()

    def judge(self, *, stall_s: float, silent_s: float) -> Health:
        """See `Holdfast.health`. Not live: a loop that has made no call for so long that the broker takes its
        partitions away; one that is inside of one call for `silent_s` without a turn; one whose calls raise because the
        consumer has failed."""
        away_s = self._driven.away_s
        with self._asked:
            return self._check.judge(
                self._driven.snapshot(),
                stall_s=stall_s,
                silent_s=silent_s,
                start_s=longest_start_s(self._driven.parts.settings),
                away_s=away_s if away_s > max(silent_s, self._may_be_away_s) else 0.0,
                raises=True,
            )
