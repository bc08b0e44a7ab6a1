"""Members that die, ask again and are late, at the specification and at a real Redis that fails over to a replica which
was behind, is emptied, or lets nobody in: every reply and all that is visible stays the same, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from holdfast.dedup.claims import Acquired, AskInHand, Claim, ClaimKey, Drop, LetGo, Mark, Token
from holdfast.errors import StoreUnavailable
from tests.harness.stores import MemoryBench, RedisBench, SeenPosition, View, on_its_way

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.dedup.memory_session import MemorySession
    from holdfast.dedup.redis_session import RedisSession

PARTITIONS = ["p", "p", "p", "q"]
#: Few, so that they meet; some at the edges of a bitmap's bytes and chunks.
OFFSETS = [0, 1, 2, 7, 8, 255, 256, 257, 512, 2**40, 2**53 - 1]
#: What the session itself has is by far the most common; 0 has a meaning of its own; the others are of others.
OWN = -1
EPOCHS = [OWN, OWN, OWN, OWN, 0, 1, 2, 3]

actors = st.integers(0, 2)
partitions = st.sampled_from(PARTITIONS)
offset_sets = st.lists(st.sampled_from(OFFSETS), unique=True, max_size=5).map(sorted)
epochs = st.sampled_from(EPOCHS)
tokens = st.builds(Token, partitions, st.sampled_from([0, 1]), st.sampled_from([1, 2]))
#: One is so long that it is stored as a digest.
KEYS = [ClaimKey("h", key) for key in ("k", "l", "m" * 513)]
claims = st.builds(Claim, st.sampled_from(KEYS), tokens)
claim_lists = st.lists(claims, min_size=1, max_size=4)
#: Whether the reply is lost: the session raises its generation and asks again.
unheard = st.booleans()


class Pair(NamedTuple):
    """One session, at the one and at the other."""

    memory: MemorySession
    redis: RedisSession


class Late(NamedTuple):
    """A request that is still on its way, in the state of the session that sent it."""

    pair: Pair
    method: str
    args: tuple[Any, ...]


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except StoreUnavailable:
        return StoreUnavailable


def _ageless(reply: Any) -> Any:
    return reply._replace(born_ms=0) if isinstance(reply, Acquired) else reply


class ClaimsMachine(RuleBasedStateMachine):
    url: ClassVar[str]
    bench: ClassVar[type[RedisBench]] = RedisBench
    settings: ClassVar[dict[str, Any]]

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.redis = MemoryBench(), self.bench(self.url, known=KEYS, **self.settings)
        self.names: tuple[dict[str, str], dict[str, str]] = ({}, {})
        self.pairs = [self.new(), self.new(), self.new()]
        self.epochs: dict[tuple[int, str], int] = {}
        self.late: list[Late] = []
        self.replicas: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def new(self) -> Pair:
        pair = Pair(self.memory.begin(), self.redis.begin())
        for names, session_id in zip(self.names, (pair.memory.id, pair.redis.id), strict=True):
            names[session_id] = f"session {len(names)}"
        return pair

    def epoch(self, actor: int, partition: str, other: int) -> int:
        return self.epochs.get((actor, partition), 1) if other == OWN else other

    def ask(self, actor: int, method: str, *args: Any, lost: bool) -> Any:
        pair = self.pairs[actor]
        self.late = [*self.late[-7:], Late(Pair(on_its_way(pair.memory), on_its_way(pair.redis)), method, args)]
        reply = self.both(pair, method, args)
        if lost:
            pair.memory.raise_generation()
            pair.redis.raise_generation()
            reply = self.both(pair, method, args)
        return reply

    @staticmethod
    def both(pair: Pair, method: str, args: tuple[Any, ...]) -> Any:
        expected = outcome(lambda: getattr(pair.memory, method)(*args))
        found = outcome(lambda: getattr(pair.redis, method)(*args))
        if method == "claim_fenced" and StoreUnavailable not in (expected, found):
            # Each store has fences of its own: that they rise is a contract, test_claims.py.
            expected, found = ([(verdict, fence > 0) for verdict, fence in reply] for reply in (expected, found))
        if method == "acquire" and StoreUnavailable not in (expected, found):
            # As are the times at which they first heard of a position.
            expected, found = ([_ageless(each) for each in reply] for reply in (expected, found))
        assert found == expected, f"{method}{args}: {found}, and the specification says {expected}"
        return expected

    @rule(actor=actors, names=st.lists(partitions, min_size=1, max_size=2), lost=unheard)
    def acquire(self, actor: int, names: list[str], lost: bool) -> None:
        for name, reply in zip(names, self.ask(actor, "acquire", names, lost=lost), strict=True):
            if isinstance(reply, Acquired):
                self.epochs[actor, name] = reply.epoch

    @rule(
        actor=actors,
        items=st.lists(
            st.tuples(partitions, epochs, st.sampled_from([0, 0, 1, 8, 256, 258, 2**40]), offset_sets),
            min_size=1,
            max_size=2,
        ),
        lost=unheard,
    )
    def mark(self, actor: int, items: list[tuple[str, int, int, list[int]]], lost: bool) -> None:
        marks = [Mark(p, self.epoch(actor, p, e), w, offsets) for p, e, w, offsets in items]
        self.ask(actor, "mark", marks, lost=lost)

    @rule(actor=actors, name=partitions, epoch=epochs, unacked=offset_sets, lost=unheard)
    def let_go(self, actor: int, name: str, epoch: int, unacked: list[int], lost: bool) -> None:
        self.ask(actor, "let_go", [LetGo(name, self.epoch(actor, name, epoch), unacked)], lost=lost)

    @rule(actor=actors, to=actors, name=partitions, unacked=offset_sets, polled=offset_sets)
    def hands_over(self, actor: int, to: int, name: str, unacked: list[int], polled: list[int]) -> None:
        """What it takes to get there by single steps is rare."""
        self.acquire(actor, [name], lost=False)
        self.let_go(actor, name, OWN, unacked, lost=False)
        self.acquire(to, [name], lost=False)
        self.poll(to, name, polled, lost=False)

    @rule(actor=actors, name=partitions, offsets=offset_sets, lost=unheard)
    def poll(self, actor: int, name: str, offsets: list[int], lost: bool) -> None:
        self.ask(actor, "poll", [AskInHand(name, self.epoch(actor, name, OWN), offsets)], lost=lost)

    @rule(actor=actors, name=partitions, offset=st.sampled_from(OFFSETS), epoch=epochs, lost=unheard)
    def release(self, actor: int, name: str, offset: int, epoch: int, lost: bool) -> None:
        self.ask(actor, "release", [Token(name, offset, self.epoch(actor, name, epoch))], lost=lost)

    @rule(
        actor=actors,
        items=st.lists(st.tuples(partitions, epochs, st.sampled_from(OFFSETS)), min_size=1, max_size=2),
        lost=unheard,
    )
    def drop(self, actor: int, items: list[tuple[str, int, int]], lost: bool) -> None:
        drops = [Drop(p, self.epoch(actor, p, e), offset) for p, e, offset in items]
        self.ask(actor, "drop", drops, lost=lost)

    @rule(actor=actors, claims=claim_lists, lost=unheard)
    def claim(self, actor: int, claims: list[Claim], lost: bool) -> None:
        self.ask(actor, "claim", claims, lost=lost)

    @rule(actor=actors, claims=claim_lists, lost=unheard)
    def claim_fenced(self, actor: int, claims: list[Claim], lost: bool) -> None:
        self.ask(actor, "claim_fenced", claims, lost=lost)

    @rule(actor=actors, claims=claim_lists, lost=unheard)
    def finish(self, actor: int, claims: list[Claim], lost: bool) -> None:
        self.ask(actor, "finish", claims, lost=lost)

    @rule(
        actor=actors,
        items=st.lists(st.tuples(claims, st.sampled_from(["", "7", "[]"])), min_size=1, max_size=4),
        lost=unheard,
    )
    def finish_with_results(self, actor: int, items: list[tuple[Claim, str]], lost: bool) -> None:
        self.ask(actor, "finish", [claim for claim, _ in items], [result for _, result in items], lost=lost)

    @rule(
        actor=actors,
        done=claim_lists,
        items=st.lists(st.tuples(partitions, epochs, st.sampled_from([0, 8]), offset_sets), max_size=2),
        claims=claim_lists,
        lost=unheard,
    )
    def exchange(
        self,
        actor: int,
        done: list[Claim],
        items: list[tuple[str, int, int, list[int]]],
        claims: list[Claim],
        lost: bool,
    ) -> None:
        marks = [Mark(p, self.epoch(actor, p, e), w, offsets) for p, e, w, offsets in items]
        finished = {claim.key for claim in done}
        self.ask(actor, "exchange", done, marks, [claim for claim in claims if claim.key not in finished], lost=lost)

    @rule(actor=actors, claims=claim_lists, lost=unheard)
    def results(self, actor: int, claims: list[Claim], lost: bool) -> None:
        self.ask(actor, "results", [claim.key for claim in claims], lost=lost)

    @rule(actor=actors, claims=claim_lists, lost=unheard)
    def unclaim(self, actor: int, claims: list[Claim], lost: bool) -> None:
        self.ask(actor, "unclaim", claims, lost=lost)

    @rule(actor=actors, lost=unheard)
    def renew(self, actor: int, lost: bool) -> None:
        self.ask(actor, "renew", lost=lost)

    @rule(actor=actors)
    def dies(self, actor: int) -> None:
        """The store thinks so; the process goes on with what it holds."""
        self.memory.kill(self.pairs[actor].memory.id)
        self.redis.kill(self.pairs[actor].redis.id)

    @rule(actor=actors, claims=claim_lists)
    def does(self, actor: int, claims: list[Claim]) -> None:
        """As `hands_over`: what it takes for a key to be done is rare."""
        self.claim(actor, claims, lost=False)
        self.finish(actor, claims, lost=False)

    @rule(days=st.sampled_from([1.1, 2.3, 8.0]))
    def time_passes_for_what_is_done(self, days: float) -> None:
        """Of a window of seven days; no sum of these ends near it."""
        self.memory.age(days * 86_400)
        self.redis.age(days * 86_400)

    @rule(actor=actors)
    def ends(self, actor: int) -> None:
        self.ask(actor, "end", lost=False)

    @rule(actor=actors)
    def begins_anew(self, actor: int) -> None:
        self.pairs[actor] = self.new()

    @rule()
    def a_replica_falls_behind(self) -> None:
        self.replicas = [*self.replicas[-1:], (self.memory.replica(), self.redis.replica())]

    @precondition(lambda self: self.replicas)
    @rule(which=st.integers(0, 1))
    def fails_over_to_a_replica_that_was_behind(self, which: int) -> None:
        """Acknowledged writes are lost, those of sessions among them."""
        for fail_over in self.replicas.pop(which % len(self.replicas)):
            fail_over()

    @rule(actor=actors, claims=claim_lists, names=st.lists(partitions, min_size=1, max_size=2, unique=True))
    def fails_over_in_the_midst_of_work(self, actor: int, claims: list[Claim], names: list[str]) -> None:
        """What it takes by single steps is rare: a session that lives on, and what it asked for is gone."""
        fail_overs = (self.memory.replica(), self.redis.replica())
        self.acquire(actor, names, lost=False)
        self.claim(actor, claims, lost=False)
        for fail_over in fail_overs:
            fail_over()

    @rule(
        actor=actors,
        name=partitions,
        watermark=st.sampled_from([0, 8, 258]),
        done=offset_sets,
        reset=st.none() | st.sampled_from([0, 5]),
        ends=st.booleans(),
    )
    def fails_over_and_lets_go(
        self, actor: int, name: str, watermark: int, done: list[int], reset: int | None, ends: bool
    ) -> None:
        """What it takes by single steps is rare: marks and drops that were acknowledged, and are gone."""
        self.acquire(actor, [name], lost=False)
        fail_overs = (self.memory.replica(), self.redis.replica())
        if reset is not None:
            self.drop(actor, [(name, OWN, reset)], lost=False)
        self.mark(actor, [(name, OWN, watermark, done)], lost=False)
        for fail_over in fail_overs:
            fail_over()
        if ends:
            self.let_go(actor, name, OWN, [], lost=False)

    @rule()
    def is_emptied(self) -> None:
        self.memory.empty()
        self.redis.empty()

    @rule(actor=actors, claims=claim_lists, name=partitions)
    def lets_nobody_in(self, actor: int, claims: list[Claim], name: str) -> None:
        """The user may run no scripts for a while: no call is heard, and none is answered."""
        self.memory.claims.go_silent(hears=False)
        with self.redis.shut():
            for method, args in (("claim", [claims]), ("acquire", [[name]]), ("finish", [claims]), ("renew", [])):
                self.ask(actor, method, *args, lost=False)
            self.memory.claims.speak_again()

    @precondition(lambda self: self.late)
    @rule(which=st.integers(0, 7))
    def a_late_request_arrives(self, which: int) -> None:
        self.both(*self.late.pop(which % len(self.late)))

    @invariant()
    def nobody_can_tell_them_apart(self) -> None:
        for pair in self.pairs:
            assert pair.redis.live() == pair.memory.live()
        assert self.renamed(self.redis.view(), 1) == self.renamed(self.memory.view(), 0)

    def renamed(self, view: View, side: int) -> View:
        """Ids are random: each store's sessions by the order in which they began."""
        names = self.names[side]
        return View(
            {names[each]: facts for each, facts in view.sessions.items()},
            {
                name: SeenPosition(
                    p.epoch,
                    p.owner and names[p.owner],
                    p.watermark,
                    p.above,
                    {offset: (names[session], epoch) for offset, (session, epoch) in p.running.items()},
                )
                for name, p in view.positions.items()
            },
            {key: held and (names[held[0]], held[1]) for key, held in view.keys.items()},
            view.results,
        )

    def teardown(self) -> None:
        for pair in self.pairs:
            pair.memory.end()
            pair.redis.end()
        self.memory.close()
        self.redis.close()


#: With digests all keys are in one bucket.
@pytest.mark.parametrize("layout", [{}, {"hash_keys": True, "keys_expected": 1}], ids=["plain", "digests"])
@pytest.mark.parametrize("examples", [12, pytest.param(80, marks=pytest.mark.full)])
def test_redis_does_what_the_specification_says(redis_url: str, layout: dict[str, Any], examples: int) -> None:
    run_state_machine_as_test(
        type("ClaimsMachineHere", (ClaimsMachine,), {"url": redis_url, "settings": layout}),
        settings=settings(
            max_examples=examples, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )
