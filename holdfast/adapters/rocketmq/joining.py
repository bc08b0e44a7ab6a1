"""Seat: this process' membership in the group, and the queues that the coordinator's plan gives it and takes away.

Retry topics are assigned apart from other queues: they have few messages, and a member with one would have one busy
queue less.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.rocketmq.names import RETRY
from holdfast.dedup.groups import Member, Plan, leaves_out
from holdfast.errors import StoreUnavailable
from holdfast.plugin.assign import sticky
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from holdfast.adapters.rocketmq.inbox import Inbox
    from holdfast.adapters.rocketmq.remoting import RemotingClient
    from holdfast.adapters.rocketmq.settings import PullSettings
    from holdfast.adapters.rocketmq.topics import Topics
    from holdfast.dedup.coordinator import Coordinator
    from holdfast.dedup.groups import GroupMember, Strategy
    from holdfast.dedup.membership import Membership
    from holdfast.records import Partition

_log = logging.getLogger("holdfast.rocketmq")

#: Seconds between attempts to join again. Each is one call inside a poll: the store may be away, and handlers go on.
_JOIN_AGAIN_S = 1.0


class Change(NamedTuple):
    """A change of the assignment. `lost`: the membership is lost, and other members may have the queues already."""

    gone: Sequence[Partition] = ()
    came: Sequence[Partition] = ()
    lost: bool = False


class _Apart:
    """A strategy that assigns retry topics apart from other queues (see above), and leaves none of them out: messages
    that were sent back must be delivered again, also if the strategy leaves queues without an owner."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self.leaves_out = leaves_out(strategy)

    def __call__(
        self, members: Sequence[GroupMember], queues: Sequence[Partition], previous: Mapping[Partition, str]
    ) -> Mapping[Partition, str]:
        retries = [queue for queue in queues if queue.topic.startswith(RETRY)]
        others = [queue for queue in queues if not queue.topic.startswith(RETRY)]
        owners = {**self._strategy(members, others, previous), **self._strategy(members, retries, previous)}
        left = [queue for queue in retries if queue not in owners]
        return {**owners, **sticky(members, left, previous)} if left else owners


class Seat:
    """This process' membership. One thread, but for `offer` and `lost`."""

    def __init__(self, coordinator: Coordinator, settings: PullSettings, client: RemotingClient, inbox: Inbox) -> None:
        self._coordinator, self._settings, self._client, self._inbox = coordinator, settings, client, inbox
        self._strategy = _Apart(settings.strategy)
        self._membership: Membership | None = None
        self._plan = Plan()
        self._join_at = 0.0

    def join(self, subscription: str, queues: Sequence[Partition], deadline: Deadline) -> None:
        """Join the group. Raises StoreError, SubscriptionDiffers, ClusterDiffers."""
        member = Member(
            client_id=self._client.client_id,
            subscription=subscription,
            weight=self._settings.weight,
            description=f"{socket.gethostname()}, process {os.getpid()}",
            servers=self._client.servers(),
        )
        self._membership = self._coordinator.join(
            self._settings.group,
            member,
            deadline,
            strategy=self._strategy,
            wake=self._inbox.wake,
            queues=queues,
            lease_s=self._settings.lease_s,
        )
        self._plan = Plan()

    @property
    def lost(self) -> bool:
        """Whether other members may have this member's queues. Any thread."""
        return self._membership is None or self._membership.lost

    @property
    def in_group(self) -> bool:
        """Whether this process is a member and has seen a plan."""
        return not self.lost and bool(self._plan.stamp)

    @property
    def has_news(self) -> bool:
        """Whether `step` would do something now. Does not wait."""
        membership = self._membership
        return membership is not None and (membership.lost or membership.plan() is not self._plan)

    def offer(self, queues: Sequence[Partition]) -> None:
        """Report the queues that this process sees, for the plan. Any thread."""
        membership = self._membership
        if membership is not None:
            membership.offer(queues, self._client.servers())

    def step(self, assigned: Collection[Partition], topics: Topics) -> Change | None:
        """The change since the last step. Raises SubscriptionDiffers, ClusterDiffers, StoreRefused."""
        membership = self._membership
        if membership is None:
            self._join_anew(topics)
            return None
        membership.vouch(self._settings.max_poll_interval_s)
        if membership.lost:
            self._membership = None
            _log.warning("the membership %s of %s is lost: joining anew", membership.id, self._settings.group)
            return Change(gone=sorted(assigned), lost=True)
        plan = membership.plan()
        if plan is self._plan:
            return None
        self._plan = plan
        mine = plan.of(membership.id)
        return Change(gone=sorted(set(assigned) - mine), came=sorted(mine - set(assigned)))

    def leave(self, deadline: Deadline) -> None:
        """Leave: other members get this member's queues at once. Idempotent."""
        membership, self._membership = self._membership, None
        if membership is not None:
            membership.leave(deadline)

    def _join_anew(self, topics: Topics) -> None:
        now = SYSTEM_CLOCK.now()
        if now < self._join_at:
            return
        self._join_at = now + _JOIN_AGAIN_S
        try:
            self.join(topics.text, topics.queues, Deadline(0.0))
        except StoreUnavailable as error:
            _log.info("not a member of %s yet: %s", self._settings.group, error)
