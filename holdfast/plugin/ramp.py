"""Ramp: after a takeover the intake grows to what there is to do, instead of taking the whole backlog at once.

*Intake* is what is admitted to handlers, in records a second over a second. What it is held to after a takeover is
the *steady* intake: what producers send to the partitions that are owned now. The engine's side of it is
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
    """How the intake grows after partitions have come.

    It is held to `headroom` times the steady intake for `over_s`, or until the lag is worked off, if that is earlier.
    From then on it doubles four times a second as long as handlers keep up, and after another `over_s` nothing holds
    it. Where next to nothing is produced there is no steady intake: it begins at `floor_per_s` and doubles at once.

    It is about takeovers. Not held are partitions in which the group begins, the few seconds that a hand-over in good
    order leaves behind, and what has waited for so long that nobody can have had it in hand (two minutes' worth), where
    this process has no steady intake yet: then the whole group starts.

    Raises:
        SettingError: a value that cannot work.
    """

    #: Records a second that are let through in any case, of partitions that came too.
    floor_per_s: float = 50.0
    #: How many times the steady intake may be taken: what is above 1 works the backlog off.
    headroom: float = 1.4
    over_s: float = 30.0

    def __post_init__(self) -> None:
        for name, least in (("floor_per_s", 0.0), ("headroom", 1.0), ("over_s", 0.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least < value < math.inf:
                raise SettingError(f"ramp.{name}", value, f"use a number above {least:g}; ramp=None does without")
