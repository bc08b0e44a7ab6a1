"""Facts of the whole input, needed before one group of it can be judged. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.tools.audit_report.judge.kept import Kept
from holdfast.tools.audit_report.judge.totals import Totals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Facts of all groups together."""

    last_ms: int = 0  #: the last event
    unreadable: int = 0  #: lines that are no events
    cut: frozenset[str] = frozenset()  #: runs of which a line is none
    #: Group (None: not known) -> number of its runs of which no event can be read.
    unheard: Mapping[str | None, int] = field(default_factory=dict)
    groups: frozenset[str] = frozenset()  #: those with events

    @classmethod
    def of(cls, runs: Iterable[tuple[str | None, str | None, int | None, int]]) -> Overview:
        """Make it of (group, run, time of its last event or None, lines that are no events)."""
        every = list(runs)
        heard = {run for _, run, last_ms, _ in every if last_ms is not None}
        return cls(
            last_ms=max((last_ms for _, _, last_ms, _ in every if last_ms is not None), default=0),
            unreadable=sum(lines for *_, lines in every),
            cut=frozenset(run for _, run, _, lines in every if lines and run is not None),
            unheard=Counter(group for group, run, _, lines in every if lines and run not in heard),
            groups=frozenset(group for group, _, last_ms, _ in every if group is not None and last_ms is not None),
        )

    def casts_doubt_on(self, group: str) -> bool:
        """Whether a run of which nothing can be read may have been of that group."""
        return None in self.unheard or group in self.unheard

    def summary(self, group: str) -> dict[str, Any]:
        """The columns of the group's row that come of this."""
        unheard = self.unheard.get(group, 0) + self.unheard.get(None, 0)
        return {"unheard": unheard, "unreadable": self.unreadable}

    def silent(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Table and row of each group of which nothing can be read."""
        for group in self.unheard:
            if group is not None and group not in self.groups:
                yield "summary", {"group": group} | Totals().row(Kept()) | {"producer": None} | self.summary(group)
