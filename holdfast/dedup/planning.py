"""Makes a group's next plan from a look at the group. Pure but for the stamp."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from holdfast.dedup.groups import Plan, leaves_out
from holdfast.errors import StateError

if TYPE_CHECKING:
    from holdfast.dedup.groups import Strategy, View


def next_plan(view: View, strategy: Strategy, *, without: str = "") -> Plan:
    """Return the plan for a view: the current plan, if it still fits.

    Args:
        view: the look.
        strategy: gives queues to members.
        without: a member that leaves; its offer does not count any more, and the plan is a new one in any case.

    Raises:
        StateError: the strategy has left a queue out though it may not (`leaves_out`), has given a queue to an unknown
            member, or has given away a queue that no member offers. Errors of the strategy itself pass through.
    """
    members = [view.members[member_id] for member_id in sorted(view.members) if member_id != without]
    queues = sorted(view.queues(without=without), key=lambda queue: (queue.topic, queue.broker, queue.number))
    owners = dict(strategy(members, queues, view.plan.owners)) if members and queues else {}
    missing, strange = set(queues) - owners.keys(), owners.keys() - set(queues)
    known = {*owners.values()} <= {member.id for member in members}
    if strange or not known or (missing and not leaves_out(strategy)):
        raise StateError(f"{strategy!r} has not given each queue to one member: a plan like that is not published")
    if owners == view.plan.owners and not without:
        return view.plan
    return Plan(_new_stamp(view.plan), owners)


def _new_stamp(before: Plan) -> str:
    """A stamp that no other plan has, even if a store that lost data counts generations anew."""
    return f"{before.generation + 1}:{secrets.token_hex(6)}"
