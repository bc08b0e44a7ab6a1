"""Settings of an audit of events that end, and of what counts as one time."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.errors import SettingError


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """Settings of an audit, and of what counts as one time.

    Args:
        complete: everything up to each log's end had to be consumed: what is left over is lost.
        quiet_s: a run without a last word that was heard so long before the last event of all still lives; after more
            silence it was killed. Earlier, where a partition of it went to another run and it was not heard since.
        gather_s: assignments and revocations that follow each other within this are one rebalance.
        before_s: how far before a rebalance the steady rate is taken, and how far from it a standstill may begin.
        after_s: how far after it a standstill may end, and a peak is looked for; never beyond the next rebalance.
    """

    complete: bool = False
    quiet_s: float = 15.0
    gather_s: float = 5.0
    before_s: float = 30.0
    after_s: float = 60.0

    def __post_init__(self) -> None:
        for name in ("quiet_s", "gather_s", "before_s", "after_s"):
            if getattr(self, name) <= 0:
                raise SettingError(name, getattr(self, name), "give a time of more than 0 seconds")
