"""The protocol of claims: what a store must hold so that members of a group can hand records over.

Three kinds of fact live in a store, each under a namespace:

*Session*: one start of one process. It keeps itself alive; dead = its field is absent or its deadline, in the store's
own time, has passed. A dead session is never revived.

*Position*, one a partition: `epoch`, `owner`, `done` (a watermark and what is done above it) and `running`: offsets
that an owner handed over while they were still in its hands. It is *begun* once an owner has stated the group's offset
there, by `drop` or `mark`, even if that is 0. A position that was only acquired is not begun.

*Key*, one a business key: absent, claimed by (session, token), or done, perhaps with a result: text that is kept as
long as the key is done. A token is one record under one ownership. Two records of one key are therefore never both NEW,
and a record does not inherit what it held under an earlier ownership.

| call | if | then | reply |
|---|---|---|---|
| acquire(p) | the session is dead | - | FENCED |
| | another session owns p and lives | - | WAIT |
| | else | epoch + 1, owner = the session; `running` stays | Acquired |
| mark, let_go, poll, drop (p, epoch) | epoch is above p's, the session lives, and no other that lives owns p: a failover has lost our acquire | p's epoch = epoch, owner = the session | as its owner, below |
| mark(p, epoch, offsets) per offset | in done | - | ok |
| | (epoch, owner) match, or running[offset] = (session, epoch) | done, out of running; the session may be dead | ok |
| | else | - | fenced |
| mark(p, epoch) of no offset | (epoch, owner) match | begun | ok |
| let_go(p, epoch, unacked) | (epoch, owner) match; with epoch 0: owner matches | unacked ones not done are *added* to running; no owner | - |
| | else | - | - (it is settled) |
| poll(p, epoch, offsets) | (epoch, owner) do not match | - | FENCED |
| | per offset: done / not running / holder dead / holder lives | holder dead: removed from running | done / yours / yours / - |
| release(p, offset, epoch) | running[offset] = (session, epoch) | out of running | - |
| drop(p, epoch, offset) | (epoch, owner) match | again = the end of all that was ever done or running; done = all below; nothing is running; since = this drop | ok, else FENCED |
| | (epoch, owner) match, and it is repeated: since is this drop or a later one | - | ok |
| claim(key, token) | the session is dead / done | - | FENCED / DONE |
| | held by this very (session, token) | - | NEW |
| | held by another, whose session lives | - | BUSY |
| | absent, or its holder's session is dead | claimed | NEW |
| claim_fenced(key, token) | as claim | as claim | also, where NEW, a fence: higher than that of each earlier claim of the key |
| finish(key, token) | done, or held by this (session, token) (the session may be dead) | done | ok |
| | absent or its holder's session is dead, and the session lives: a failover has lost the claim | done | ok |
| | else | - | FENCED |
| finish(key, token, result) | done, by this record or another | - | DONE |
| | held by this (session, token) (the session may be dead) | done, with the result | NEW |
| | absent or its holder's session is dead, and the session lives | done, with the result | NEW |
| | else | - | FENCED |
| results(key) | done | - | its result, "" = without |
| | else | - | None |
| unclaim(key, token) | held by this (session, token) | absent | - |

A store may lose what it has acknowledged (a failover to a replica that was behind). No session takes a key or a
position over from a session that lives. A claim or an ownership that is missing while its session lives was therefore
lost by the store, and stays with that session. A session that notices a failover sends all marks of its positions
again. It also does so when it lets a position go, and it repeats a recent `let_go` before it acquires that position
again. Beside the marks it names the last drop that they follow. A position that lacks that drop first forgets what it
has: otherwise records that are to be replayed on purpose would count as done.

A call without an answer raises StoreUnavailable and says nothing; it is asked again until it is answered or the session
is lost. Each call carries the session's *call generation*: after a call without an answer the session raises it, and
the store refuses lower ones, so that a request that arrives late can do no harm.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from collections.abc import Set as AbstractSet

    from holdfast.errors import StoreError


class Verdict(Enum):
    """The store's answer to a claim."""

    NEW = "N"  #: yours: run the handler
    DONE = "D"  #: handled before: skip
    BUSY = "B"  #: another record holds it, and its session lives: ask again later, and do not acknowledge
    FENCED = "F"  #: you have been taken over: drop your result


class Wait(Enum):
    """The reply to `acquire` while another session that lives owns the partition."""

    WAIT = "W"


