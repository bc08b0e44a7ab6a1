"""The table of groups.py as Python, the executable specification of groups. For tests, and for a group in one
process."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from holdfast.dedup.groups import Beat, Differs, Elsewhere, GroupMember, Plan, Refusal, Standing, View
from holdfast.dedup.memory_state import Answering, straight
from holdfast.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.dedup.groups import Member
    from holdfast.dedup.memory_state import Carry
    from holdfast.records import Partition
    from holdfast.runtime import Runtime

_T = TypeVar("_T")


@dataclass(slots=True, kw_only=True)
class StoredLease:
    """A member's lease: dead when the deadline has passed; absent = the member is not known."""

    deadline: float
    generation: int = 0


@dataclass(slots=True, kw_only=True)
class StoredGroup:
    """One group."""

    leases: dict[str, StoredLease] = field(default_factory=dict)
    members: dict[str, GroupMember] = field(default_factory=dict)
    offers: dict[str, frozenset[Partition]] = field(default_factory=dict)
    subscription: str | None = None
    view: int = 0
    planned: int = 0
    plan: Plan = field(default_factory=Plan)
    since: float = -math.inf
    notes: dict[str, str] = field(default_factory=dict)
    posts: dict[str, str] = field(default_factory=dict)

    def standing(self) -> Standing:
        """View and plan by their numbers."""
        return Standing(self.view, self.planned, self.plan.stamp)


