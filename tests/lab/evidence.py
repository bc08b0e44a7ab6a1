"""What a cell leaves behind: facts, and no verdict. A file of it can be judged again, by anybody.

All times are seconds from the moment at which the group was complete and at work.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

Kind = Literal["start", "end", "fail"]


class Line(NamedTuple):
    """A line of the ledger: a handler has begun a record, or has done it."""

    at: float
    member: str
    pid: int
    what: Kind
    partition: int
    offset: int


class Sent(NamedTuple):
    """A record that the broker has acknowledged."""

    at: float
    partition: int
    offset: int


class Life(NamedTuple):
    """A process of a member. `how` it ended: it "left" when it was asked to, was "killed", ended by itself ("died"), or
    was killed since it had not left when the cell was over ("stuck")."""

    member: str
    pid: int
    began: float
    ended: float
    how: Literal["left", "killed", "died", "stuck"]
    #: When it was frozen, and when it went on.
    frozen: tuple[tuple[float, float], ...] = ()
    #: Seconds of processor from its first record on.
    cpu_s: float = 0.0


class Mark(NamedTuple):
    """Something that was done to the group. `kind`: the first "harm" and the last "heal" say from when its recovery is
    counted; "step" is all else."""

    at: float
    label: str
    kind: Literal["harm", "heal", "step"] = "step"


class Look(NamedTuple):
    """The members that the broker had in the group at that time."""

    at: float
    members: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One cell."""

    consumer: str
    fault: str
    seed: int
    #: What is installed, by its name.
    versions: dict[str, str]
    sent: tuple[Sent, ...]
    ledger: tuple[Line, ...]
    lives: tuple[Life, ...]
    marks: tuple[Mark, ...]
    looks: tuple[Look, ...]
    #: Partition -> offset that the group had committed in the end.
    committed: dict[int, int]
    #: When nothing was waited for any more, and all members were asked to leave.
    over: float
    #: (partition, offset) of each effect in the consumer's own database; None = its effects are the ledger's lines.
    effects: tuple[tuple[int, int], ...] | None = None
    #: Why the cell could not be played; "" = it was.
    error: str = ""
    machine: dict[str, str] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Whole or not at all: an interruption leaves no half of a file."""
        new = path.with_suffix(".new")
        new.write_bytes(gzip.compress(json.dumps(asdict(self)).encode()))
        new.replace(path)

    @staticmethod
    def load(path: Path) -> Evidence:
        """Read a file again."""
        found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        return Evidence(
            **{
                **found,
                "sent": tuple(Sent(*each) for each in found["sent"]),
                "ledger": tuple(Line(*each) for each in found["ledger"]),
                "lives": tuple(
                    Life(member, pid, began, ended, how, tuple((a, b) for a, b in frozen), cpu_s)
                    for member, pid, began, ended, how, frozen, cpu_s in found["lives"]
                ),
                "marks": tuple(Mark(*each) for each in found["marks"]),
                "looks": tuple(Look(at, tuple(members)) for at, members in found["looks"]),
                "committed": {int(each): offset for each, offset in found["committed"].items()},
                "effects": None if found["effects"] is None else tuple((a, b) for a, b in found["effects"]),
            }
        )