class Token(NamedTuple):
    """One record under one ownership."""

    partition: str
    offset: int
    epoch: int


class ClaimKey(NamedTuple):
    """A business key in its scope; the namespace is the store's."""

    scope: str
    key: str


class Claim(NamedTuple):
    """A key, and the record that asks for it."""

    key: ClaimKey
    token: Token


class Since(NamedTuple):
    """A drop of a position; later ones are higher. All zeros = there was none."""

    epoch: int = 0  #: of the ownership that dropped
    number: int = 0  #: its session counts its drops


NEVER = Since()


class Acquired(NamedTuple):
    """The reply to `acquire`."""

    epoch: int
    watermark: int  #: every offset below is done
    done: AbstractSet[int]  #: offsets from the watermark on that are done; may be millions: see OffsetSet
    running: frozenset[int]  #: offsets that former owners may still be working on: `poll` for them
    #: `born_ms` + `epoch` is a fence: the store's milliseconds since 1970, or more. It goes on rising where epochs
    #: begin anew or go back: another namespace, a topic made again, a store that lost data. 0 = the store has none.
    born_ms: int = 0
    #: After a `drop`: offsets below were done or running before it, so their records are replayed on purpose.
    again: int = 0
    begun: bool = False  #: an owner has stated the watermark; False = none has, and the watermark is 0
    since: Since = NEVER  #: the last drop


class Mark(NamedTuple):
    """Offsets of one partition that are done now."""

    partition: str
    epoch: int
    watermark: int  #: every offset below is done, as far as the owner knows; the store takes it from the owner only
    offsets: Collection[int]  #: newly done, ascending, also those below the watermark; see Runs
    #: The ownership was let go: the offsets are noted as done, and a store that has lost the `let_go` does not take the
    #: partition for owned again.
    former: bool = False


class Standing(NamedTuple):
    """All that an owner knows to be done in its position, for a store that may have lost it."""

    mark: Mark
    since: Since  #: the last drop that the owner knows of; all of the mark was done after it
    again: int  #: as in `Acquired`


class LetGo(NamedTuple):
    """The end of an ownership. `epoch` 0 = the current one, whatever its epoch (an acquire whose answer never came)."""

    partition: str
    epoch: int
    unacked: Sequence[int]  #: started, and their mark not acknowledged
    #: The epoch with which the unacked offsets will be marked or released; 0 = that of the ownership.
    known_as: int = 0


class AskInHand(NamedTuple):
    """The owner asks what became of offsets that were handed over."""

    partition: str
    epoch: int
    offsets: Sequence[int]


class Drop(NamedTuple):
    """The group was reset to `offset`: forget what is done from there on."""

    partition: str
    epoch: int
    offset: int


class InHand(NamedTuple):
    """The reply to an `AskInHand`; offsets in neither set are still being worked on."""

    done: frozenset[int]
    yours: frozenset[int]


class Exchanged(NamedTuple):
    """The replies to an `exchange`: for each of its three calls the reply, or the error, if the store refused that call
    alone."""

    finished: Sequence[Verdict] | StoreError
    fenced: Sequence[frozenset[int]] | StoreError
    claimed: Sequence[Verdict] | StoreError


