"""The coordinator as sources see it: a source joins a group, and is kept in it. groups.py says what a group is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from holdfast.dedup.groups import GroupMember, Member, Plan, Strategy, View
    from holdfast.records import Partition
    from holdfast.timing import Deadline


class Membership(Protocol):
    """A member that is kept in its group by a thread of its own. Any thread may call."""

    @property
    def id(self) -> str:
        """`<client id>#<random>`: of this join alone."""
        ...

    @property
    def lost(self) -> bool:
        """Whether it is over: by our own clock, without asking, or by the store's word. Once True, True for ever.

        All queues are to be given up without a commit; a new join gets a new id. Does not block.
        """
        ...

    def plan(self) -> Plan:
        """The newest that is known, some 50 ms old at most while the store answers. Does not block."""
        ...

    def members(self) -> Sequence[GroupMember]:
        """The members of the group, as known with that plan. Does not block."""
        ...

    def offer(self, queues: Sequence[Partition], servers: Collection[str] = ()) -> None:
        """All queues that this member sees at the name server now, and the addresses of the cluster's servers, as in
        `Member`. Does not block; the thread does what follows."""
        ...

    def vouch(self, seconds: float) -> None:
        """The work goes on: stay in for so long from now on. Before the first call, without a limit. Does not block."""
        ...

    def leave(self, deadline: Deadline) -> None:
        """Go, and publish the plan without us in the same call. Does not raise: unheard, the lease ends. Idempotent."""
        ...


class GroupState(NamedTuple):
    """A group for people and tools."""

    plan: Plan
    settled: bool  #: whether the plan is for these members and their queues
    subscription: str
    members: Sequence[GroupMember]
    left_s: Mapping[str, float]  #: of each member's lease, by its id; 0 = dead, and not yet removed
    queues: frozenset[Partition]  #: that members offer


def state_of(view: View) -> GroupState:
    """The group's state as a look shows it."""
    members = tuple(view.members.values())
    return GroupState(view.plan, view.standing.settled, view.subscription, members, view.left_s, view.queues())


class Coordinator(Protocol):
    """Where groups live. One object a process; any thread may call."""

    def join(
        self,
        group: str,
        member: Member,
        deadline: Deadline,
        *,
        strategy: Strategy,
        wake: Callable[[], None],
        queues: Sequence[Partition] = (),
        lease_s: float = 10.0,
    ) -> Membership:
        """Join, and stay until the membership leaves or is lost.

        Args:
            group: its name.
            member: who joins.
            deadline: asks again until then.
            strategy: makes plans when it falls to this member. Members may differ in it: whoever computes decides.
            wake: called by the membership's thread when `plan` or `lost` has changed: quick, must not raise.
            queues: as of `Membership.offer`.
            lease_s: a member that is silent for so long is removed. At most: the coordinator's and the store's own
                settings may be shorter.

        Raises:
            SubscriptionDiffers: living members subscribe to something else; shows both.
            ClusterDiffers: living members are at another cluster; shows both.
            StoreUnavailable: no answer until the deadline.
            StoreRefused: as of `ClaimStore.connect`; or another version of holdfast has made the group.
        """
        ...

    def members(self, group: str) -> Sequence[GroupMember]:
        """The members of the group now. Raises StoreUnavailable, StoreRefused."""
        ...

    def describe(self, group: str) -> GroupState:
        """The group now. Raises StoreUnavailable, StoreRefused."""
        ...

    def note(self, group: str, texts: Mapping[str, str | None]) -> None:
        """Keep texts under names, each instead of what was kept under its name before; None: nothing any more. They
        outlive the members, and are kept for as long as positions that nobody reads. Raises StoreUnavailable,
        StoreRefused."""
        ...

    def noted(self, group: str, names: Sequence[str]) -> list[str | None]:
        """The notes under these names, in their order; None = no note. Raises StoreUnavailable, StoreRefused."""
        ...

    def remove(self, group: str) -> bool:
        """Forget a group. False = a member of it lives. Raises StoreUnavailable, StoreRefused."""
        ...
