"""SimulatedSession: a session at the store's specification, over a network and through failovers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from holdfast.dedup.claims import Turned
from holdfast.dedup.memory_session import MemorySession
from holdfast.dedup.redis_failover_replay import FailoverReplay
from holdfast.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.dedup.claims import Acquired, Claim, Drop, LetGo, Mark, Token, Verdict, Wait
    from holdfast.dedup.lease import Lease
    from holdfast.dedup.memory_state import Carry, MemoryState
    from holdfast.dedup.redis_failover_replay import Lately
    from holdfast.dedup.redis_owned import Ended
    from holdfast.runtime import Runtime

_T = TypeVar("_T")


class Witness(Protocol):
    """A witness of each call that is applied."""

    def __call__(self, session: str, generation: int, apply: Callable[[], _T], /) -> _T:
        """Apply it: a call of that session, sent with that generation."""
        ...


def unseen(session: str, generation: int, apply: Callable[[], _T], /) -> _T:  # noqa: ARG001 - as of Witness
    """Nobody looks on."""
    return apply()


class SimulatedSession(MemorySession):
    """A session that says again, as `RedisSession` does, what it has brought to an end lately where another server has
    taken over: what was acknowledged shortly before may be lost there, and everybody would wait for it.

    Args:
        state: what the store holds.
        lease: of the session.
        carry: the way there.
        runtime: of its process.
        heard: which server has answered last.
        witness: sees what is applied.
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
        """The server that has answered last knows it."""
        self._server = self._heard()

    def renew(self) -> bool:
        """Keep the session alive. False = it is dead, and is never revived."""
        if not super().renew():
            return False
        server = self._heard()
        if (server != self._server or self._replay.unsaid) and self._say_again():
            self._server = server
        return True

    def acquire(self, partitions: Sequence[str]) -> list[Acquired | Wait | Verdict]:
        """Take partitions over."""
        release, mark = super().release, super().mark

        def again(lately: Lately) -> None:
            self._ask(self._to_let_go(lately.ends))
            if lately.releases:
                release(lately.releases)
            if lately.marks:
                mark(lately.marks)

        return self._replay.acquire(partitions, again, partial(super().acquire, partitions))

    def mark(self, marks: Sequence[Mark]) -> list[frozenset[int]]:
        """Note offsets as done. Replies with those that are fenced."""
        self._replay.mark(marks)
        return super().mark(marks)

    def let_go(self, partitions: Sequence[LetGo]) -> None:
        """End ownerships, handing over what is in hand."""
        self._end(self._replay.ends(partitions))

    def _end(self, ended: Sequence[Ended]) -> None:
        self._replay.call_and_remember(lambda: self._ask(self._to_let_go(ended)), lambda _: self._replay.let_go(ended))

    def drop(self, drops: Sequence[Drop]) -> list[bool]:
        """Forget what is done from where the group was reset to. False = fenced."""
        asked = self._replay.dropping(drops)
        numbers = [each.since.number for each in asked]
        again = self._replay.call_and_remember(
            lambda: self._ask(self._to_drop(drops, numbers)), lambda again: self._replay.dropped(asked, again)
        )
        return [each is not None for each in again]

    def release(self, records: Sequence[Token]) -> None:
        """Say of records handed over that nobody runs them any more."""
        self._replay.call_and_remember(partial(super().release, records), lambda _: self._replay.release(records))

    def claim_fenced(self, claims: Sequence[Claim]) -> list[tuple[Verdict, int]]:
        """Ask for keys, with fences."""
        back = self._replay.asked_for(claims)
        fenced = super().claim_fenced(claims)
        self._replay.answered(back, claims, (verdict for verdict, _ in fenced))
        return fenced

    def finish(self, claims: Sequence[Claim], results: Sequence[str] | None = None) -> list[Verdict]:
        """Note keys as done for the store's window, with their results."""
        return self._replay.call_and_remember(
            partial(super().finish, claims, results),
            lambda verdicts: self._replay.finish(claims, results, verdicts),
        )

    def turn(self, done: Sequence[Claim], marks: Sequence[Mark], claims: Sequence[Claim]) -> Turned:
        """Finish, mark and claim, in one round trip."""
        both = {claim.key for claim in done}.intersection(claim.key for claim in claims)
        if both:
            raise AssertionError(f"{both}: finished and claimed at once, and a store may do either first")
        back = self._replay.asked_for(claims)
        self._replay.mark(marks)
        finish = super().finish
        turned = self._replay.call_and_remember(
            partial(super().turn, done, marks, claims),
            lambda said: self._replay.finish(done, None, _verdicts(said.finished)),
            again=lambda: Turned(finish(done), (), ()),
        )
        self._replay.answered(back, claims, _verdicts(turned.claimed))
        return turned

    def unclaim(self, claims: Sequence[Claim]) -> None:
        """Give keys back, as far as they are still held."""
        self._replay.call_and_remember(partial(super().unclaim, claims), lambda _: self._replay.unclaim(claims))

    def _ask(self, apply: Callable[[], _T]) -> _T:
        generation = self._generation
        return super()._ask(lambda: self._witness(self.id, generation, apply))

    def _say_again(self) -> bool:
        """To a server that may not have heard it. Whether all was answered."""
        try:
            with self._replay.lock:
                let_gos, unclaims, releases = self._replay.lately()
                self._end(let_gos)
                super().unclaim(unclaims)
                super().release(releases)
                self._ask(self._to_restate(self._replay.owned()))
            marks, finishes = self._replay.done_lately()
            for mark in marks:
                super().mark([mark])
            for each in finishes:
                super().finish(each.claims, each.results)
        except StoreError:
            return False  # at the next renewal
        return True


def _verdicts(of: Sequence[Verdict] | StoreError) -> Sequence[Verdict]:
    return cast("Sequence[Verdict]", of)  # this store refuses no call alone
