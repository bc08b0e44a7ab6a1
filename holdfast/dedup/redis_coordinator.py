"""RedisCoordinator: groups in the Redis, and the namespace, of a store of claims."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from holdfast.dedup.claims import check_store
from holdfast.dedup.coordinator import state_of
from holdfast.dedup.joining import join_group
from holdfast.dedup.redis_groups import RedisGroupSession
from holdfast.errors import SettingError
from holdfast.runtime import MACHINE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.dedup.coordinator import GroupState
    from holdfast.dedup.groups import GroupMember, Member, Strategy
    from holdfast.dedup.membership import Membership
    from holdfast.dedup.redis_store import RedisClaims
    from holdfast.records import Partition
    from holdfast.runtime import Runtime
    from holdfast.timing import Deadline


class RedisCoordinator:
    """Members, generation and plan of groups, beside the claims of `store`. One object a process; any thread may call.

    Args:
        store: its Redis, namespace and connections are used.
        lease_s: a member that is silent for so long is removed. None: the lease given to `join`.
        watch_s: seconds between two looks for a new plan, each of which is one small read.
        runtime: this process' machine; its clock judges leases.

    Raises:
        SettingError: a setting cannot work.
    """

    def __init__(
        self,
        store: RedisClaims,
        *,
        lease_s: float | None = None,
        watch_s: float = 0.05,
        runtime: Runtime = MACHINE,
    ) -> None:
        for field, value in (("lease_s", lease_s), ("watch_s", watch_s)):
            if value is not None and not 0.001 <= value < math.inf:
                raise SettingError(field, value, "give a number of seconds, at least 0.001")
        check_store("store", store, "parts", "begin")
        self._store = store
        self._lease_s = lease_s
        self._watch_s = watch_s
        self._runtime = runtime

    @property
    def store(self) -> RedisClaims:
        """The store of claims beside which groups are kept."""
        return self._store

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
        """Join, and stay until the membership leaves or is lost. See `Coordinator.join`.

        Args:
            group: its name.
            member: this process as it describes itself.
            deadline: asks again until then; one reply's timeout may come on top.
            strategy: makes the plans that this member publishes.
            wake: called by the membership's thread when `plan` or `lost` has changed: quick, must not raise.
            queues: those that this member sees.
            lease_s: at most; the coordinator's and the store's own settings may be shorter.

        Raises:
            SubscriptionDiffers: living members subscribe to something else.
            ClusterDiffers: living members are at another cluster.
            StoreUnavailable: no answer until the deadline.
            StoreRefused: credentials, version, eviction policy, another layout, or another format of the group.
        """
        return join_group(
            lambda member_id, lease_s: RedisGroupSession(self._store.parts(), group, member_id, lease_s),
            group,
            member,
            deadline,
            strategy=strategy,
            wake=wake,
            queues=frozenset(queues),
            lease_s=min(lease_s, self._lease_s or math.inf, self._store.lease_s or math.inf),
            watch_s=self._watch_s,
            runtime=self._runtime,
        )

    def members(self, group: str) -> Sequence[GroupMember]:
        """The members of the group now. A member whose lease is over counts until another member removes it.

        Raises:
            StoreUnavailable, StoreRefused: as `join`.
        """
        return self.describe(group).members

    def describe(self, group: str) -> GroupState:
        """The group now.

        Raises:
            StoreUnavailable, StoreRefused: as `join`.
        """
        return state_of(RedisGroupSession(self._store.parts(), group).look())

    def remove(self, group: str) -> bool:
        """Forget a group. False = a member of it lives.

        Raises:
            StoreUnavailable, StoreRefused: as `join`.
        """
        return RedisGroupSession(self._store.parts(), group).remove()

    def note(self, group: str, texts: Mapping[str, str | None]) -> None:
        """Keep texts under names, beside the group. See `Coordinator.note`.

        Raises:
            StoreUnavailable, StoreRefused: as `join`.
        """
        RedisGroupSession(self._store.parts(), group).note(texts)

    def noted(self, group: str, names: Sequence[str]) -> list[str | None]:
        """The notes under these names; None = no note.

        Raises:
            StoreUnavailable, StoreRefused: as `join`.
        """
        return RedisGroupSession(self._store.parts(), group).noted(names)

    def post(self, group: str, name: str, text: str | None) -> None:
        """Put a member's text where all read it. See `Coordinator.post`.

        Raises:
            StoreUnavailable, StoreRefused: as `join`.
        """
        RedisGroupSession(self._store.parts(), group).post(name, text)

    def posts(self, group: str) -> Mapping[str, str]:
        """The texts of a group, by their names.

        Raises:
            StoreUnavailable, StoreRefused: as `join`.
        """
        return RedisGroupSession(self._store.parts(), group).posts()

    def __repr__(self) -> str:
        return f"RedisCoordinator({self._store!r})"
