"""Climb and Pace: compute how the intake grows after a takeover (the policy `Ramp`). Pure: callers pass times.

At first the limit is the *steady* intake: the rate at which producers write to the partitions that are owned now.
Partitions that stay take what they need of it, and are never held; new ones share the rest (`waiting.py`).

The limit follows that rate down as well as up: the first look covers a twentieth of a second, and a burst in it would
count for the whole backlog otherwise. The limit never falls below its start, nor below what it has doubled to.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.plugin.settings import Ramp

#: Seconds for which an unused allowance is kept. One poll may bring all of it.
_BURST_S = 0.05
#: The first doubling waits until the production rate is known, each later one until handlers show whether they keep up.
_MEASURE_S = 0.5
_DOUBLE_S = 0.25
#: Handlers keep up if they have ended this part of what was admitted meanwhile: one partition that is stuck says
#: nothing of the others. The limit doubles only if this part of the allowance was used.
_PART = 0.5
#: A lag below this many seconds of the allowance, or this many records, counts as none.
_NO_LAG_S = 0.05
_NO_LAG = 10
#: Where the source cannot tell the lag: there is none if nothing was held back for this long.
_UNHINDERED_S = 1.0
#: Partitions that stay may exceed the rate; new ones wait for it, this many seconds at most.
_DEBT_S = 1.0
#: The lag in seconds of production: a graceful hand-over leaves no more than the first. The second says that no member
#: had these partitions before, since the group does not miss a member for so long.
_HAND_OVER_S, _NOBODY_S = 3.0, 120.0


class Climb:
    """The growing limit of the intake. `over`: there is no limit any more. One thread."""

    def __init__(self, policy: Ramp | None) -> None:
        self._policy = policy
        self.over = True
        #: The allowance was used up once, so records may have waited.
        self.held = False
        #: The limit, in records a second. It follows the production rate, which is known roughly at first.
        self.rate = 0.0
        #: `rate` never falls below this: where it began, or what it has doubled to.
        self._least = 0.0
        #: The production rate, or the intake before. None: not known (yet), or next to nothing.
        self.steady: float | None = None
        self._history = 0.0
        self._began = self._ended = 0.0
        #: The time at which the lag was known first; it was compared with the production rate.
        self._known_at: float | None = None
        self._judged = False
        self._tokens = self._floor_tokens = 0.0
        self._filled_at = self._held_at = 0.0
        self._total = self._came = 0
        #: The last time at which doubling was considered, and the records admitted and ended by then.
        self._since, self._admitted, self._ended_then = 0.0, 0, 0

    def begin(self, now: float, total: int, ended: int, history_per_s: float) -> None:
        """Partitions came. `total`: records admitted so far; `history_per_s`: the intake of late, 0 = not known."""
        if self._policy is None:
            return
        if self.over:
            self.over, self.held, self.steady = False, False, None
            self._history = history_per_s
            self.rate = self._least = max(self._policy.floor_per_s, history_per_s)
            self._tokens, self._total, self._filled_at, self._held_at = 0.0, total, now, now
            self._floor_tokens, self._came = 0.0, 0
        self._began, self._known_at, self._judged = now, None, False
        self._since, self._admitted, self._ended_then = now, total, ended

    def room(self, now: float, total: int) -> int:
        """The records of any partition that may be admitted now, after `total` so far."""
        taken, left = self._fill(now, total)
        self.held = self.held or (taken > 0 and left < 1)
        if left < _burst(self.rate) / 2:
            self._held_at = now
        return max(0, int(self._tokens))

    def room_for_new(self, now: float, total: int, came: int) -> int:
        """The records of new partitions that may be admitted now: the rest of the rate, at least the floor.

        Args:
            now: by the engine's clock.
            total: records admitted so far.
            came: those of them that are of partitions that came.
        """
        policy = self._policy
        if policy is None:
            raise AssertionError(self)
        left = max(0.0, self._floor_tokens - (came - self._came))
        earned = (now - self._filled_at) * policy.floor_per_s
        self._floor_tokens = min(left + earned, _burst(policy.floor_per_s))
        self._came = came
        self._fill(now, total)
        return max(0, int(self._tokens), int(self._floor_tokens))

    def _fill(self, now: float, total: int) -> tuple[int, float]:
        """Subtract what was taken since the last time, then add what was earned. Returns what was taken, and the rest
        of the last allowance."""
        taken = total - self._total
        # Taken first, earned afterwards: the bound of a burst would swallow what is earned while they are taken.
        left = max(-self.rate * _DEBT_S, self._tokens - taken)
        self._tokens = min(left + (now - self._filled_at) * self.rate, _burst(self.rate))
        self._filled_at, self._total = now, total
        return taken, left

    def look(
        self,
        now: float,
        total: int,
        ended: int,
        *,
        lag: float | None,
        produced_per_s: float | None,
        produced_new_per_s: float | None = None,
    ) -> None:
        """Go on with what is known now.

        Args:
            now: by the engine's clock.
            total: records admitted so far.
            ended: how many of them have left the process.
            lag: records to admit until nothing of what came is behind; None = the source cannot tell, inf = not known
                right now.
            produced_per_s: what comes in for the partitions that are owned; None = not known.
            produced_new_per_s: the same for those of them that came.
        """
        policy = self._policy
        if self.over or policy is None:
            return
        steady = produced_per_s if produced_per_s is not None else self._history
        if steady * policy.headroom >= policy.floor_per_s:
            self.steady = steady
        cap = (self.steady or 0.0) * policy.headroom
        # The excess over the production rate, and over the last limit, that one second may take.
        at_once = max(_NO_LAG, self.rate * _NO_LAG_S, cap - max(self.rate, self.steady or 0.0))
        unhindered = now - self._held_at >= _UNHINDERED_S if lag is None else lag <= at_once
        if unhindered or now - self._began >= 2 * policy.over_s or self._no_takeover(now, lag, produced_new_per_s):
            self.over, self._ended = True, now
            return
        self.rate = max(self._least, cap)
        if self.steady is not None and now - self._began < policy.over_s:
            self._since = now
        elif now - self._since >= _DOUBLE_S and now - self._began >= _MEASURE_S:
            admitted = total - self._admitted
            used = admitted >= (now - self._since) * self.rate * _PART
            if used and ended - self._ended_then >= admitted * _PART:
                self.rate = self._least = 2 * self.rate
            self._since, self._admitted, self._ended_then = now, total, ended

    def _no_takeover(self, now: float, lag: float | None, produced_new_per_s: float | None) -> bool:
        """Whether the lag is no backlog of a takeover. Judged once, when the production rate is known: later the ramp
        itself causes lag."""
        if self._judged or lag is None or lag == math.inf:
            return False
        self._known_at = now if self._known_at is None else self._known_at
        if now - self._known_at < _MEASURE_S or produced_new_per_s is None:
            return False
        self._judged = True
        behind_s = lag / produced_new_per_s
        return behind_s <= _HAND_OVER_S or (behind_s >= _NOBODY_S and not self._history)

    def left_s(self, now: float) -> float | None:
        """Seconds for which the limit stays the steady intake, at most; None = it does not."""
        if self.over or self._policy is None or self.steady is None or not self._judged:
            return None
        return max(0.0, self._began + self._policy.over_s - now) or None

    def lasted_s(self, now: float) -> float:
        """Seconds that the climb has lasted so far, or lasted."""
        return (self._ended if self.over else now) - self._began


def _burst(rate: float) -> float:
    """The most records that an unused allowance keeps at that rate."""
    return max(1.0, rate * _BURST_S)


#: `of_late_per_s` goes back this far, by samples this far apart. The peak is that of a window this long.
_HISTORY_S = 10.0
_SAMPLE_S = 0.1
_WINDOW_S = 1.0


class Pace:
    """The intake as it was: of late, and at its peak. One thread."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()
        self._next = 0.0
        self.peak_per_s = 0.0

    def look(self, now: float, total: int) -> None:
        """Each turn: `total` records were admitted so far."""
        if now < self._next:
            return
        self._next = now + _SAMPLE_S
        samples = self._samples
        samples.append((now, total))
        while now - samples[0][0] > _HISTORY_S:
            samples.popleft()
        then, before = next((each for each in reversed(samples) if now - each[0] >= _WINDOW_S), samples[0])
        self.peak_per_s = max(self.peak_per_s, (total - before) / max(_WINDOW_S, now - then))

    @property
    def of_late_per_s(self) -> float:
        """The mean over the last ten seconds; 0 where there is less than one."""
        if not self._samples:
            return 0.0
        (since, before), (now, total) = self._samples[0], self._samples[-1]
        return (total - before) / (now - since) if now - since >= _WINDOW_S else 0.0

    def begin(self) -> None:
        """From now on look for a new peak."""
        self.peak_per_s = 0.0
