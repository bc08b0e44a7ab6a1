"""Joining a group: asked until it is answered, then kept by a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.dedup.groups import Differs, Refusal
from holdfast.dedup.lease import Lease
from holdfast.dedup.membership import KeptMembership
from holdfast.errors import StoreUnavailable, SubscriptionDiffers

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.dedup.groups import GroupSession, Member, Standing, Strategy
    from holdfast.records import Partition
    from holdfast.runtime import Runtime
    from holdfast.timing import Clock, Deadline

_AGAIN_S = 0.1


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
) -> KeptMembership:
    """Join, asking until it is answered or the deadline has passed, and begin to keep the membership.

    Args:
        make: makes the session of a member id and a lease. May raise StoreError.
        group: as all others of `Coordinator.join` and `KeptMembership`.
        member: as there.
        deadline: as there.
        strategy: as there.
        wake: as there.
        queues: as there.
        lease_s: as there.
        watch_s: as there.
        runtime: as there.

    Raises:
        SubscriptionDiffers, StoreUnavailable, StoreRefused: as `Coordinator.join`.
    """
    member_id = f"{member.client_id}#{runtime.token(6)}"
    session, reply, sent_at = _ask(lambda: make(member_id, lease_s), member, queues, deadline, runtime)
    if isinstance(reply, Differs):
        raise SubscriptionDiffers(
            f"members of group {group!r} ({', '.join(sorted(reply.clients))}) subscribe to {reply.subscription!r}, "
            f"and this one to {member.subscription!r}: make them alike, or stop the others first (one that was "
            "killed counts until its lease is over)"
        )
    if isinstance(reply, Refusal):
        raise StoreUnavailable(f"joining group {group!r} took longer than the lease of {lease_s} s: ask again")
    lease = Lease(member_id, lease_s, runtime, sent_at)
    membership = KeptMembership(session, lease, runtime, strategy=strategy, wake=wake, queues=queues, watch_s=watch_s)
    membership.start()
    return membership


def _ask(
    make: Callable[[], GroupSession], member: Member, queues: frozenset[Partition], deadline: Deadline, clock: Clock
) -> tuple[GroupSession, Standing | Differs | Refusal, float]:
    """The session, what became of its join, and when that was sent."""
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
