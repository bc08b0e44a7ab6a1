"""Random histories of calls over keys, processes, threads and failures, judged by a model.

Each process is a store object of its own, with a session of its own. A call runs in a thread and stops in its body
until the history says how it ends, so that bodies overlap in every way. The model says after each step what each call
must have come to: which body is running, what is returned, who is fenced.
"""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from holdfast import Fenced, MemoryClaims, RedisClaims, Skipped, current_claim, idempotent
from tests.tiers import examples

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.dedup.calls.grant import CurrentClaim
    from holdfast.dedup.calls.process import CallStore

PROCESSES = 3
KEYS = ["a", "b"]
AT_ONCE = 12


class Failed(Exception):
    """What a body raises."""


class Process:
    """One process: a store object, and the function in it."""

    def __init__(self, store: CallStore) -> None:
        self.store = store
        self.body: Callable[[str], str] = lambda _: ""

        def body(key: str) -> str:
            return self.body(key)

        self.call = idempotent(store, key="key", name="f", on_busy="skip")(body)


@dataclass(eq=False)
class Running:
    """A call whose body runs."""

    process: int
    key: str
    #: Which life of its process' session it belongs to.
    life: int
    result: str
    began: threading.Event = field(default_factory=threading.Event)
    ends: threading.Event = field(default_factory=threading.Event)
    fails: bool = False
    claim: CurrentClaim | None = None
    future: Future[Any] = field(default_factory=Future)

    def body(self, _: str) -> str:
        self.claim = current_claim()
        self.began.set()
        assert self.ends.wait(60)
        if self.fails:
            raise Failed
        return self.result


def _is_not_run(_: str) -> str:
    raise AssertionError("the body was run, and its key is busy or done")


@dataclass
class Model:
    """What is true of the keys: done with a result, or held by a running call."""

    done: dict[str, str] = field(default_factory=dict)
    held: dict[str, Running] = field(default_factory=dict)
    fences: dict[str, int] = field(default_factory=dict)
    ran: int = 0


class CallsMachine(RuleBasedStateMachine):
    make_store: ClassVar[Callable[[], Callable[[], Any]]]

    def __init__(self) -> None:
        super().__init__()
        make = type(self).make_store()
        self.processes = [Process(make()) for _ in range(PROCESSES)]
        self.lives = [0] * PROCESSES
        self.model = Model()
        self.running: list[Running] = []
        self.pool = ThreadPoolExecutor(16)

    def alive(self, call: Running) -> bool:
        return self.lives[call.process] == call.life

    @precondition(lambda self: len(self.running) < AT_ONCE)
    @rule(process=st.integers(0, PROCESSES - 1), key=st.sampled_from(KEYS))
    def calls(self, process: int, key: str) -> None:
        held = self.model.held.get(key)
        busy = held is not None and self.alive(held)
        if key in self.model.done or busy:
            self.processes[process].body = _is_not_run
            result = self.pool.submit(self.processes[process].call, key).result(30)
            assert result == (Skipped.BUSY if busy else self.model.done[key])
            return
        self.model.ran += 1
        call = Running(process, key, self.lives[process], f"{key} by {self.model.ran}")
        self.processes[process].body = call.body
        call.future = self.pool.submit(self.processes[process].call, key)
        call.future.add_done_callback(lambda _: call.began.set())
        assert call.began.wait(30)
        self.running.append(call)
        assert call.claim is not None, "the key is free, and the body was not run"
        assert call.claim.fence > self.model.fences.get(key, 0)
        self.model.fences[key] = call.claim.fence
        self.model.held[key] = call

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, AT_ONCE - 1), fails=st.sampled_from([False, False, True]))
    def a_body_ends(self, which: int, *, fails: bool) -> None:
        call = self.running.pop(which % len(self.running))
        call.fails = fails
        call.ends.set()
        error = call.future.exception(30)
        holds = self.model.held.get(call.key) is call
        if fails:
            assert isinstance(error, Failed)
            if holds:
                del self.model.held[call.key]
        elif holds:
            assert error is None
            del self.model.held[call.key]
            self.model.done[call.key] = call.result
        else:
            assert isinstance(error, Fenced), "it was taken over, and not told"

    @rule(process=st.integers(0, PROCESSES - 1))
    def a_process_is_taken_for_dead(self, process: int) -> None:
        """And learns of it by its next renewal. Its bodies run on."""
        store = self.processes[process].store
        kill(store)
        self.lives[process] += 1

    @invariant()
    def who_is_taken_for_dead_is_told_and_no_other(self) -> None:
        for call in self.running:
            assert call.claim is not None
            assert call.claim.cancelled != self.alive(call)

    def teardown(self) -> None:
        for call in self.running:
            call.ends.set()
        self.pool.shutdown()
        for process in self.processes:
            process.store.close()


def kill(store: Any) -> None:
    """As if the lease of the store's session had passed."""
    session = store.calls.session()
    if isinstance(store, MemoryClaims):
        store.expire(session.id)
    else:
        store._client.hdel(store._layout.sessions(0).decode(), session.id)
    session.renew()


def in_memory() -> Callable[[], MemoryClaims]:
    """Makes the stores of the processes of one history."""
    shared = MemoryClaims(renewals=False)

    def process() -> MemoryClaims:
        store = MemoryClaims(renewals=False)
        store.state = shared.state
        return store

    return process


def run(make_store: Callable[[], Callable[[], Any]], **choices: Any) -> None:
    """Many histories. Raises AssertionError where one is not that of the model."""
    run_state_machine_as_test(
        type("CallsMachineHere", (CallsMachine,), {"make_store": staticmethod(make_store)}),
        settings=settings(
            stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow], **choices
        ),
    )


def test_histories_in_memory_are_those_of_the_model() -> None:
    run(in_memory, max_examples=examples(60))


def test_histories_on_redis_are_those_of_the_model(redis_url: str) -> None:
    namespaces = itertools.count()

    def make() -> Callable[[], RedisClaims]:
        namespace = f"n{next(namespaces)}"
        return lambda: RedisClaims.from_url(redis_url, namespace=namespace, lease_s=3600.0)

    run(make, max_examples=examples(30))
