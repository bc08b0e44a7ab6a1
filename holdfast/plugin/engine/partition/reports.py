"""Reports: make one report for each rebalance, when its effects are over."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.parts import Parts
    from holdfast.plugin.events import RebalanceReport
    from holdfast.records import Partition

#: A report waits for the lag to be worked off for so long, then it is told without.
_WINDOW_S = 60.0


class Reports:
    """The open report of the last assignment, and the way of all others to the observers. One thread."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._clock = parts, parts.runtime
        self._duplicates_told = 0
        self._open: RebalanceReport | None = None
        #: The report of a lost session, until another one begins; and when the session was lost.
        self._lost: tuple[RebalanceReport, float] | None = None
        self._owners: list[Ownership] = []
        self._began = 0.0
        self._pause_s: float | None = None
        self._behind: list[tuple[Ownership, int]] | None = None

    def add(self, report: RebalanceReport, gained: Iterable[Ownership], began: float) -> None:
        """A rebalance is through. Without gains it is told at once."""
        owners = list(gained)
        if not owners:
            self._tell(report)
            return
        self.close()
        self._open, self._owners, self._began = report, owners, began
        self._pause_s, self._behind = None, None

    def lost(self, report: RebalanceReport, began: float) -> None:
        """A session was lost: what it had is taken over anew by the next one, and the report is told with that."""
        self.close()
        self._lost = (report, began)

    def taken_anew(self, owners: Sequence[Ownership]) -> None:
        """The next session takes these over."""
        if self._lost is not None and owners:
            (report, began), self._lost = self._lost, None
            self.add(replace(report, gained=tuple(sorted(owner.partition for owner in owners))), owners, began)

    def step(self, end_offsets: Callable[[list[Partition]], Mapping[Partition, int]]) -> None:
        """Look whether the open report is complete."""
        if self._open is None:
            return
        since = self._clock.now() - self._began
        if self._pause_s is None and any(owner.first_start is not None for owner in self._owners):
            first = min(owner.first_start for owner in self._owners if owner.first_start is not None)
            self._pause_s = max(0.0, first - self._began)
        if self._behind is None:
            ends = end_offsets([owner.partition for owner in self._owners])
            if len(ends) == len(self._owners):
                self._behind = [(owner, ends[owner.partition]) for owner in self._owners]
        else:
            # A partition that has reached its end is not looked at again: there may be a thousand.
            while self._behind and self._behind[-1][0].ledger.watermark >= self._behind[-1][1]:
                self._behind.pop()
            if not self._behind:
                self.close(recovered_s=since)
                return
        if since > _WINDOW_S:
            self.close()

    def close(self, recovered_s: float | None = None) -> None:
        """Tell the open report as it stands, and that of a session which no other one has followed."""
        if self._lost is not None:
            (report, _), self._lost = self._lost, None
            self._tell(report)
        if self._open is not None:
            intake, climb = self._parts.intake, self._parts.intake.climb
            self._tell(
                replace(
                    self._open,
                    pause_s=self._pause_s,
                    recovered_s=recovered_s,
                    steady_intake_per_s=climb.steady,
                    peak_intake_per_s=intake.pace.peak_per_s or None,
                    ramp_s=climb.lasted_s(self._clock.now()) if climb.held else None,
                )
            )
        self._open, self._owners = None, []

    def _tell(self, report: RebalanceReport) -> None:
        """Each duplicate is in one report: also those that come while nothing moves."""
        total = self._parts.meter.suppressed + self._parts.settling.skipped  # known by position, or by key
        self._parts.tell(replace(report, duplicates_suppressed=total - self._duplicates_told))
        self._duplicates_told = total
