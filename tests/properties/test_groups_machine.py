"""Members that come, go, die, ask again and are late, at the specification and at a real Redis: every reply, and all
that can be seen, stays the same, step by step."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from holdfast.dedup.groups import Beat, Member, Plan
from holdfast.errors import StoreUnavailable
from tests.harness.store_groups import MemoryBench, RedisBench, queues
from tests.tiers import examples

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.dedup.groups import View
    from holdfast.dedup.memory_groups import MemoryGroupSession
    from holdfast.dedup.redis_groups import RedisGroupSession

QUEUES = [*queues(2), *queues(2, "%RETRY%billing", "broker-b")]
actors = st.integers(0, 2)
offers = st.frozensets(st.sampled_from(QUEUES))
subscriptions = st.sampled_from(["x", "x", "x", "y"])
weights = st.sampled_from([1, 1, 2])
#: The servers that a member sees: none, those of one cluster, of which each sees some, or another's.
clusters = st.sampled_from([frozenset(each.split()) for each in ("", "a:1", "a:1 a:2", "a:2", "a:1", "a:2", "b:1")])
#: Whether the reply is lost: the member raises its generation and asks again.
unheard = st.booleans()


class Pair(NamedTuple):
    """One member, at the one and at the other."""

    memory: MemoryGroupSession
    redis: RedisGroupSession


class Late(NamedTuple):
    """A request that is still on its way, in the state of the member that sent it."""

    pair: Pair
    method: str
    args: tuple[Any, ...]


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except StoreUnavailable:
        return StoreUnavailable


def timeless(reply: Any) -> Any:
    """Without what depends on when it was asked."""
    if isinstance(reply, Beat):
        return reply.standing, reply.due_s is None
    if hasattr(reply, "left_s"):
        left_s = {member_id: left_s > 0 for member_id, left_s in reply.left_s.items()}
        return reply._replace(plan_age_s=math.isinf(reply.plan_age_s), left_s=left_s)
    return reply


class GroupsMachine(RuleBasedStateMachine):
    url: ClassVar[str]
    bench: ClassVar[type[RedisBench]] = RedisBench

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.redis = MemoryBench(), self.bench(self.url)
        self.made = 0
        self.plans = 0
        self.pairs = [self.new(), self.new(), self.new()]
        self.views: dict[int, View] = {}
        self.late: list[Late] = []
        for actor in range(3):
            self.join(actor, "x", 1, frozenset(QUEUES), lost=False)

    def new(self) -> Pair:
        self.made += 1
        return Pair(self.memory.session(f"m{self.made}"), self.redis.session(f"m{self.made}"))

    def ask(self, actor: int, method: str, *args: Any, lost: bool = False) -> Any:
        pair = self.pairs[actor]
        self.late = [*self.late[-7:], Late(Pair(copy.copy(pair.memory), copy.copy(pair.redis)), method, args)]
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
        assert timeless(found) == timeless(expected), f"{method}{args}: {found}; the specification says {expected}"
        return expected

    def plan(self, view: View, offset: int) -> Plan:
        """Some plan for it; with `offset` 0 the one that there is."""
        if not offset:
            return view.plan
        self.plans += 1
        ids = sorted(view.members) or ["nobody"]
        owners = {queue: ids[(i + offset) % len(ids)] for i, queue in enumerate(sorted(view.queues()))}
        return Plan(f"{view.plan.generation + 1}:{self.plans}", owners)

    @rule(actor=actors, subscription=subscriptions, weight=weights, offer=offers, lost=unheard, servers=clusters)
    def join(
        self, actor: int, subscription: str, weight: int, offer: Any, lost: bool, servers: Any = frozenset()
    ) -> None:
        member = Member(client_id=f"c{actor}", subscription=subscription, weight=weight, servers=servers)
        self.ask(actor, "join", member, offer, lost=lost)

    @rule(actor=actors, lost=unheard)
    def beat(self, actor: int, lost: bool) -> None:
        self.ask(actor, "beat", lost=lost)

    @rule(actor=actors, offer=offers, lost=unheard, servers=clusters)
    def offer(self, actor: int, offer: Any, lost: bool, servers: Any) -> None:
        self.ask(actor, "offer", offer, servers, lost=lost)

    @rule(actor=actors)
    def look(self, actor: int) -> None:
        view = self.ask(actor, "look")
        if view is not StoreUnavailable:
            self.views[actor] = view

    @rule(actor=actors, offset=st.integers(0, 2), look=st.booleans(), lost=unheard)
    def publish(self, actor: int, offset: int, look: bool, lost: bool) -> None:
        if look:
            self.look(actor)
        if view := self.views.get(actor):
            self.ask(actor, "publish", view, self.plan(view, offset), lost=lost)

    @rule(actor=actors, lost=unheard)
    def leave(self, actor: int, lost: bool) -> None:
        self.ask(actor, "leave", lost=lost)

    @rule(actor=actors, look=st.booleans(), lost=unheard)
    def leave_with_a_plan(self, actor: int, look: bool, lost: bool) -> None:
        if look:
            self.look(actor)
        if view := self.views.get(actor):
            self.ask(actor, "leave", view, self.plan(view, 1), lost=lost)

    @rule(actor=actors, lost=unheard)
    def restore(self, actor: int, lost: bool) -> None:
        view = self.views.get(actor)
        if view and self.pairs[actor].memory.id in view.members:
            self.ask(actor, "restore", view, lost=lost)

    @rule(actor=actors)
    def dies(self, actor: int) -> None:
        """The store thinks so; the process goes on with what it holds."""
        self.memory.kill(self.pairs[actor].memory.id)
        self.redis.kill(self.pairs[actor].redis.id)

    @rule(actor=actors, joins=st.sampled_from([True, True, False]), subscription=subscriptions, offer=offers)
    def begins_anew(self, actor: int, joins: bool, subscription: str, offer: Any) -> None:
        self.pairs[actor] = self.new()
        if joins:
            self.join(actor, subscription, 1, offer, lost=False)

    @rule(
        actor=actors,
        forgets=st.booleans(),
        other=st.none() | st.tuples(actors, subscriptions),
        dies=st.booleans(),
        lost=unheard,
    )
    def a_store_that_forgot_is_told(
        self, actor: int, forgets: bool, other: tuple[int, str] | None, dies: bool, lost: bool
    ) -> None:
        """What it takes to get there by single steps is rare."""
        self.join(actor, "x", 1, frozenset(QUEUES), lost=lost)
        self.look(actor)
        if forgets:
            self.memory.forget()
            self.redis.forget()
        if other is not None:
            self.join(*other, 1, frozenset(QUEUES[:1]), lost=False)
            self.publish(other[0], 1, look=True, lost=False)
        if dies:
            self.dies(actor)
        self.restore(actor, lost=False)

    @precondition(lambda self: self.late)
    @rule(which=st.integers(0, 7))
    def a_late_request_arrives(self, which: int) -> None:
        self.both(*self.late.pop(which % len(self.late)))

    @invariant()
    def nobody_can_tell_them_apart(self) -> None:
        side = Pair(self.memory.session(""), self.redis.session(""))
        self.both(side, "look", ())
        self.both(side, "standing", ())
        assert self.redis.leases() == self.memory.leases()

    def teardown(self) -> None:
        self.memory.close()
        self.redis.close()


def test_redis_does_what_the_specification_says(redis_url: str) -> None:
    run_state_machine_as_test(
        type("GroupsMachineHere", (GroupsMachine,), {"url": redis_url}),
        settings=settings(
            max_examples=examples(50),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
