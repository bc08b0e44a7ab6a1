"""Joining a group: the call is repeated until it is answered; then a thread keeps the membership."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.dedup.groups import Differs, Elsewhere, Refusal
from holdfast.dedup.lease import Lease
from holdfast.dedup.membership import Membership
from holdfast.errors import ClusterDiffers, StoreUnavailable, SubscriptionDiffers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.dedup.groups import GroupSession, Member, Standing, Strategy
    from holdfast.records import Partition
    from holdfast.runtime import Runtime
    from holdfast.timing import Clock, Deadline

_AGAIN_S = 0.1
#: Addresses that an error names at most.
_TOLD = 4


def join_group(
    make: Callable[[str, float], GroupSession],
    group: str,
    member: Member,
    deadline: Deadline,
    *,
    strategy: Strategy,
    wake: Callable[[], None],
    queues: frozenset[Partition],
    lease_s: float,
    watch_s: float,
    runtime: Runtime,
) -> Membership:
    """Join, asking until it is answered or the deadline has passed, and begin to keep the membership.

    Args:
        make: makes the session for a member id and a lease. May raise StoreError.
        group: this and all others as in `Coordinator.join` and `Membership`.
        member: as there.
        deadline: as there.
        strategy: as there.
        wake: as there.
        queues: as there.
        lease_s: as there.
        watch_s: as there.
        runtime: as there.

    Raises:
        SubscriptionDiffers, ClusterDiffers, StoreUnavailable, StoreRefused: as `Coordinator.join`.
    """
    member_id = f"{member.client_id}#{runtime.token(6)}"
    session, reply, sent_at = _ask(lambda: make(member_id, lease_s), member, queues, deadline, runtime)
    if isinstance(reply, Differs):
        raise SubscriptionDiffers(
            f"members of group {group!r} ({', '.join(sorted(reply.clients))}) subscribe to {reply.subscription!r}, "
            f"and this one to {member.subscription!r}: make them alike, or stop the others first (one that was "
            "killed counts until its lease is over)"
        )
    if isinstance(reply, Elsewhere):
        raise _elsewhere(group, member, reply)
    if isinstance(reply, Refusal):
        raise StoreUnavailable(f"joining group {group!r} took longer than the lease of {lease_s} s: ask again")
    lease = Lease(member_id, lease_s, runtime, sent_at)
    membership = Membership(
        session, lease, runtime, strategy=strategy, wake=wake, queues=queues, servers=member.servers, watch_s=watch_s
    )
    membership.start()
    return membership


def _ask(
    make: Callable[[], GroupSession], member: Member, queues: frozenset[Partition], deadline: Deadline, clock: Clock
) -> tuple[GroupSession, Standing | Differs | Elsewhere | Refusal, float]:
    """Join until there is an answer. Returns: the session, the reply, and when the call was sent."""
    session: GroupSession | None = None
    while True:
        try:
            session = session or make()
            sent_at = clock.now()
            return session, session.join(member, queues), sent_at
        except StoreUnavailable:
            if deadline.passed:
                raise
            clock.sleep(deadline.left_s(at_most=_AGAIN_S))


def _elsewhere(group: str, member: Member, reply: Elsewhere) -> ClusterDiffers:
    """The error that names members whose servers are none of ours."""
    return ClusterDiffers(
        f"members of group {group!r} ({', '.join(sorted(reply.clients))}) are at another cluster: its servers are "
        f"{_some(sorted(reply.servers))}, and those of this one {_some(sorted(member.servers))}. What is known of the "
        f"one would count for the other, so that queues stay unread and records are skipped: give each cluster a "
        f"namespace of its own (RedisClaims.from_url(url, namespace='...')). If it is one cluster, and all of its "
        f"servers have moved, stop those members first"
    )


def _some(servers: Sequence[str]) -> str:
    more = f" and {len(servers) - _TOLD} more" if len(servers) > _TOLD else ""
    return ", ".join(servers[:_TOLD]) + more
