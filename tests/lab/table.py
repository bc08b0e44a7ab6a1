"""Verdicts as a line, and as Markdown."""

from __future__ import annotations

from math import isinf, isnan, nan
from typing import TYPE_CHECKING, NamedTuple

from tests.lab.consumers import CONSUMERS
from tests.lab.faults import FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.lab.judge import Verdict


class Column(NamedTuple):
    """Of the table."""

    head: str
    told: str
    figure: Callable[[Verdict], float]
    digits: int = 0
    #: Whether another figure than 0 is to stand out.
    bad: bool = True

    def text(self, verdict: Verdict) -> str:
        """As it is written."""
        figure = self.figure(verdict)
        if isnan(figure):
            return "-"
        return "not within the cell" if isinf(figure) else f"{figure:,.{self.digits}f}"

    def stands_out(self, verdict: Verdict) -> bool:
        """Whether it is a finding."""
        return self.bad and self.figure(verdict) > 0


COLUMNS = (
    Column("records", "that the broker acknowledged", lambda it: it.records, bad=False),
    Column(
        "lost", "never ended, and below the committed offset: nobody will be given them again", lambda it: len(it.lost)
    ),
    Column("left", "never ended, and not committed: they wait", lambda it: it.left),
    Column("again", "handlers started for a record that had been started before", lambda it: len(it.again)),
    Column(
        "not in hand", "of these: no killed, frozen or dead process had the record in hand", lambda it: it.not_in_hand
    ),
    Column("effects twice", "effects that happened once more", lambda it: it.effects_twice),
    Column("at once", "records that two processes had in hand at the same time", lambda it: it.at_once),
    Column(
        "pause s",
        "the longest in which a partition had records to start and started none",
        lambda it: it.longest_pause_s,
        1,
        bad=False,
    ),
    Column(
        "recovered s",
        "from the harm (a server away: from its return) until no more was open than comes in a second",
        lambda it: it.recovery_s,
        1,
        bad=False,
    ),
    Column(
        "members put out",
        "times that the broker put out a member whose process was there (Kafka alone is asked)",
        lambda it: it.memberships_lost if it.evidence.looks else nan,
    ),
    Column(
        "died",
        "processes that ended by themselves (they were started again), or did not leave at SIGTERM",
        lambda it: it.died + it.stuck,
    ),
    Column(
        "CPU ms",
        "processor time of the group for each record that it ran, at this low rate",
        lambda it: it.cpu_ms,
        2,
        bad=False,
    ),
)
_TITLES = {each.name: each.title for each in CONSUMERS}


def line(verdict: Verdict) -> str:
    """What is told when a cell is over."""
    return ", ".join(f"{each.head} {each.text(verdict)}" for each in COLUMNS)


def markdown(verdicts: Sequence[Verdict]) -> str:
    """A table for each fault, with the words of its columns before."""
    parts = ["\n".join(f"- *{each.head}*: {each.told}." for each in COLUMNS)]
    for fault in FAULTS:
        rows = [each for each in verdicts if each.evidence.fault == fault.name]
        if not rows:
            continue
        several = len({each.evidence.seed for each in rows}) > 1
        seed = ["seed"] if several else []
        heads = ["consumer", *seed, *(each.head for each in COLUMNS)]
        lines = [
            f"**{fault.name}**: {fault.told}.",
            "",
            f"| {' | '.join(heads)} |",
            f"|{'---|' + '--:|' * (len(heads) - 1)}",
        ]
        for each in rows:
            first = [_TITLES[each.evidence.consumer], *([str(each.evidence.seed)] if several else [])]
            if each.evidence.error:
                cells = ["could not be played"] + [""] * (len(COLUMNS) - 1)
            else:
                cells = [_marked(column, each) for column in COLUMNS]
            lines.append(f"| {' | '.join([*first, *cells])} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _marked(column: Column, verdict: Verdict) -> str:
    text = column.text(verdict)
    return f"**{text}**" if column.stands_out(verdict) else text
