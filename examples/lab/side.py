"""One consumer of the comparison: its group, and what the witness saw of it so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from examples.lab.orders import SLOW_ORDER

if TYPE_CHECKING:
    from examples.lab.group import Group
    from examples.lab.ledger import Entry, LedgerReader
    from examples.lab.referee import Mark


@dataclass(slots=True)
class Side:
    """A group and its ledger. `catch_up` reads the ledger; everything else goes by what it has read."""

    group: Group
    reader: LedgerReader
    topic: str
    entries: list[Entry] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    started: int = 0
    begun: set[tuple[int, int]] = field(default_factory=set)
    done: set[tuple[int, int]] = field(default_factory=set)
    #: The member that began the slow order last.
    has_slow_order: str = ""

    def catch_up(self) -> None:
        """Read what is new in the ledger."""
        new = self.reader.read()
        self.entries += new
        for entry in new:
            place = (entry.partition, entry.offset)
            if entry.starts:
                self.started += 1
                self.begun.add(place)
                if entry.key == SLOW_ORDER:
                    self.has_slow_order = entry.member
            else:
                self.done.add(place)
