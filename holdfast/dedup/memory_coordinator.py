"""MemoryCoordinator: groups in one process, for tests, and for applications that need no store."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from holdfast.dedup.coordinator import state_of
from holdfast.dedup.joining import join_group
from holdfast.dedup.memory_groups import MemoryGroups, MemoryGroupSession
from holdfast.dedup.memory_state import straight
from holdfast.runtime import MACHINE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.dedup.coordinator import GroupState
    from holdfast.dedup.groups import GroupMember, Member, Strategy
    from holdfast.dedup.membership import Membership
    from holdfast.dedup.memory_state import Carry
    from holdfast.records import Partition
    from holdfast.runtime import Runtime
    from holdfast.timing import Deadline


class MemoryCoordinator:
    """Groups in one process, as groups.py has them; nothing outlives the object. Any thread may call.

    Args:
        lease_s: the longest lease of a member; None = no limit.
        watch_s: seconds after which a member sees a new plan, at most.
        runtime: the machine; its clock judges leases.
    """

    def __init__(self, *, lease_s: float | None = None, watch_s: float = 0.01, runtime: Runtime = MACHINE) -> None:
        self.state = MemoryGroups(runtime)
        self._lease_s = lease_s
        self._watch_s = watch_s
        self._runtime = runtime
        self._carry: Carry = straight

    def elsewhere(self, runtime: Runtime, carry: Carry = straight) -> MemoryCoordinator:
        """These groups as a process on another machine sees them: that machine's clock judges its leases.

        Args:
            runtime: of that process.
            carry: carries calls and replies between that process and the groups.
        """
        other = MemoryCoordinator(lease_s=self._lease_s, watch_s=self._watch_s, runtime=runtime)
        other.state, other._carry = self.state, carry
        return other

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
        """Join, and stay. See `Coordinator.join`."""
        return join_group(
            lambda member_id, lease_s: self._session(group, member_id, lease_s),
            group,
            member,
            deadline,
            strategy=strategy,
            wake=wake,
            queues=frozenset(queues),
            lease_s=min(lease_s, self._lease_s or math.inf),
            watch_s=self._watch_s,
            runtime=self._runtime,
        )

    def members(self, group: str) -> Sequence[GroupMember]:
        """The members of the group now."""
        return self.describe(group).members

    def describe(self, group: str) -> GroupState:
        """The group now."""
        return state_of(self._session(group).look())

    def note(self, group: str, texts: Mapping[str, str | None]) -> None:
        """Keep texts under names, beside the group."""
        self._session(group).note(texts)

    def noted(self, group: str, names: Sequence[str]) -> list[str | None]:
        """The notes under these names; None = no note."""
        return self._session(group).noted(names)

    def post(self, group: str, name: str, text: str | None) -> None:
        """Put a member's text where all read it; None removes it."""
        self._session(group).post(name, text)

    def posts(self, group: str) -> Mapping[str, str]:
        """The texts of a group, by their names."""
        return self._session(group).posts()

    def remove(self, group: str) -> bool:
        """Forget a group. False = a member of it lives."""
        return self._session(group).remove()

    def _session(self, group: str, member_id: str = "", lease_s: float = 0.0) -> MemoryGroupSession:
        return MemoryGroupSession(self.state, group, member_id, lease_s, carry=self._carry)