class MemoryGroups(Answering):
    """All groups of one store."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime, "no answer: a test has made these groups silent")
        self.groups: dict[str, StoredGroup] = {}

    def group(self, name: str) -> StoredGroup:
        """The group; empty if it does not exist."""
        return self.groups.setdefault(name, StoredGroup())


class MemoryGroupSession:
    """One join of one member; or, without a member id, a reader that is not in the group."""

    def __init__(
        self, state: MemoryGroups, group: str, member_id: str = "", lease_s: float = 0.0, *, carry: Carry = straight
    ) -> None:
        self.id = member_id
        self._state = state
        self._name = group
        self._lease_s = lease_s
        self._generation = 0
        self._carry = carry
        self._me = GroupMember(member_id, "")  #: this member, as of its join

    def join(self, member: Member, queues: frozenset[Partition]) -> Standing | Differs | Elsewhere | Refusal:
        """Join the group."""
        me = self._me = GroupMember(self.id, member.client_id, member.weight, member.description, member.servers)

        def apply() -> Standing | Differs | Elsewhere | Refusal:
            group = self._group
            if self._refusal() is Refusal.LOST:
                return Refusal.LOST
            self._bury()
            others = [each for each in group.members.values() if each.id != self.id]
            far = [each for each in others if each.servers and member.servers and not each.servers & member.servers]
            if far:
                return Elsewhere(
                    [each.client_id for each in far], frozenset(server for each in far for server in each.servers)
                )
            if group.members and group.subscription != member.subscription:
                return Differs(group.subscription or "", [each.client_id for each in group.members.values()])
            new = (me, queues) != (group.members.get(self.id), group.offers.get(self.id))
            group.leases[self.id] = StoredLease(deadline=self._now + self._lease_s)
            group.members[self.id], group.offers[self.id] = me, queues
            group.subscription = member.subscription
            group.view += new  # else the call was repeated after no answer
            return group.standing()

        return self._ask(apply)

    def beat(self) -> Beat | Refusal:
        """Renew the lease. Removes dead members."""

        def apply() -> Beat | Refusal:
            group = self._group
            if refused := self._refusal():
                return refused
            group.leases[self.id].deadline = self._now + self._lease_s
            self._bury()
            left_s = [group.leases[other].deadline - self._now for other in group.members if other != self.id]
            return Beat(group.standing(), min(left_s, default=None))

        return self._ask(apply)

    def offer(self, queues: frozenset[Partition], servers: frozenset[str]) -> Standing | Refusal:
        """Report the queues, and the servers' addresses, that this member sees."""
        me = self._me = self._me._replace(servers=servers)

        def apply() -> Standing | Refusal:
            group = self._group
            if refused := self._refusal():
                return refused
            group.view += (me, queues) != (group.members[self.id], group.offers[self.id])
            group.members[self.id], group.offers[self.id] = me, queues
            return group.standing()

        return self._ask(apply)

    def standing(self) -> Standing:
        """The group's view and plan by their numbers."""
        return self._ask(lambda: self._group.standing())  # noqa: PLW0108 - the group as it is when the call arrives

    def look(self) -> View:
        """Read the whole state of the group."""

        def apply() -> View:
            group = self._group
            left_s = {each: max(0.0, group.leases[each].deadline - self._now) for each in group.members}
            age_s = self._now - group.since
            members, offers = dict(group.members), dict(group.offers)
            return View(group.standing(), group.plan, age_s, group.subscription or "", members, offers, left_s)

        return self._ask(apply)

    def publish(self, view: View, plan: Plan) -> Standing | Refusal:
        """Publish the plan for this view."""

        def apply() -> Standing | Refusal:
            group = self._group
            if refused := self._refusal():
                return refused
            if not self._as_in(view):
                return Refusal.BEHIND
            self._set_plan(plan)
            group.planned = group.view
            return group.standing()

        return self._ask(apply)

    def leave(self, view: View | None = None, plan: Plan | None = None) -> Standing | Refusal:
        """Leave the group."""

        def apply() -> Standing | Refusal:
            group = self._group
            if self.id not in group.members:
                return group.standing()
            if view is not None and not self._as_in(view):
                return Refusal.BEHIND
            self._remove(self.id)
            group.leases[self.id] = StoredLease(deadline=self._now)
            group.view += 1
            if plan is not None:
                self._set_plan(plan)
                group.planned = group.view
            return group.standing()

        return self._ask(apply)

    def restore(self, view: View) -> Standing | Refusal:
        """Put back what the store has lost of this view."""

        def apply() -> Standing | Refusal:
            group = self._group
            refused = self._refusal()
            if refused is Refusal.LOST:
                return refused
            if refused is None:
                return group.standing()  # another member has put this one back
            if group.subscription not in (None, view.subscription):
                return Refusal.LOST
            group.subscription = view.subscription
            if group.plan.generation < view.plan.generation:
                self._set_plan(view.plan)
            for member_id, member in view.members.items():
                if member_id not in group.leases:
                    group.leases[member_id] = StoredLease(deadline=self._now + self._lease_s)
                    group.members[member_id], group.offers[member_id] = member, view.offers[member_id]
            group.view += 1
            return group.standing()

        return self._ask(apply)

    def remove(self) -> bool:
        """Forget the group, if no member of it lives."""

        def apply() -> bool:
            self._bury()
            if self._group.members:
                return False
            del self._state.groups[self._name]
            return True

        return self._ask(apply)

    def note(self, texts: Mapping[str, str | None]) -> None:
        """Keep these texts beside the group. Args: texts: name -> text; None = remove that one."""

        def apply() -> None:
            notes = self._group.notes
            for name, text in texts.items():
                if text is None:
                    notes.pop(name, None)
                else:
                    notes[name] = text

        self._ask(apply)

    def noted(self, names: Sequence[str]) -> list[str | None]:
        """The note kept under each of these names."""
        return self._ask(lambda: [self._group.notes.get(name) for name in names])

    def post(self, name: str, text: str | None) -> None:
        """Put this text under that name; None = remove it."""

        def apply() -> None:
            if text is None:
                self._group.posts.pop(name, None)
            else:
                self._group.posts[name] = text

        self._ask(apply)

    def posts(self) -> dict[str, str]:
        """All texts, by their names."""
        return self._ask(lambda: dict(self._group.posts))

    def raise_generation(self) -> None:
        """After a call without an answer: calls sent until now are refused from the next call on."""
        self._generation += 1

    @property
    def _group(self) -> StoredGroup:
        return self._state.group(self._name)

    @property
    def _now(self) -> float:
        return self._state.clock.now()

    def _alive(self, member_id: str) -> bool:
        lease = self._group.leases.get(member_id)
        return lease is not None and lease.deadline > self._now

    def _refusal(self) -> Refusal | None:
        if self._alive(self.id):
            return None
        return Refusal.LOST if self.id in self._group.leases else Refusal.UNKNOWN

    def _remove(self, member_id: str) -> None:
        del self._group.members[member_id], self._group.offers[member_id]

    def _bury(self) -> None:
        dead = [member_id for member_id in self._group.members if not self._alive(member_id)]
        for member_id in dead:
            self._remove(member_id)
        self._group.view += bool(dead)

    def _as_in(self, view: View) -> bool:
        return (self._group.view, self._group.plan.stamp) == (view.standing.view, view.standing.stamp)

    def _set_plan(self, plan: Plan) -> None:
        if plan.stamp != self._group.plan.stamp:
            self._group.plan, self._group.since = plan, self._now

    def _ask(self, apply: Callable[[], _T]) -> _T:
        """Make one call under the lock, as one script does in Redis: with the barrier, and with or without an
        answer."""
        generation = self._generation

        def request() -> tuple[_T] | None:
            leases = self._group.leases
            if self.id in leases and generation < leases[self.id].generation:
                return None
            reply = apply()
            if self.id in leases:
                leases[self.id].generation = generation
            return (reply,)

        reply = self._state.ask(self._carry, request, self.raise_generation)
        if reply is None:
            raise StoreUnavailable(f"a call of member {self.id} was overtaken by its own later call: ask again")
        return reply[0]
