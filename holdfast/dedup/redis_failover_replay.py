"""The recent calls of a session, replayed when another server has taken the place of the first.

A failover to a replica that was behind undoes releases, finished keys and marks. A key, a record or a partition is then
held by a session that lives and does not know it, and other sessions would wait until that session ends. These calls
are therefore replayed. An owner also replays all of its marks, and once more when its ownership ends: otherwise the
next owner would handle those records again.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from holdfast.dedup.claims import Acquired, Mark, Since, Token, Verdict
from holdfast.dedup.redis_positions import Dropping, Ended, Owned

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

    from holdfast.dedup.claims import Claim, Drop, LetGo, Standing, Wait
    from holdfast.runtime import Runtime

_T = TypeVar("_T")
_K = TypeVar("_K", bound="Hashable")
_V = TypeVar("_V")

#: Calls are kept for this long, or for a lease if that is longer. A server that is further behind takes the session for
#: dead.
_KEPT_S = 60.0
#: At most this many calls of each kind are kept: some megabytes. Long keys and results count as several. If more calls
#: have ended since the last renewal that a server knows of, the session cannot replay them all (`forgotten_since`).
_KEPT_ITEMS = 30_000
#: Finished keys in one replayed call: as many as an engine sends at once by default.
_AT_ONCE = 500
#: Characters of keys and results that weigh as much as an item.
_ITEM_CHARS = 150


class Finished(NamedTuple):
    """Keys that were finished together."""

    at: float
    claims: Sequence[Claim]
    results: Sequence[str] | None
    weight: int


class RecentHandOvers(NamedTuple):
    """Recent hand-overs of some partitions, and the ends of the records that were in hand. Replayed in this order."""

    ends: Sequence[Ended]
    releases: Sequence[Token]
    marks: Sequence[Mark]


class Reclaimed(NamedTuple):
    """Released claims that are being claimed again: they are not replayed meanwhile.

    `rounds`: of `FailoverReplay`, as it was then.
    """

    rounds: int
    claims: Collection[Claim]


_NONE_RECLAIMED = Reclaimed(0, ())


class LetGoBefore(NamedTuple):
    """Ended ownerships of partitions that are being acquired again: they are not replayed meanwhile.

    `rounds`: of `FailoverReplay`, as it was then.
    """

    rounds: int
    ends: dict[tuple[str, int], tuple[float, Ended]]


class FailoverReplay:
    """Any thread. A key that is claimed again is removed from the list: replaying its release would free the new claim.

    Args:
        runtime: its clock tells the age of a call.
        window_s: how long a key stays done. An older finish is not replayed.
        lease_s: the session's lease.
    """

    def __init__(self, runtime: Runtime, window_s: float, lease_s: float) -> None:
        self._runtime = runtime
        self._kept_s = max(_KEPT_S, lease_s)
        self._finishes_kept_s = min(self._kept_s, window_s)
        #: Held during a replay. A claim that is made meanwhile has to come after it, or the replay would release it.
        self.lock = runtime.rlock()
        #: Partition -> what the session has marked in it, or found marked there.
        self._owned: dict[str, Owned] = {}
        self._let_gos: dict[tuple[str, int], tuple[float, Ended]] = {}
        self._unclaims: dict[Claim, tuple[float, Claim]] = {}
        self._unclaimed = 0  # their weight
        self._releases: dict[Token, tuple[float, Token]] = {}
        #: Records that ended after their hand-over. The owner's next watermark does not cover them.
        self._marks: dict[Token, tuple[float, Token]] = {}
        self._drops = 0  # so far
        #: When the newest of the calls ended that are not kept any more.
        self._forgotten = -math.inf
        self._finishes: deque[Finished] = deque()
        self._weight = 0
        #: How many replays have begun (`recent_calls`, `recent_ends`). A call that is noted after that was not in them.
        self._rounds = 0
        #: A call was noted too late for the replay that it belongs to.
        self.replay_due = False

    def call_and_remember(
        self, call: Callable[[], _T], note: Callable[[_T], object], *, again: Callable[[], _T] | None = None
    ) -> _T:
        """Make a call, and note it for later replays. If a replay has begun between the two, it did not have this call,
        and may have gone to another server than the call: then the call is made once more.

        Args:
            call: makes the call.
            note: notes its reply.
            again: makes the call once more, where that differs from `call`.

        Returns: the first reply. Raises what the calls raise.
        """
        rounds = self._rounds
        first = reply = call()
        while True:
            with self.lock:
                note(reply)
                if self._rounds == rounds:
                    return first
                rounds = self._rounds
            reply = (again or call)()

    def ends(self, items: Iterable[LetGo]) -> list[Ended]:
        """Return what to send when these ownerships end, by `call_and_remember` with `let_go` as its note."""
        with self.lock:
            found = ((item, self._owned.get(item.partition)) for item in items)
            return [
                Ended(item, owned.all(item.partition) if owned and item.epoch in (0, owned.epoch) else None)
                for item, owned in found
            ]

    def let_go(self, items: Collection[Ended]) -> None:
        """Note that these ownerships have ended."""
        with self.lock:
            for let, known in items:
                if known and (owned := self._owned.get(let.partition)) and owned.epoch == known.mark.epoch:
                    del self._owned[let.partition]
        self._keep(self._let_gos, (((item.let.partition, item.let.epoch), item) for item in items))

    def dropping(self, items: Sequence[Drop]) -> list[Dropping]:
        """Note, before the call, that marks of these partitions are dropped on purpose."""
        with self.lock:
            first, self._drops = self._drops + 1, self._drops + len(items)
            popped = [self._owned.pop(drop.partition, None) for drop in items]
            return [
                Dropping(drop, Since(drop.epoch, first + n), owned.seen if owned else 0)
                for n, (drop, owned) in enumerate(zip(items, popped, strict=True))
            ]

    def dropped(self, items: Iterable[Dropping], again: Iterable[int | None]) -> None:
        """Note the replies. Args: again: `Acquired.again` of each partition; None = fenced."""
        with self.lock:
            for (drop, since, _), known_up_to in zip(items, again, strict=True):
                if known_up_to is not None:
                    self._owned[drop.partition] = Owned.dropped(drop, since, known_up_to)

    def unclaim(self, items: Iterable[Claim]) -> None:
        """Note that these keys were released."""
        with self.lock:
            now = self._runtime.now()
            for claim in items:
                self._asked_again(claim)  # so that the oldest is always the first
                self._unclaims[claim] = (now, claim)
                self._unclaimed += _weight(claim)
            self._forget_unclaims(now)

    def _asked_again(self, claim: Claim) -> bool:
        """Forget that it was released. Returns whether it was."""
        if self._unclaims.pop(claim, None) is None:
            return False
        self._unclaimed -= _weight(claim)
        return True

    def release(self, items: Iterable[Token]) -> None:
        """Note that these records run no more."""
        self._keep(self._releases, ((item, item) for item in items))

    def mark(self, items: Collection[Mark]) -> list[Mark]:
        """Note, before the call, that these records are done: a later `dropped` covers them too.

        Returns: marks to send after them (see `leaps`).
        """
        after: list[Mark] = []
        former = [mark for mark in items if mark.former]
        with self.lock:
            for mark in items:
                if not mark.former:
                    owned = self._owned.get(mark.partition)
                    if owned is None or owned.epoch != mark.epoch:
                        owned = self._owned[mark.partition] = Owned(mark.epoch)
                    if more := owned.add(mark):
                        after += [mark._replace(offsets=())] * more
        if former:
            done = [Token(mark.partition, offset, mark.epoch) for mark in former for offset in mark.offsets]
            self._keep(self._marks, ((token, token) for token in done))
        return after

    def finish(self, claims: Sequence[Claim], results: Sequence[str] | None, verdicts: Sequence[Verdict]) -> None:
        """Note that these keys are done. Keys that another session holds by now count as released: a server that is
        behind may have them as ours."""
        if Verdict.FENCED in verdicts:
            self.unclaim(claim for claim, verdict in zip(claims, verdicts, strict=True) if verdict is Verdict.FENCED)
            ours = [i for i, verdict in enumerate(verdicts) if verdict is not Verdict.FENCED]
            claims, results = [claims[i] for i in ours], None if results is None else [results[i] for i in ours]
        chars = sum([len(claim.key.key) for claim in claims]) + sum(map(len, results or ()))
        weight = len(claims) + chars // _ITEM_CHARS
        with self.lock:
            now = self._runtime.now()
            self._finishes.append(Finished(now, claims, results, weight))
            self._weight += weight
            self._forget_finishes(now)

    def acquire(
        self,
        partitions: Sequence[str],
        again: Callable[[RecentHandOvers], object],
        ask: Callable[[], list[Acquired | Wait | Verdict]],
    ) -> list[Acquired | Wait | Verdict]:
        """Acquire partitions, and note which of them the session owns now.

        Args:
            partitions: as in `ClaimSession.acquire`.
            again: replays recent hand-overs of these partitions, and the ends of records since. A server that has lost
                them would return less than the session knew. A server that hears of the hand-over alone would take
                ended records for running as long as the session lives.
            ask: acquires them, after that.

        Returns: what `ask` does. Raises what they raise.
        """
        before = self._acquiring(partitions)
        ours: dict[str, Acquired] = {}
        try:
            before = self._replay_before(before, again)
            replies = ask()
            pairs = zip(partitions, replies, strict=True)
            ours.update((partition, reply) for partition, reply in pairs if isinstance(reply, Acquired))
        finally:
            self._acquired(before, ours)
        return replies

    def _acquiring(self, partitions: Iterable[str]) -> LetGoBefore:
        with self.lock:
            asked = set(partitions)
            before = {key: kept for key, kept in self._let_gos.items() if key[0] in asked}
            for key in before:
                del self._let_gos[key]
            for partition in asked:
                self._owned.pop(partition, None)
            return LetGoBefore(self._rounds, before)

    def _replay_before(self, before: LetGoBefore, again: Callable[[RecentHandOvers], object]) -> LetGoBefore:
        """Replay with the lock held: a call of another thread that ends meanwhile is made again after it."""
        old = self._runtime.now() - self._kept_s
        ends = _since(before.ends, old)
        if not ends:
            return before
        gone = {end.let.partition for end in ends}
        with self.lock:
            self._rounds += 1
            releases = [token for token in _since(self._releases, old) if token.partition in gone]
            done = [token for token in _since(self._marks, old) if token.partition in gone]
            again(RecentHandOvers(ends, releases, _former(done)))
            return before._replace(rounds=self._rounds)

    def _acquired(self, before: LetGoBefore, ours: Mapping[str, Acquired]) -> None:
        """Note the marks of the partitions that the session owns now: no other session may be left to replay them. All
        other partitions stay let go."""
        still = {key: kept for key, kept in before.ends.items() if key[0] not in ours}
        done = {name: found for name, found in ours.items() if found.begun or found.done}
        if not still and not done:
            return
        with self.lock:
            self._let_gos = still | self._let_gos  # the oldest come first
            for partition, found in done.items():
                self._owned[partition] = Owned(found.epoch, found)
            if self._rounds != before.rounds:
                self.replay_due = True

    def asked_for(self, claims: Iterable[Claim]) -> Reclaimed:
        """Note that these keys are being claimed. Returns those that were released before; pass them to `answered`."""
        if not self._unclaims:
            return _NONE_RECLAIMED
        with self.lock:
            return Reclaimed(self._rounds, {claim for claim in claims if self._asked_again(claim)})

    def answered(self, reclaimed: Reclaimed, claims: Sequence[Claim], verdicts: Iterable[Verdict]) -> None:
        """Note the verdicts: claims that are not ours now stay released."""
        if not reclaimed.claims:
            return
        pairs = zip(claims, verdicts, strict=True)
        still = [claim for claim, verdict in pairs if claim in reclaimed.claims and verdict is not Verdict.NEW]
        with self.lock:
            self.unclaim(still)
            if still and self._rounds != reclaimed.rounds:
                self.replay_due = True

    def forgotten_since(self, when: float) -> bool:
        """Whether a call that ended since then is not kept any more. A server that has lost it would take its key or
        record for held as long as this session lives, and other sessions would wait."""
        with self.lock:
            now = self._runtime.now()
            self._forget(self._let_gos, now)
            self._forget(self._releases, now)
            self._forget(self._marks, now)
            self._forget_unclaims(now)
            self._forget_finishes(now)
            return self._forgotten >= when

    def recent_calls(self) -> tuple[list[Ended], list[Claim], list[Token]]:
        """Begin a replay. Returns: its first calls, in their order."""
        old = self._runtime.now() - self._kept_s
        with self.lock:
            self._rounds += 1
            self.replay_due = False
            return _since(self._let_gos, old), _since(self._unclaims, old), _since(self._releases, old)

    def owned(self) -> list[Standing]:
        """All marks of owned partitions. Send them with the lock held: marks that are dropped later are not sent."""
        with self.lock:
            return [owned.all(partition) for partition, owned in self._owned.items()]

    def recent_ends(self) -> tuple[list[Mark], list[Finished]]:
        """The calls that may be replayed at any time after the hand-overs. Small calls are joined: thousands of them
        would take longer than a lease."""
        now = self._runtime.now()
        with self.lock:
            self._rounds += 1
            marks = _former(_since(self._marks, now - self._kept_s))
            self._forget_finishes(now)
            finishes = _together(self._finishes)
        return marks, finishes

    def _keep(self, kept: dict[_K, tuple[float, _V]], items: Iterable[tuple[_K, _V]]) -> None:
        with self.lock:
            now = self._runtime.now()
            for key, item in items:
                kept.pop(key, None)  # so that the oldest is always the first
                kept[key] = (now, item)
            self._forget(kept, now)

    # ---- with the lock held
    def _forget(self, kept: dict[_K, tuple[float, _V]], now: float) -> None:
        while kept and (len(kept) > _KEPT_ITEMS or kept[next(iter(kept))][0] < now - self._kept_s):
            self._forgotten = max(self._forgotten, kept.pop(next(iter(kept)))[0])

    def _forget_unclaims(self, now: float) -> None:
        while self._unclaims:
            oldest = next(iter(self._unclaims))
            at = self._unclaims[oldest][0]
            if self._unclaimed <= _KEPT_ITEMS and at >= now - self._kept_s:
                break
            self._forgotten = max(self._forgotten, at)
            self._asked_again(oldest)

    def _forget_finishes(self, now: float) -> None:
        old = now - self._finishes_kept_s
        while self._finishes and (self._weight > _KEPT_ITEMS or self._finishes[0].at < old):
            first = self._finishes.popleft()
            self._forgotten = max(self._forgotten, first.at)
            self._weight -= first.weight


def _weight(claim: Claim) -> int:
    return 1 + len(claim.key.key) // _ITEM_CHARS


def _former(done: Iterable[Token]) -> list[Mark]:
    """Join records that ended after their hand-over to one mark an ownership."""
    offsets: dict[tuple[str, int], list[int]] = {}
    for partition, offset, epoch in done:
        offsets.setdefault((partition, epoch), []).append(offset)
    return [Mark(partition, epoch, 0, sorted(found), former=True) for (partition, epoch), found in offsets.items()]


def _together(finishes: Iterable[Finished]) -> list[Finished]:
    """Join calls, in their order. A joined call is no larger than the largest of them, or than `_AT_ONCE`."""
    calls: list[Finished] = []
    for each in finishes:
        last = calls[-1] if calls else None
        if last and last.weight + each.weight <= _AT_ONCE and (last.results is None) == (each.results is None):
            results = None if last.results is None else [*last.results, *(each.results or ())]
            calls[-1] = Finished(each.at, [*last.claims, *each.claims], results, last.weight + each.weight)
        else:
            calls.append(each)
    return calls


def _since(kept: dict[_K, tuple[float, _V]], when: float) -> list[_V]:
    return [item for at, item in kept.values() if at >= when]
