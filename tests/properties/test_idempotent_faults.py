"""Faults that are known of others' deduplication, put into ours: each has to be noticed.

The promises are functions that raise AssertionError where they are broken. Each is kept as things are, and broken with
its fault; so a test here that passes says that the promise's test can fail.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase

from holdfast import MemoryClaims, Skipped, idempotent
from holdfast.dedup.calls.grant import Grant
from holdfast.dedup.calls.process import ProcessState
from holdfast.dedup.claims import Verdict
from holdfast.dedup.lease import Lease
from holdfast.dedup.memory_session import MemorySession
from holdfast.dedup.memory_state import Claimed, Finished, MemoryState
from holdfast.runtime import Machine
from holdfast.timing import SYSTEM_CLOCK, Deadline
from tests.harness.clocks import HandClock
from tests.properties.test_idempotent import in_memory, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.dedup.calls.debts import FinishReply
    from holdfast.dedup.claims import Claim, ClaimKey

Patch = pytest.MonkeyPatch


# ---- promises
def histories_are_those_of_the_model() -> None:
    run(in_memory, max_examples=200, derandomize=True, database=None, phases=[Phase.generate])


def of_calls_at_once_one_runs() -> None:
    for _ in range(20):
        claims, together = MemoryClaims(renewals=False), threading.Barrier(4)
        ran: list[int] = []

        @idempotent(claims, key="order_id", name="f", on_done="marker")
        def f(order_id: int, ran: list[int] = ran) -> None:
            ran.append(order_id)

        def call(_: int, f: Callable[[int], object] = f, together: threading.Barrier = together) -> None:
            together.wait(30)
            f(1)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(call, range(4)))
        assert ran == [1]


def a_body_may_take_longer_than_the_lease() -> None:
    clock = HandClock()  # a lease ends by it, and not because a thread was stopped
    mine, other = MemoryClaims(lease_s=0.3, runtime=Machine(clock)), MemoryClaims(lease_s=0.3, runtime=Machine(clock))
    other.state = mine.state
    began, may_end = threading.Event(), threading.Event()

    @idempotent(mine, key="order_id", name="f")
    def f(order_id: int) -> str:
        began.set()
        assert may_end.wait(30)
        return "mine"

    g = idempotent(other, key="order_id", name="f", on_busy="skip")(lambda order_id: "other's")
    seen = []
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(f, 1)
        try:
            assert began.wait(30)
            session: Any = mine.calls.session()
            for _ in range(5):
                clock.sleep(0.2)
                ends = Deadline(10.0)
                while mine.state.sessions[session.id].deadline < clock.now() + 0.3:
                    assert not ends.passed, "nobody renews"
                    SYSTEM_CLOCK.sleep(0.005)
                seen.append(g(1))
        finally:
            may_end.set()
        assert running.exception(30) is None
    mine.close()
    other.close()
    assert set(seen) == {Skipped.BUSY}


def a_key_whose_window_passes_between_two_calls_is_run_again() -> None:
    clock = HandClock()
    claims = MemoryClaims(renewals=False, window_s=1.0, runtime=Machine(clock))
    ran = []

    @idempotent(claims, key="order_id", name="f")
    def f(order_id: int) -> int:
        ran.append(order_id)
        return len(ran)

    assert [f(1), f(1)] == [1, 1]
    session: Any = claims.calls.session()
    ask = session.results

    def late(keys: Sequence[ClaimKey]) -> object:
        clock.sleep(1.5)
        return ask(keys)

    session.results = late
    assert f(1) == 2


# ---- faults
def finish_overwrites_whoever_holds_the_key(patch: Patch) -> None:
    """SET without a comparison, after the lease has passed."""

    def finish(self: Any, claims: Sequence[Claim], results: Sequence[str] | None = None) -> list[Verdict]:
        for claim, result in zip(claims, results or [""] * len(claims), strict=True):
            self._state.keys[claim.key] = Finished(float("inf"), result)
        return [Verdict.NEW] * len(claims)

    patch.setattr(MemorySession, "finish", finish)


def giving_back_deletes_whoever_holds_the_key(patch: Patch) -> None:
    """DEL without a comparison."""

    def unclaim(self: Any, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self._state.keys.pop(claim.key, None)

    patch.setattr(MemorySession, "unclaim", unclaim)


def keys_are_done_before_the_body_has_run(patch: Patch) -> None:
    """A handler that fails has lost its message."""
    claim_fenced = MemorySession.claim_fenced

    def claim(self: Any, claims: Sequence[Claim]) -> list[tuple[Verdict, int]]:
        replies = claim_fenced(self, claims)
        for each, (verdict, _) in zip(claims, replies, strict=True):
            if verdict is Verdict.NEW:
                self._state.keys[each.key] = Finished(float("inf"), "")
        return replies

    patch.setattr(MemorySession, "claim_fenced", claim)


def failures_keep_their_key(patch: Patch) -> None:
    patch.setattr(MemorySession, "unclaim", lambda self, claims: None)


def who_lives_is_taken_for_dead(patch: Patch) -> None:
    """An orphan rule that is wrong: any other's record counts as left behind."""

    def claim(self: Any, claims: Sequence[Claim]) -> list[tuple[Verdict, int]]:
        for each in claims:
            held = self._state.key(each.key)
            if isinstance(held, Claimed) and held.session != self.id:
                del self._state.keys[each.key]
        return claim_fenced(self, claims)

    claim_fenced = MemorySession.claim_fenced
    patch.setattr(MemorySession, "claim_fenced", claim)