class ClaimSession(Protocol):
    """One start of one process, at one store.

    All calls take many items and make one round trip a shard; replies are in the order of the items. Any thread may
    call; a call may block for the store's timeout. Raises StoreUnavailable where there is no answer.
    """

    @property
    def id(self) -> str:
        """Unique, never used again."""
        ...

    def live(self) -> bool:
        """Whether, by this process' own clock, the last renewal that succeeded was sent less than a lease ago.

        Once False, False for ever. Asked before each start of a handler; does not block, does not raise.
        """
        ...

    def renew(self) -> bool:
        """Renew now, in addition to the thread that renews. Allowed at any time. False = the session is lost."""
        ...

    def acquire(self, partitions: Sequence[str]) -> list[Acquired | Wait | Verdict]:
        """Take partitions over. `Verdict.FENCED` is the only verdict in the reply."""
        ...

    def mark(self, marks: Sequence[Mark]) -> list[frozenset[int]]:
        """Note offsets as done. Replies with those that are fenced; empty = all are done."""
        ...

    def let_go(self, partitions: Sequence[LetGo]) -> None:
        """End ownerships, handing over what is in hand."""
        ...

    def poll(self, polls: Sequence[AskInHand]) -> list[InHand | Verdict]:
        """Ask for what was handed over. `Verdict.FENCED` is the only verdict in the reply."""
        ...

    def release(self, records: Sequence[Token]) -> None:
        """Report that handed-over records are no longer running (they failed)."""
        ...

    def drop(self, drops: Sequence[Drop]) -> list[bool]:
        """Forget what is done from the offset of the reset on. False = that drop is fenced, and changed nothing."""
        ...

    def claim(self, claims: Sequence[Claim]) -> list[Verdict]:
        """Ask for keys. NEW, DONE, BUSY or FENCED each."""
        ...

    def claim_fenced(self, claims: Sequence[Claim]) -> list[tuple[Verdict, int]]:
        """Claim as `claim` does, and return each claim's fence besides, 0 where the claim is not NEW. A sink that
        remembers the highest fence of a key, and refuses lower ones, cannot be written by a former holder."""
        ...

    def finish(self, claims: Sequence[Claim], results: Sequence[str] | None = None) -> list[Verdict]:
        """Note keys as done for the store's window. DONE or FENCED each; with results NEW for those that were not done.

        Args:
            claims: what was claimed.
            results: kept with each key, one a claim; "" = none.
        """
        ...

    def exchange(self, done: Sequence[Claim], marks: Sequence[Mark], claims: Sequence[Claim]) -> Exchanged:
        """`finish(done)`, `mark(marks)` and `claim(claims)` in one round trip, in whatever order.

        No key may therefore be in both `done` and `claims`, and none of the three may depend on the reply to another.
        Raises StoreUnavailable: no answer; any of the three may have been applied, and all of them are to be asked
        again.
        """
        ...

    def results(self, keys: Sequence[ClaimKey]) -> list[str | None]:
        """Return what `finish` kept with each key: "" = done without a result, None = not done, or not any more."""
        ...

    def unclaim(self, claims: Sequence[Claim]) -> None:
        """Give keys back, as far as they are still held."""
        ...

    def vouch(self, seconds: float) -> None:
        """Report that the work goes on: renew for `seconds` from now on. Before the first call there is no limit.

        The renewing thread cannot see that a working thread hangs. A working thread that vouches no more lets the lease
        end, so that other sessions do not wait for ever. Does not block.
        """
        ...

    def abandon(self) -> None:
        """Renew no more, though something is still in hand: others take it over when the lease ends. Does not block."""
        ...

    def end(self) -> None:
        """End the session: only when nothing is owed and no handler runs (earlier counts as a crash).

        Idempotent; stops the renewals even where the store does not answer, and does not raise then: the lease
        runs out by itself.
        """
        ...


class ClaimStore(Protocol):
    """Where claims live. One object a process; `begin` makes the sessions.

    Two attributes that a store may have besides:

    - `truth` (default False): the effects are in the store's own database. What it does not have as done has not
      happened, so its word wins over a higher offset that this group has committed itself.
    - `keeps_keys` (default True): False = it keeps positions and no business keys.
    """

    @property
    def store_id(self) -> str:
        """A name that is made once and kept in the store. A different name means a different store, or one that has
        lost its data. "" = not known (yet)."""
        ...

    def connect(self) -> None:
        """Reach the store and check that it can hold the promise.

        Raises StoreUnavailable (no answer) or StoreRefused (password, version, eviction policy, another layout), each
        within the store's timeout. Idempotent.
        """
        ...

    def begin(self, lease_s: float) -> ClaimSession:
        """Begin a session whose lease is `lease_s` at most (a store's own setting may be shorter).

        Raises as `connect` does.
        """
        ...

    def close(self) -> None:
        """Give the connections back. Sessions that have not ended run out with their lease."""
        ...


def check_key(store: object, key: object) -> None:
    """Raises SettingError: a business key is asked for, and the store keeps none."""
    if key is not None and not getattr(store, "keeps_keys", True):
        raise SettingError(
            "key",
            getattr(key, "__name__", key),
            f"say transaction= too, or leave it out: {type(store).__name__} keeps business keys of handlers in its own "
            "transactions alone; RedisClaims keeps those of all",
        )


def check_store(field: str, store: object, *needs: str) -> None:
    """Raises SettingError: it is no store. The error does not show the value: it may be a URL with its password.

    Args:
        field: the setting's name, for the error.
        store: the value that was given.
        needs: the attributes that are going to be used.
    """
    if not all(hasattr(store, each) for each in needs):
        raise SettingError(
            field, type(store).__name__, "give a store: RedisClaims.from_url(url), or MemoryClaims() for tests"
        )
