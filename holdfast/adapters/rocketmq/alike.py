"""Alike: checks that all members of a group have the same subscription and cluster. For PushSource and LeasedSource.

RocketMQ keeps one subscription for a group, and applies the newest to all members. While members subscribe to different
tags of a topic (for example during a rolling deploy that adds one), the member that gets a message decides: one with
the old tags skips messages of the new tag, for the whole group and for good, and no broker reports it. Therefore each
member is listed in a record of the group in the store of claims, like the members of a RocketMQSource; those have a
record of their own, since they have a plan too.
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

    from holdfast.dedup.coordinator import Coordinator
    from holdfast.dedup.groups import GroupMember
    from holdfast.dedup.membership import Membership
    from holdfast.errors import SourceError
    from holdfast.records import Partition
    from holdfast.timing import Deadline

_log = logging.getLogger("holdfast.rocketmq")

#: How often the membership is checked, and the servers' addresses are reported.
_LOOK_S = 10.0
#: How long a killed process stays listed.
_LEASE_S = 10.0
_STOP_S = 1.0


class Alike:
    """This process among the members that must have the same subscription. `join` and `leave` may wait.

    Args:
        coordinator: of the store of claims; None: nothing is compared.
        group: the consumer group.
        client_id: this process' name in errors of other members.
        records: name of a record -> the subscription that all its members must have.
        servers: returns the addresses of the cluster, as far as known. Called on a thread of its own.
        open_store: `store_down="open"`: the app starts without the comparison while the store is away.
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
        #: Why this process must stop: found when it joined again.
        self.refused: SourceError | None = None

    def join(self, deadline: Deadline) -> None:
        """Join, before anything is consumed.

        Raises:
            SubscriptionDiffers, ClusterDiffers: living members have another subscription or cluster.
            StoreError: no answer until the deadline.
        """
        if not self._records:
            return
        try:
            self._join_missing(deadline)
        except StoreUnavailable as error:
            if not self._open_store:
                raise
            _log.warning("whether all members of %s subscribe alike is not known yet: %s", self._group, error)
            self._upkeep.soon()
        self._upkeep.start()

    def leave(self, deadline: Deadline) -> None:
        """Leave, once nothing more is consumed. Idempotent."""
        self._upkeep.stop(_STOP_S)
        while self._members:
            _, membership = self._members.popitem()
            membership.leave(deadline)

    def _keep(self, deadline: Deadline) -> None:
        """Report the servers, and join again where the membership is lost. Raises StoreError, to be repeated."""
        if self.refused is not None:
            return
        servers = self._servers()
        for membership in self._members.values():
            membership.offer((), servers)
        try:
            self._join_missing(deadline)
        except (SubscriptionDiffers, ClusterDiffers) as error:
            self.refused = error

    def _join_missing(self, deadline: Deadline) -> None:
        """Join all records in which this process is not listed, or not any more."""
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
    """A strategy that assigns nothing: the brokers distribute the messages."""

    def __call__(
        self,
        members: Sequence[GroupMember],  # noqa: ARG002 - the protocol's signature
        queues: Sequence[Partition],  # noqa: ARG002
        previous: Mapping[Partition, str],  # noqa: ARG002
    ) -> Mapping[Partition, str]:
        return {}


def _unheard() -> None:
    """Ignore a new plan: it is empty."""
