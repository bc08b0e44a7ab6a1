"""The protocol of batch attempts: which attempt may write a batch, and which keys it may write. For Spark's
foreachBatch.

A *batch* is (sink, query, number); the sink's name is the scope of its keys. A batch may begin several times: its
driver dies, or its write fails. Each begin is an *attempt* with a number that rises, and with a session (claims.py):
the attempt lives as long as its session, which the driver renews. A sink has one living attempt at a time.

Keys are those of claims.py, with the same names in the store: a key that another consumer has done is done here too,
and the other way round. The keys that an attempt has claimed become done when the attempt is finished, in one step for
all of them. Until then they are busy while the attempt lives; otherwise the next attempt takes them over.

An attempt belongs to one *life* of a server: one run of its process, in one period as the primary. After a restart or a
failover the server may have the attempt and lack its last claims. The attempt then gets no more claims and cannot
finish; the batch begins again.

Number and name do not identify a batch: numbers begin anew, or go back, if the checkpoint that counts them was lost or
restored. `Finished` therefore says only that a batch of this number is finished. The caller looks up the keys of its
own batch, and if they are not all done, it asks for an attempt `beside` the finished one. The *origin* names the source
of the numbers, as far as the caller knows it. It decides nothing here; it tells callers what has happened.

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

All calls may be repeated after no answer. They carry no call generation: a late call finds its session dead or gone,
and a claim by a task that Spark runs twice is the same claim.
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
    TAKEN_OVER = "T"  #: yours; another session had claimed it, and died before the key was done
    DONE = "D"  #: handled before: drop the row
    BUSY = "B"  #: a living session that is not of this sink works on it: ask again later
    #: The attempt is over: another has begun, its driver was silent for a lease, or another server answers.
    FENCED = "F"


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
    session: str  #: its session's id; unique, so that two attempts differ even after the store has lost its data
    born: int = 0  #: when the store began to count the sink's attempts, in milliseconds of the store's clock
    #: The server's id when the attempt began, as of scripts/server.lua. Known only to its own driver and executors.
    life: str = field(default="", compare=False)

    @property
    def fence(self) -> int:
        """Rises from attempt to attempt of the sink, even if the store has lost its data and counts anew."""
        return self.born + self.number

    @property
    def name(self) -> str:
        """A name that is never used again, in a form that no reader of folders takes for a number or a date. `fence_of`
        reads its fence, which tells the older of two names."""
        return f"a{self.fence}-{self.session}"

    @property
    def token(self) -> Token:
        """The text by which the attempt's claims are known."""
        return Token("batch", 0, self.number)


def fence_of(name: str) -> int | None:
    """Read the fence from an `Attempt.name`; None = it is not the name of an attempt."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


class Begun(NamedTuple):
    """The attempt has begun."""

    attempt: Attempt
    last: Attempt | None  #: the sink's last finished attempt, of any query


class Finished(NamedTuple):
    """A batch of this number is finished."""

    attempt: Attempt
    origin: str = ""  #: of that attempt
    kept: bool = True  #: whether its keys are still known as done: for a window from its end
    keys: str = ""  #: the print of its keys that `finish` was given


class Behind(NamedTuple):
    """A later batch of the query is finished: numbers have begun anew, or an old checkpoint was restored."""

    batch: int  #: the number of the last finished batch


class Elsewhere(NamedTuple):
    """Another query's attempt lives, or has the next turn."""

    query: str
    batch: int
    left_s: float  #: of its lease, if it is not renewed


class Fate(Enum):
    """The state of an attempt that did not finish."""

    LOST = "L"  #: the store has lost the attempt
    TAKEN = "T"  #: another attempt of the sink has begun
    MOVED = "M"  #: another server answers than the one where it began, or the same one after a restart
    SILENT = "S"  #: none of these: its session died, or was given up
    LIVES = "H"  #: it may still write and finish


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
            batch: the one to write.
            session: of the same store, used by nothing else.
            origin: the source of the batch numbers, as far as it is known.
            beside: the attempt of `Finished`, if the caller has found it to be of another batch than this one.
        """
        ...

    def claim(self, attempt: Attempt, keys: Sequence[str]) -> list[BatchVerdict]:
        """Ask for keys, each once."""
        ...

    def finish(self, attempt: Attempt, *, keys: str = "") -> bool:
        """End the attempt after its write: its claimed keys are done from now on.

        Args:
            attempt: the one that has written.
            keys: a print of the batch's keys, kept with the attempt.

        Returns: False = the attempt does not count: it is fenced, its first claims may have run out, or another server
            may lack some of them.
        """
        ...

    def fate(self, attempt: Attempt) -> Fate:
        """Whether it may still write and finish; else, why not. Changes nothing."""
        ...

    def give_up(self, session: str) -> None:
        """End the attempt of this session, unless it is finished."""
        ...

    def done(self, scope: str, keys: Sequence[str]) -> list[bool]:
        """Which keys are done. Changes nothing."""
        ...
