"""The coordinator as sources see it: a source joins a group, and a thread keeps it in the group. See groups.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.dedup.groups import GroupMember, Member, Plan, Strategy, View
    from holdfast.dedup.membership import Membership
    from holdfast.records import Partition
    from holdfast.timing import Deadline


#: A group's posts are gone, in seconds after the last one.
POSTS_S = 600.0


class GroupState(NamedTuple):
    """A group for people and tools."""

    plan: Plan
    settled: bool  #: whether the plan is for these members and their queues
    subscription: str
    members: Sequence[GroupMember]
    left_s: Mapping[str, float]  #: of each member's lease, by its id; 0 = dead, and not yet removed
    queues: frozenset[Partition]  #: those that members offer


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
            member: this process as it describes itself.
            deadline: asks again until then.
            strategy: makes the plans that this member publishes. If members differ in it, the publishing one decides.
            wake: called by the membership's thread when `plan` or `lost` has changed: quick, must not raise.
            queues: as in `Membership.offer`.
            lease_s: a member that is silent for so long is removed. At most: the coordinator's and the store's own
                settings may be shorter.

        Raises:
            SubscriptionDiffers: living members subscribe to something else; shows both.
            ClusterDiffers: living members are at another cluster; shows both.
            StoreUnavailable: no answer until the deadline.
            StoreRefused: as `ClaimStore.connect`; or another version of holdfast has made the group.
        """
        ...

    def members(self, group: str) -> Sequence[GroupMember]:
        """The members of the group now. Raises StoreUnavailable, StoreRefused."""
        ...

    def describe(self, group: str) -> GroupState:
        """The group now. Raises StoreUnavailable, StoreRefused."""
        ...

    def note(self, group: str, texts: Mapping[str, str | None]) -> None:
        """Keep texts under names; each replaces the former text of its name, and None removes it. Notes outlive the
        members, and are kept as long as unused positions. Raises StoreUnavailable, StoreRefused."""
        ...

    def noted(self, group: str, names: Sequence[str]) -> list[str | None]:
        """The notes under these names, in their order; None = no note. Raises StoreUnavailable, StoreRefused."""
        ...

    def post(self, group: str, name: str, text: str | None) -> None:
        """Put a member's text where all read it, in the place of its former one; None removes it. Texts are gone when
        nobody has put one for `POSTS_S`. Raises StoreUnavailable, StoreRefused."""
        ...

    def posts(self, group: str) -> Mapping[str, str]:
        """The texts of a group, by their names. Raises StoreUnavailable, StoreRefused."""
        ...

    def remove(self, group: str) -> bool:
        """Forget a group. False = a member of it lives. Raises StoreUnavailable, StoreRefused."""
        ...
