"""The protocol of batch attempts: who may write a batch, and which of its keys are its own. For Spark's foreachBatch.

A *batch* is (sink, query, number); the sink's name is the scope of its keys. A batch may be begun again and again: its
driver dies, or what it wrote fails. Each begin is an *attempt* with a number that rises, and a session (claims.py)
as its life: renewed by the driver, dead when the driver is. Of one sink, one attempt lives at a time.

Keys are those of claims.py, with the same names in the store, so that a key which another consumer has done is done
here too, and the other way round. A key that an attempt has claimed is done from the moment at which the attempt is
finished, in one step for all of them; while the attempt lives it is busy; else the next attempt takes it over.

An attempt belongs to one *life* of a server: to a start of it, or to its time as the primary. After a restart or a
failover the server may have the attempt and lack its last claims. So nothing is claimed and nothing finished there any
more, and the batch is begun again.

A number and a name do not make a batch: numbers begin anew, and go back, where what counts them was lost or put back.
So Finished says that a batch of this number is finished, and whoever asked looks up the keys of what it has. Where they
are not all done it asks for an attempt `beside` that one. The *origin* is who counts, as far as the caller knows: it
decides nothing, and says what has happened.

| call | if | then | reply |
|---|---|---|---|
| begin(batch, session) | a later batch of the query is finished | - | Behind |
| | the batch is finished, and not only by `beside`; or keys of `beside` are past their window | - | Finished |
| | the session is dead | - | FENCED |
| | it has begun this very attempt | - | Begun |
| | an attempt of another query lives | the next turn is this query's, unless one that lives waits | Elsewhere |
| | no attempt lives, and the next turn is another query's that lives | - | Elsewhere |
| | else | the attempt before, if it lives, is dead; number + 1; more, if some may be lost | Begun |
| claim(attempt, key) | the attempt does not live, is finished, or began in another life of the server | - | FENCED |
| | key is done | - | DONE |
| | claimed by this attempt | - | NEW |
| | claimed by another session that lives | - | BUSY |
| | claimed by one that is dead | claimed | TAKEN_OVER |
| | absent | claimed | NEW |
| finish(attempt) | it is finished | - | True |
| | it is the sink's last, lives, and began in this life of the server | finished: its keys are done | True |
| | else | - | False |
| fate(attempt) | the store counts the sink's attempts anew, or has not come to this one | - | LOST |
| | another attempt of the sink has begun since | - | TAKEN |
| | it began in another life of the server | - | MOVED |
| | its session is dead | - | SILENT |
| | else | - | LIVES |
| give_up(session) | - | it is gone: its keys may be taken over, unless its attempt is finished | - |

All calls may be asked again after no answer. They carry no call generation: what arrives late meets a session that
is dead or gone, and a claim by a task that Spark runs twice is the same claim.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast.dedup.claims import Token

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.dedup.claims import ClaimSession

_NAME = re.compile(r"a(\d+)-.+")


class BatchVerdict(Enum):
    """The store's answer to an attempt that asks for a key."""

    NEW = "N"  #: yours
    TAKEN_OVER = "T"  #: yours, and who had claimed it died before it was done
    DONE = "D"  #: handled before: drop the row
    BUSY = "B"  #: a living session that is not of this sink works on it: ask again later
    FENCED = "F"  #: the attempt is over: another one has begun, or its driver was silent for a lease


class BatchId(NamedTuple):
    """One micro-batch on its way to one sink."""

    sink: str
    query: str
    batch: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a batch."""

    of: BatchId
    number: int  #: rises from attempt to attempt
    session: str  #: its life; unique, so that two attempts differ even after the store has lost its data
    born: int = 0  #: when the store began to count the sink's attempts: its own clock's milliseconds
    #: The life of the server in which it began, as of scripts/server.lua. Its own driver and executors know it.
    life: str = field(default="", compare=False)

    @property
    def fence(self) -> int:
        """Rises from attempt to attempt of the sink, also where the store has lost its data and counts anew."""
        return self.born + self.number

    @property
    def name(self) -> str:
        """Never used again, in a form that no reader of folders takes for a number or a date. `fence_of` has the fence
        of it: of two names one is the older."""
        return f"a{self.fence}-{self.session}"

    @property
    def token(self) -> Token:
        """The text by which the attempt's claims are known."""
        return Token("batch", 0, self.number)


def fence_of(name: str) -> int | None:
    """Of `Attempt.name`; None = it is no attempt's."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


class Begun(NamedTuple):
    """Go on."""

    attempt: Attempt
    last: Attempt | None  #: the sink's last finished attempt, of whichever query


class Finished(NamedTuple):
    """A batch of this number is finished."""

    attempt: Attempt
    origin: str = ""  #: of that attempt
    kept: bool = True  #: whether its keys are still known as done: they are for a window from its end
    keys: str = ""  #: the print of them that `finish` was given


class Behind(NamedTuple):
    """A later batch of the query is finished: numbers have begun anew, or a checkpoint was put back."""

    batch: int  #: the last one that is finished


class Elsewhere(NamedTuple):
    """Another query's attempt lives, or has the next turn."""

    query: str
    batch: int
    left_s: float  #: of its lease, if it is not renewed


class Fate(Enum):
    """The state of an attempt that did not finish."""

    LOST = "L"  #: the store has lost what it knew of it
    TAKEN = "T"  #: another attempt of the sink has begun
    MOVED = "M"  #: another server answers than the one where it began, or the same one after a restart
    SILENT = "S"  #: none of these: its session died, or was given up
    LIVES = "H"  #: it holds its batch


class Lost(Enum):
    """The session of `begin` is dead."""

    FENCED = "F"


class BatchAttempts(Protocol):
    """The rows of the table. Any thread and, but for `begin`, any process. Raises StoreUnavailable, StoreRefused."""

    def begin(
        self, batch: BatchId, session: ClaimSession, *, origin: str = "", beside: Attempt | None = None
    ) -> Begun | Finished | Behind | Elsewhere | Lost:
        """Ask for the next attempt.

        Args:
            batch: that is to be written.
            session: of the same store, that nothing else uses.
            origin: who counts the batches.
            beside: the attempt of `Finished`, where it was seen to be of another batch than this one.
        """
        ...

    def claim(self, attempt: Attempt, keys: Sequence[str]) -> list[BatchVerdict]:
        """Ask for keys, each once."""
        ...

    def finish(self, attempt: Attempt, *, keys: str = "") -> bool:
        """End the attempt after its write: what it claimed counts from now on. False = it does not count: the attempt
        is fenced, its first claims may have run out, or another server may lack some of them. Args: keys: a print of
        its batch's keys, kept with it."""
        ...

    def fate(self, attempt: Attempt) -> Fate:
        """Whether it may still write and finish; else, why not. Changes nothing."""
        ...

    def give_up(self, session: str) -> None:
        """Whatever this session was the life of ends, unless it is finished."""
        ...

    def done(self, scope: str, keys: Sequence[str]) -> list[bool]:
        """Which keys are done. Changes nothing."""
        ...
