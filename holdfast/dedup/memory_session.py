"""A session at a MemoryClaims: the rows of claims.py's table, one method each."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from holdfast.dedup.claims import Acquired, Exchanged, InHand, Since, Verdict, Wait
from holdfast.dedup.memory_state import Claimed, Finished, straight
from holdfast.dedup.offset_set import OffsetSet, runs
from holdfast.errors import StateError, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.dedup.claims import AskInHand, Claim, ClaimKey, Drop, LetGo, Mark, Standing, Token
    from holdfast.dedup.lease import Lease
    from holdfast.dedup.memory_state import Carry, MemoryState, StoredPosition

_T = TypeVar("_T")


class MemorySession:
    """One start of one process at a MemoryClaims. Any thread may call."""

    def __init__(self, state: MemoryState, lease: Lease, carry: Carry = straight) -> None:
        self._state = state
        self._carry = carry
        self._lease = lease
        self._generation = 0
        self._drops = 0

    @property
    def id(self) -> str:
        """Unique, never used again."""
        return self._lease.session_id

    def live(self) -> bool:
        """Whether the last renewal that succeeded was sent less than a lease ago; once False, False for ever."""
        return self._lease.live()

    def renew(self) -> bool:
        """Keep the session alive. False = it is dead, and is never revived."""
        sent_at = self._lease.now()

        def apply() -> bool:
            if not self._state.alive(self.id):
                return False
            self._state.sessions[self.id].deadline = self._state.clock.now() + self._lease.lease_s
            return True

        if not self._ask(apply):
            self._lease.lose()
            return False
        self._lease.renewed(sent_at)
        return True

    def acquire(self, partitions: Sequence[str]) -> list[Acquired | Wait | Verdict]:
        """Take partitions over."""
        replies = self._ask(self._to_acquire(partitions))
        if Verdict.FENCED in replies:
            self._lease.lose()
        return replies

    def _to_acquire(self, partitions: Sequence[str]) -> Callable[[], list[Acquired | Wait | Verdict]]:
        def one(partition: str) -> Acquired | Wait | Verdict:
            p = self._state.position(partition)
            if not self._state.alive(self.id):
                return Verdict.FENCED
            if p.owner not in (None, self.id) and self._state.alive(p.owner):
                return Wait.WAIT
            p.epoch += 1
            # After a failover an older copy may lack the last acquires. It must not give a fence a second time.
            p.born_ms = max(p.born_ms, self._state.wall_ms() - p.epoch)
            p.owner = self.id
            self._state.positions[partition] = p
            running = frozenset(p.running)
            return Acquired(p.epoch, p.watermark, OffsetSet(p.above), running, p.born_ms, p.again, p.begun, p.since)

        return lambda: [one(partition) for partition in partitions]

    def mark(self, marks: Sequence[Mark]) -> list[frozenset[int]]:
        """Note offsets as done. Replies with those that are fenced."""
        return self._ask(self._to_mark(marks))

    def _to_mark(self, marks: Sequence[Mark]) -> Callable[[], list[frozenset[int]]]:
        def one(mark: Mark) -> frozenset[int]:
            p = self._state.position(mark.partition)
            # The let_go was lost as well: the offsets are done, and the partition stays without an owner.
            lost = mark.former and self._was_lost(p, mark.epoch)
            owns = not lost and self._owns(mark.partition, p, mark.epoch)
            if owns:
                p.watermark, p.begun = max(p.watermark, mark.watermark), True
            fenced: set[int] = set()
            if owns or lost:
                p.above.add_all(runs(mark.offsets))
            else:
                fenced = {offset for offset in mark.offsets if not p.is_done(offset)}
                handed = {offset for offset in fenced if p.running.get(offset) == (self.id, mark.epoch)}
                p.above.update(OffsetSet(handed))
                fenced -= handed
            p.tidy()
            return frozenset(fenced)

        return lambda: [one(mark) for mark in marks]

    def let_go(self, partitions: Sequence[LetGo]) -> None:
        """End ownerships, handing over what is in hand."""
        self._ask(self._to_let_go([(let, None) for let in partitions]))

    def _to_let_go(self, ended: Sequence[tuple[LetGo, Standing | None]]) -> Callable[[], None]:
        """End ownerships. Args: ended: beside each, what its owner knows to be done, or None."""

        def one(end: tuple[LetGo, Standing | None]) -> None:
            let, known = end
            p = self._state.position(let.partition)
            if (let.epoch == 0 and p.owner == self.id) or self._owns(let.partition, p, let.epoch):
                if known:
                    _take_over(p, known)
                holder = (self.id, let.known_as or p.epoch)
                p.running |= {offset: holder for offset in let.unacked if not p.is_done(offset)}
                p.owner = None

        return lambda: _for_each(one, ended)

    def _to_restate(self, standings: Sequence[Standing]) -> Callable[[], None]:
        """Mark all that their owner knows to be done in these positions."""

        def one(known: Standing) -> None:
            p = self._state.position(known.mark.partition)
            if self._owns(known.mark.partition, p, known.mark.epoch):
                _take_over(p, known)

        return lambda: _for_each(one, standings)

    def poll(self, polls: Sequence[AskInHand]) -> list[InHand | Verdict]:
        """Ask for what was handed over."""

        def one(poll: AskInHand) -> InHand | Verdict:
            p = self._state.position(poll.partition)
            if not self._owns(poll.partition, p, poll.epoch):
                return Verdict.FENCED
            done = {offset for offset in poll.offsets if p.is_done(offset)}
            waiting = {
                offset
                for offset in poll.offsets
                if offset not in done and offset in p.running and self._state.alive(p.running[offset][0])
            }
            yours = set(poll.offsets) - done - waiting
            for offset in yours:
                p.running.pop(offset, None)
            return InHand(frozenset(done), frozenset(yours))

        return self._ask(lambda: [one(poll) for poll in polls])

    def release(self, records: Sequence[Token]) -> None:
        """Report that handed-over records are no longer running."""

        def one(record: Token) -> None:
            running = self._state.position(record.partition).running
            if running.get(record.offset) == (self.id, record.epoch):
                del running[record.offset]

        self._ask(lambda: _for_each(one, records))

    def drop(self, drops: Sequence[Drop]) -> list[bool]:
        """Forget what is done from the offset of the reset on. False = fenced."""
        with self._state.lock:
            first, self._drops = self._drops + 1, self._drops + len(drops)
        return [again is not None for again in self._ask(self._to_drop(drops, range(first, first + len(drops))))]

    def _to_drop(self, drops: Sequence[Drop], numbers: Sequence[int]) -> Callable[[], list[int | None]]:
        """Replies with `Acquired.again` of each; None = fenced."""

        def one(drop: Drop, number: int) -> int | None:
            p, since = self._state.position(drop.partition), Since(drop.epoch, number)
            if not self._owns(drop.partition, p, drop.epoch):
                return None
            if since > p.since:
                p.start_over(since, 0)
                p.watermark, p.begun = drop.offset, True  # done = all below
            return p.again

        return lambda: [one(*each) for each in zip(drops, numbers, strict=True)]

    def claim(self, claims: Sequence[Claim]) -> list[Verdict]:
        """Ask for keys."""
        return [verdict for verdict, _ in self.claim_fenced(claims)]

    def claim_fenced(self, claims: Sequence[Claim]) -> list[tuple[Verdict, int]]:
        """Ask for keys, with fences."""
        return self._unless_fenced(self._ask(self._to_claim(claims)))

    def _unless_fenced(self, fenced: list[tuple[Verdict, int]]) -> list[tuple[Verdict, int]]:
        if any(verdict is Verdict.FENCED for verdict, _ in fenced):
            self._lease.lose()
        return fenced

    def _to_claim(self, claims: Sequence[Claim]) -> Callable[[], list[tuple[Verdict, int]]]:
        def one(claim: Claim) -> Verdict:
            held = self._state.key(claim.key)
            if not self._state.alive(self.id):
                return Verdict.FENCED
            if isinstance(held, Finished):
                return Verdict.DONE
            if held is not None and held != (self.id, claim.token) and self._state.alive(held.session):
                return Verdict.BUSY
            self._state.keys[claim.key] = Claimed(self.id, claim.token)
            return Verdict.NEW

        def all_of_them() -> list[tuple[Verdict, int]]:
            self._state.fence = max(self._state.fence + 1, int(self._state.clock.now() * 1000))
            verdicts = [one(claim) for claim in claims]
            return [(verdict, self._state.fence if verdict is Verdict.NEW else 0) for verdict in verdicts]

        return all_of_them

    def finish(self, claims: Sequence[Claim], results: Sequence[str] | None = None) -> list[Verdict]:
        """Note keys as done for the store's window, with their results."""
        return self._ask(self._to_finish(claims, results))

    def _to_finish(self, claims: Sequence[Claim], results: Sequence[str] | None) -> Callable[[], list[Verdict]]:
        def one(claim: Claim, result: str) -> Verdict:
            held = self._state.key(claim.key)
            if isinstance(held, Finished):
                return Verdict.DONE
            # No session takes a key over from one that lives: an absent claim, or a dead session's, was lost by a
            # failover.
            lost = self._state.alive(self.id) and (held is None or not self._state.alive(held.session))
            if held != (self.id, claim.token) and not lost:
                return Verdict.FENCED
            self._state.finish(claim.key, result)
            return Verdict.DONE if results is None else Verdict.NEW

        pairs = list(zip(claims, results if results is not None else [""] * len(claims), strict=True))
        return lambda: [one(claim, result) for claim, result in pairs]

    def exchange(self, done: Sequence[Claim], marks: Sequence[Mark], claims: Sequence[Claim]) -> Exchanged:
        """Finish, mark and claim, in one round trip."""
        finish, mark, claim = self._to_finish(done, None), self._to_mark(marks), self._to_claim(claims)
        finished, fenced, claimed = self._ask(lambda: (finish(), mark(), claim()))
        return Exchanged(finished, fenced, [verdict for verdict, _ in self._unless_fenced(claimed)])

    def results(self, keys: Sequence[ClaimKey]) -> list[str | None]:
        """The results kept with these keys."""

        def one(key: ClaimKey) -> str | None:
            held = self._state.key(key)
            return held.result if isinstance(held, Finished) else None

        return self._ask(lambda: [one(key) for key in keys])

    def unclaim(self, claims: Sequence[Claim]) -> None:
        """Give keys back, as far as they are still held."""

        def one(claim: Claim) -> None:
            if self._state.key(claim.key) == (self.id, claim.token):
                del self._state.keys[claim.key]

        self._ask(lambda: _for_each(one, claims))

    def vouch(self, seconds: float) -> None:
        """Renew for `seconds` from now on, unless this is called again."""
        self._lease.vouch(seconds)

    def abandon(self) -> None:
        """Renew no more: others take over when the lease ends."""
        self._lease.stop()

    def end(self) -> None:
        """End the session. Does not raise; without an answer the lease runs out by itself."""
        self._lease.stop()
        if not self._lease.own_process:
            return  # in a forked child: the session is the parent's
        self._lease.lose()
        with suppress(StoreError):
            self._carry(lambda: self._state.handle(lambda: self._state.sessions.pop(self.id, None)))

    def raise_generation(self, above: int | None = None) -> None:
        """After a call without an answer: what was sent with this generation, or below, is refused from now on.

        Args:
            above: the generation of the lost call; another thread may have raised it since. Default: the current one.
        """
        with self._state.lock:
            self._generation = max(self._generation, (self._generation if above is None else above) + 1)

    def _was_lost(self, p: StoredPosition, epoch: int) -> bool:
        """Whether a failover has lost this session's acquire, and no other session has taken the position over."""
        others = p.owner not in (None, self.id) and self._state.alive(p.owner)
        return epoch > p.epoch and not others and self._state.alive(self.id)

    def _owns(self, partition: str, p: StoredPosition, epoch: int) -> bool:
        """Whether this session owns the position. If a failover has lost the acquire, and no other session has taken
        the position over, it becomes this session's again."""
        if (p.epoch, p.owner) == (epoch, self.id):
            return True
        if not self._was_lost(p, epoch):
            return False
        # Where the store has lost all data: the next fence is above that of this epoch, and no higher than the clock.
        p.epoch, p.owner, p.born_ms = epoch, self.id, p.born_ms or self._state.wall_ms() - epoch
        self._state.positions[partition] = p
        return True

    def _ask(self, apply: Callable[[], _T]) -> _T:
        """Make one call: it is admitted, applied as a whole, and answered.

        Raises:
            StoreUnavailable: no answer, and the generation has been raised; or a late request, which is not applied.
            StateError: called in a forked child.
        """
        if not self._lease.own_process:
            raise StateError(f"session {self.id} belongs to the parent process: begin one in each process, after fork")
        generation = self._generation

        def request() -> tuple[_T] | None:
            return (apply(),) if self._state.admit(self.id, generation) else None

        reply = self._state.ask(self._carry, request, lambda: self.raise_generation(generation))
        if reply is None:
            raise StoreUnavailable(f"a late request of session {self.id} was refused: ask again")
        return reply[0]


def _take_over(p: StoredPosition, known: Standing) -> None:
    """Add what its owner knows to be done to a position that may have lost some of it."""
    if known.since > p.since:
        p.start_over(known.since, known.again)
    p.watermark, p.begun = max(p.watermark, known.mark.watermark), True
    p.above.add_all(runs(known.mark.offsets))
    p.tidy()


def _for_each(apply: Callable[[_T], None], items: Sequence[_T]) -> None:
    for item in items:
        apply(item)
