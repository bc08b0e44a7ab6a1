"""Ramp: after a takeover the intake grows step by step, instead of taking the whole backlog at once.

*Intake* is the rate of records admitted to handlers, in records a second, measured over a second. The *steady* intake
is the rate at which producers send to the partitions that this process owns now. The engine's part is
`engine/flow/ramp_rate.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from holdfast.errors import SettingError
from holdfast.plugin.setting_names import known


@known
@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """How the intake grows after this process has got partitions.

    For `over_s`, or until the lag is worked off, the limit is `headroom` times the steady intake. Then the limit
    doubles four times a second as long as handlers keep up, and after another `over_s` it ends. If next to nothing is
    produced, there is no steady intake: the limit begins at `floor_per_s` and doubles at once.

    The ramp is for takeovers. It does not limit partitions in which the group has no committed offset, nor the few
    seconds of records that an orderly hand-over leaves behind. It does not limit a backlog of two minutes or more while
    this process has no steady intake yet: no consumer can have had records of that age in hand, so the whole group
    starts.

    Raises:
        SettingError: a value that cannot work.
    """

    #: Records a second that pass in any case, also from newly assigned partitions.
    floor_per_s: float = 50.0
    #: The limit as a multiple of the steady intake: the part above 1 works the backlog off.
    headroom: float = 1.4
    #: Seconds that the limit lasts, and then at most the seconds that it doubles.
    over_s: float = 30.0

    def __post_init__(self) -> None:
        for name, least in (("floor_per_s", 0.0), ("headroom", 1.0), ("over_s", 0.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least < value < math.inf:
                raise SettingError(f"ramp.{name}", value, f"use a number above {least:g}; ramp=None does without")
