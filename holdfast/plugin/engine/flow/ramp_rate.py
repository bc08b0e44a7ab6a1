"""Climb and Pace: compute how the intake grows after a takeover (the policy `Ramp`). Pure: callers pass times.

What it is held to at first is the *steady* intake: what producers send to the partitions that are owned now. Partitions
that stay take what they need of it, and are never held; those that came share the rest (`new_partitions.py`).

The ramp's rate follows what is produced down as well as up: the first look covers a twentieth of a second, and a burst
in it would hold for the whole backlog otherwise. It never falls below where it began, and what it has doubled to.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.plugin.ramp import Ramp

#: The longest that an unused allowance is kept: what a poll may bring at once.
_BURST_S = 0.05
#: Doubling waits for so long: at first until what is produced is known, then until handlers show whether they keep up.
_MEASURE_S = 0.5
_DOUBLE_S = 0.25
#: They keep up if they have ended at least that part of what was admitted meanwhile: one partition that is stuck says
#: nothing of the others. And more is let through only where at least that part of the allowance was used.
_PART = 0.5
#: Less than that much of the allowance, or that many records, is no lag, however fast it went until now.
_NO_LAG_S = 0.05
_NO_LAG = 10
#: Where nobody can tell the lag: so long without having held anything back means that there is none.
_UNHINDERED_S = 1.0
#: What those that stay take beyond the rate is made up for by those that came, for so long at most.
_DEBT_S = 1.0
#: How many seconds' worth of what is produced a hand-over in good order leaves behind, at most; and how many say that
#: nobody had these partitions before: no member is missed for so long.
_HAND_OVER_S, _NOBODY_S = 3.0, 120.0


class Climb:
    """Where the intake is on its way up. `over`: it holds nothing back. One thread."""

    def __init__(self, policy: Ramp | None) -> None:
        self._policy = policy
        self.over = True
        #: Whether its allowance was ever used up, so that more may have waited.
        self.held = False
        #: What may be admitted, in records a second. It follows what is produced, which is known roughly at first.
        self.rate = 0.0
        #: It never falls below where it began, and what it has doubled to.
        self._least = 0.0
        #: What is produced, or was taken in before: None = not known (yet), or next to nothing.
        self.steady: float | None = None
        self._history = 0.0
        self._began = self._ended = 0.0
        #: Since when the lag is known, and whether it was held against what is produced.
        self._known_at: float | None = None
        self._judged = False
        self._tokens = self._floor_tokens = 0.0
        self._filled_at = self._held_at = 0.0
        self._total = self._came = 0
        #: When doubling was last thought of, and what had been admitted and ended by then.
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
        """How many records may be admitted now, where `total` were so far, whatever they are of."""
        taken, left = self._fill(now, total)
        self.held = self.held or (taken > 0 and left < 1)
        if left < _burst(self.rate) / 2:
            self._held_at = now
        return max(0, int(self._tokens))

    def room_for_new(self, now: float, total: int, came: int) -> int:
        """How many of the partitions that came: what those that stay have left of the rate, at least the floor.

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
        """Subtract what was taken since the last time, then add what was earned. Returns: what was taken, and what was
        left of the last allowance."""
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
        # What a second may take beyond what comes in anyhow, and beyond what was let through in the last one.
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
        """Whether what is behind is no backlog of a takeover. Judged once, when what is produced is known: later the
        lag is what the ramp has left of it."""
        if self._judged or lag is None or lag == math.inf:
            return False
        self._known_at = now if self._known_at is None else self._known_at
        if now - self._known_at < _MEASURE_S or produced_new_per_s is None:
            return False
        self._judged = True
        behind_s = lag / produced_new_per_s
        return behind_s <= _HAND_OVER_S or (behind_s >= _NOBODY_S and not self._history)

    def left_s(self, now: float) -> float | None:
        """For how long it holds the intake to a steady one, at most; None = it does not."""
        if self.over or self._policy is None or self.steady is None or not self._judged:
            return None
        return max(0.0, self._began + self._policy.over_s - now) or None

    def lasted_s(self, now: float) -> float:
        """How long the climb has lasted, or lasts until now."""
        return (self._ended if self.over else now) - self._began


def _burst(rate: float) -> float:
    """The most records that an unused allowance keeps at that rate."""
    return max(1.0, rate * _BURST_S)


#: How far back the intake of late goes, and how finely it is looked at.
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
