"""SimulatedSession: a session at the executable specification of the store, over a network and through failovers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from holdfast.dedup.claims import Exchanged
from holdfast.dedup.memory_session import MemorySession
from holdfast.dedup.redis_failover_replay import FailoverReplay
from holdfast.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.dedup.claims import Acquired, Claim, Drop, LetGo, Mark, Token, Verdict, Wait
    from holdfast.dedup.lease import Lease
    from holdfast.dedup.memory_state import Carry, MemoryState
    from holdfast.dedup.redis_failover_replay import RecentHandOvers
    from holdfast.dedup.redis_positions import Ended
    from holdfast.runtime import Runtime

_T = TypeVar("_T")


class Witness(Protocol):
    """Sees each call where the store applies it."""

    def __call__(self, session: str, generation: int, apply: Callable[[], _T], /) -> _T:
        """Apply a call of that session, which was sent with that generation, and return its result."""
        ...


def unseen(session: str, generation: int, apply: Callable[[], _T], /) -> _T:  # noqa: ARG001 - as of Witness
    """Apply the call without a witness."""
    return apply()


class SimulatedSession(MemorySession):
    """A session that repeats its recent calls after a failover, as `RedisSession` does. The new server may lack calls
    that the old one acknowledged shortly before, and other members would wait for them.

    Args:
        state: of the store.
        lease: of the session.
        carry: takes calls to the store.
        runtime: of the session's process.
        heard: returns the number of the server that answered last.
        witness: sees each call where it is applied.
    """

    def __init__(
        self,
        state: MemoryState,
        lease: Lease,
        carry: Carry,
        runtime: Runtime,
        heard: Callable[[], int],
        *,
        witness: Witness = unseen,
    ) -> None:
        super().__init__(state, lease, carry)
        self._witness = witness
        self._heard = heard
        self._replay = FailoverReplay(runtime, state.window_s, lease.lease_s)
        self._server = 0

    def begun(self) -> None:
        """Note that the server that answered last knows this session."""
        self._server = self._heard()

    def renew(self) -> bool:
        """Renew the lease. False = the session is dead and stays dead."""
        if not super().renew():
            return False
        server = self._heard()
        if (server != self._server or self._replay.replay_due) and self._replay_calls():
            self._server = server
        return True

    def acquire(self, partitions: Sequence[str]) -> list[Acquired | Wait | Verdict]:
        """Take partitions over."""
        release, mark = super().release, super().mark

        def again(recent: RecentHandOvers) -> None:
            self._ask(self._to_let_go(recent.ends))
            if recent.releases:
                release(recent.releases)
            if recent.marks:
                mark(recent.marks)

        return self._replay.acquire(partitions, again, partial(super().acquire, partitions))

    def mark(self, marks: Sequence[Mark]) -> list[frozenset[int]]:
        """Mark offsets as done. Returns: for each mark the offsets that were fenced."""
        self._replay.mark(marks)
        return super().mark(marks)

    def let_go(self, partitions: Sequence[LetGo]) -> None:
        """End ownerships, and hand the offsets in hand over."""
        self._end(self._replay.ends(partitions))

    def _end(self, ended: Sequence[Ended]) -> None:
        self._replay.call_and_remember(lambda: self._ask(self._to_let_go(ended)), lambda _: self._replay.let_go(ended))

    def drop(self, drops: Sequence[Drop]) -> list[bool]:
        """Forget done offsets from the reset on. False = fenced."""
        asked = self._replay.dropping(drops)
        numbers = [each.since.number for each in asked]
        again = self._replay.call_and_remember(
            lambda: self._ask(self._to_drop(drops, numbers)), lambda again: self._replay.dropped(asked, again)
        )
        return [each is not None for each in again]

    def release(self, records: Sequence[Token]) -> None:
        """Release records that were handed over: no member runs them any more."""
        self._replay.call_and_remember(partial(super().release, records), lambda _: self._replay.release(records))

    def claim_fenced(self, claims: Sequence[Claim]) -> list[tuple[Verdict, int]]:
        """Claim keys, with fences."""
        reclaimed = self._replay.asked_for(claims)
        fenced = super().claim_fenced(claims)
        self._replay.answered(reclaimed, claims, (verdict for verdict, _ in fenced))
        return fenced

    def finish(self, claims: Sequence[Claim], results: Sequence[str] | None = None) -> list[Verdict]:
        """Finish keys for the store's window, with their results."""
        return self._replay.call_and_remember(
            partial(super().finish, claims, results),
            lambda verdicts: self._replay.finish(claims, results, verdicts),
        )

    def exchange(self, done: Sequence[Claim], marks: Sequence[Mark], claims: Sequence[Claim]) -> Exchanged:
        """Finish, mark and claim, in one round trip."""
        both = {claim.key for claim in done}.intersection(claim.key for claim in claims)
        if both:
            raise AssertionError(f"{both}: finished and claimed at once, and a store may do either first")
        reclaimed = self._replay.asked_for(claims)
        self._replay.mark(marks)
        finish = super().finish
        exchanged = self._replay.call_and_remember(
            partial(super().exchange, done, marks, claims),
            lambda said: self._replay.finish(done, None, _verdicts(said.finished)),
            again=lambda: Exchanged(finish(done), (), ()),
        )
        self._replay.answered(reclaimed, claims, _verdicts(exchanged.claimed))
        return exchanged

    def unclaim(self, claims: Sequence[Claim]) -> None:
        """Give back the keys that the session still holds."""
        self._replay.call_and_remember(partial(super().unclaim, claims), lambda _: self._replay.unclaim(claims))

    def _ask(self, apply: Callable[[], _T]) -> _T:
        generation = self._generation
        return super()._ask(lambda: self._witness(self.id, generation, apply))

    def _replay_calls(self) -> bool:
        """Repeat recent calls to a server that may not have seen them. Returns: whether all were answered."""
        try:
            with self._replay.lock:
                let_gos, unclaims, releases = self._replay.recent_calls()
                self._end(let_gos)
                super().unclaim(unclaims)
                super().release(releases)
                self._ask(self._to_restate(self._replay.owned()))
            marks, finishes = self._replay.recent_ends()
            for mark in marks:
                super().mark([mark])
            for each in finishes:
                super().finish(each.claims, each.results)
        except StoreError:
            return False  # the next renewal tries again
        return True


def _verdicts(of: Sequence[Verdict] | StoreError) -> Sequence[Verdict]:
    return cast("Sequence[Verdict]", of)  # the memory store refuses no part of a call by itself