def who_is_dead_holds_for_ever(patch: Patch) -> None:
    patch.setattr(MemoryState, "alive", lambda self, session_id: session_id in self.sessions)


def calls_of_one_process_claim_as_one(patch: Patch) -> None:
    patch.setattr(ProcessState, "number", lambda self: 1)


def looking_and_taking_are_two_commands(patch: Patch) -> None:
    """GET, and then SET: two see that the key is free, or that its record has expired."""
    both = threading.Barrier(2)

    def claim(self: Any, claims: Sequence[Claim]) -> list[tuple[Verdict, int]]:
        [each] = claims
        with self._state.lock:
            held = self._state.key(each.key)
        if isinstance(held, Finished):
            return [(Verdict.DONE, 0)]
        if held is not None:
            return [(Verdict.BUSY, 0)]
        try:
            both.wait(0.05)
        except threading.BrokenBarrierError:
            both.reset()
        with self._state.lock:
            self._state.keys[each.key] = Claimed(self.id, each.token)
        return [(Verdict.NEW, 1)]

    patch.setattr(MemorySession, "claim_fenced", claim)


def nobody_renews(patch: Patch) -> None:
    patch.setattr(Lease, "start", lambda self, renew: None)


def what_has_passed_counts_as_done_without_a_result(patch: Patch) -> None:
    results = MemorySession.results
    patch.setattr(MemorySession, "results", lambda self, keys: [each or "" for each in results(self, keys)])


def who_was_taken_over_is_not_told_once_the_other_has_finished(patch: Patch) -> None:
    finish = Grant.finish

    def lenient(self: Grant, claims: Sequence[Claim], results: Sequence[str]) -> FinishReply | None:
        said = finish(self, claims, results)
        if said is None:
            return None
        return said._replace(verdicts=[Verdict.NEW if each is Verdict.DONE else each for each in said.verdicts])

    patch.setattr(Grant, "finish", lenient)


def fences_do_not_rise(patch: Patch) -> None:
    claim_fenced = MemorySession.claim_fenced
    patch.setattr(
        MemorySession,
        "claim_fenced",
        lambda self, claims: [(verdict, 1) for verdict, _ in claim_fenced(self, claims)],
    )


CASES: list[tuple[Callable[[Patch], None], Callable[[], None]]] = [
    (finish_overwrites_whoever_holds_the_key, histories_are_those_of_the_model),
    (giving_back_deletes_whoever_holds_the_key, histories_are_those_of_the_model),
    (keys_are_done_before_the_body_has_run, histories_are_those_of_the_model),
    (failures_keep_their_key, histories_are_those_of_the_model),
    (who_lives_is_taken_for_dead, histories_are_those_of_the_model),
    (who_is_dead_holds_for_ever, histories_are_those_of_the_model),
    (calls_of_one_process_claim_as_one, histories_are_those_of_the_model),
    (who_was_taken_over_is_not_told_once_the_other_has_finished, histories_are_those_of_the_model),
    (fences_do_not_rise, histories_are_those_of_the_model),
    (looking_and_taking_are_two_commands, of_calls_at_once_one_runs),
    (nobody_renews, a_body_may_take_longer_than_the_lease),
    (what_has_passed_counts_as_done_without_a_result, a_key_whose_window_passes_between_two_calls_is_run_again),
]


@pytest.mark.parametrize("promise", dict.fromkeys(promise for _, promise in CASES), ids=lambda each: each.__name__)
def test_the_promise_is_kept(promise: Callable[[], None]) -> None:
    promise()


@pytest.mark.parametrize(("fault", "promise"), CASES, ids=[fault.__name__ for fault, _ in CASES])
def test_with_this_fault_it_is_noticed(fault: Callable[[Patch], None], promise: Callable[[], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        with pytest.raises(AssertionError):
            promise()
