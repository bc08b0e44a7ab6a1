"""The health of a loop that is not ours, for probes."""

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
    """Any thread but that of an event loop.

    Args:
        driven: the engine in that loop's hands.
        may_be_away_s: how long the loop may be with what it got, before the broker gives its partitions to others.
    """

    def __init__(self, driven: Driven, may_be_away_s: float) -> None:
        self._driven, self._may_be_away_s = driven, may_be_away_s
        self._check, self._asked = HealthCheck(SYSTEM_CLOCK), threading.Lock()

    def judge(self, *, stall_s: float, silent_s: float) -> Health:
        """See `Holdfast.health`. A loop that has not come back when the broker takes its partitions away is not live,
        nor is one that is inside of one call for `silent_s` and does not turn, nor one whose calls raise what the
        consumer has failed with."""
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
