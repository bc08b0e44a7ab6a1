"""Whether all members of a group subscribe alike, at one cluster: for sources to which brokers hand messages out.

RocketMQ keeps one subscription a group, and takes the newest for all. While members subscribe to other tags of a topic
(a rolling deploy that adds one, say), whoever gets a message decides: one with old tags passes over messages of the new
tag, for the group and for good, and no broker says so. So each member is in a record of the group in the store of
claims, as the members of a RocketMQSource are in theirs; that one has a plan besides, and so a record of its own.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.upkeep import Upkeep
from holdfast.dedup.groups import Member
from holdfast.errors import ClusterDiffers, StoreUnavailable, SubscriptionDiffers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.dedup.coordinator import Coordinator, Membership
    from holdfast.dedup.groups import GroupMember
    from holdfast.errors import SourceError
    from holdfast.records import Partition
    from holdfast.timing import Deadline

_log = logging.getLogger("holdfast.rocketmq")

#: How often it is seen whether the membership lives, and where the servers are.
_LOOK_S = 10.0
#: Who was killed counts for so long.
_LEASE_S = 10.0
_STOP_S = 1.0


class Alike:
    """One process among those that have to subscribe alike. `join` and `leave` may wait.

    Args:
        coordinator: of the store of claims; None: nothing is compared.
        group: the consumer group.
        client_id: the name by which others are told of this process.
        records: what is compared with whom: the name of a record to what all its members have to have.
        servers: the addresses of the cluster, as far as known. On a thread of its own.
        open_store: the app goes on while the store is away, so that nothing is compared meanwhile.
    """

    def __init__(
        self,
        coordinator: Coordinator | None,
        group: str,
        *,
        client_id: str,
        records: Mapping[str, str],
        servers: Callable[[], frozenset[str]],
        open_store: bool,
    ) -> None:
        self._coordinator, self._group, self._client_id = coordinator, group, client_id
        self._records, self._servers, self._open_store = records if coordinator else {}, servers, open_store
        self._members: dict[str, Membership] = {}
        self._upkeep = Upkeep(f"{group}-alike")
        self._upkeep.add("members that subscribe alike", self._keep, _LOOK_S)
        #: Why this process may not go on: found when it came back into the group.
        self.refused: SourceError | None = None

    def join(self, deadline: Deadline) -> None:
        """Come in, before anything is consumed.

        Raises:
            SubscriptionDiffers, ClusterDiffers: living members have something else.
            StoreError: no answer until the deadline.
        """
        if not self._records:
            return
        try:
            self._come_in(deadline)
        except StoreUnavailable as error:
            if not self._open_store:
                raise
            _log.warning("whether all members of %s subscribe alike is not known yet: %s", self._group, error)
            self._upkeep.soon()
        self._upkeep.start()

    def leave(self, deadline: Deadline) -> None:
        """Go, when nothing more is consumed. Idempotent."""
        self._upkeep.stop(_STOP_S)
        while self._members:
            _, membership = self._members.popitem()
            membership.leave(deadline)

    def _keep(self, deadline: Deadline) -> None:
        """Raises StoreError, to be tried again."""
        if self.refused is not None:
            return
        servers = self._servers()
        for membership in self._members.values():
            membership.offer((), servers)
        try:
            self._come_in(deadline)
        except (SubscriptionDiffers, ClusterDiffers) as error:
            self.refused = error

    def _come_in(self, deadline: Deadline) -> None:
        """Into all records that this process is not in, or not any more."""
        out = [name for name in self._records if name not in self._members or self._members[name].lost]
        servers = self._servers() if out else frozenset()
        for name in out:
            me = Member(
                client_id=self._client_id,
                subscription=self._records[name],
                description=f"{socket.gethostname()}, process {os.getpid()}",
                servers=servers,
            )
            if self._coordinator is not None:
                self._members[name] = self._coordinator.join(
                    name, me, deadline, strategy=_Nothing(), wake=_unheard, lease_s=_LEASE_S
                )


class _Nothing:
    """There is nothing to hand out."""

    def __call__(
        self,
        members: Sequence[GroupMember],  # noqa: ARG002 - the protocol's signature
        queues: Sequence[Partition],  # noqa: ARG002
        previous: Mapping[Partition, str],  # noqa: ARG002
    ) -> Mapping[Partition, str]:
        return {}


def _unheard() -> None:
    """Nobody waits for a plan."""
