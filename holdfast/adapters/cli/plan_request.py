"""Makes what `holdfast plan` asks for: the group, of a live look, and the change, of what the user says. Pure.

`tools/advice/forecast.py` computes the plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.cli.lag_rates import names
from holdfast.errors import SettingError, SourceUnavailable
from holdfast.plugin.assign.members import Subscriber
from holdfast.tools.advice.forecast import Change, Group, assigned, next_names, usual_topics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.records import Partition
    from holdfast.tools.advice.group_view import GroupView, MemberView

_RETRY = "%RETRY%"


class Planned(NamedTuple):
    """A live group, ready to be planned for."""

    group: Group
    names: Mapping[str, str]  #: member id -> what to call it
    notes: Sequence[str]


def live(view: GroupView, assignor: str | None) -> Planned:
    """The group as it is looked at.

    Raises:
        SourceUnavailable: it rebalances, and nobody can say who has what.
        SettingError: the assignor is not known.
    """
    notes = view.not_known
    if view.protocol == "classic" and view.rebalancing:
        raise SourceUnavailable(
            f"{view.group} rebalances now ({view.state}), and its coordinator does not tell who has what: try again "
            "when it is stable"
        )
    if view.rebalancing:
        notes.append(
            f"the group is {view.state}: the plan takes the assignment that this rebalance leads to as the state before"
        )
    chosen = assignor or view.assignor or _usual(view)
    partitions = {each for each, one in view.partitions.items() if one.exists and not each.topic.startswith(_RETRY)}
    subscribed = {topic for each in view.members for topic in each.topics or ()}
    had = {partition for each in view.members for partition in _has(each) if partition in partitions}
    if all(each.topics is not None for each in view.members) and view.members:
        partitions = {each for each in partitions if each.topic in subscribed}
    guess = frozenset(each.topic for each in had) or frozenset(each.topic for each in partitions)
    group = Group(
        kind=view.kind,
        protocol=view.protocol or ("classic" if view.kind == "kafka" else "remoting"),
        assignor=chosen,
        members=tuple(_subscriber(each, guess) for each in view.members),
        partitions=tuple(sorted(partitions)),
        owners={each: member.id for member in view.members for each in _has(member) if each in partitions},
        clients={each.id: each.client_id for each in view.members},
        racks={each: one.racks for each, one in view.partitions.items() if one.racks},
    )
    silent = [each for each in view.members if each.partitions is None]
    if silent:
        notes.append(
            f"{len(silent)} of {len(view.members)} members do not tell what they have: the plan takes what {chosen} "
            "would assign"
        )
        group = group.with_owners(assigned(group))
    return Planned(group, names(view), notes)


def change(
    planned: Planned,
    *,
    join: str,
    leave: Sequence[str],
    grow: Mapping[str, int],
    topics: Sequence[str],
    assignor: str | None,
) -> tuple[Change, Mapping[str, str]]:
    """The change that the user asks for, and short names for everybody.

    Args:
        planned: the group.
        join: a number of members, or their names with commas between.
        leave: members by any of their names; a number = so many, the last ones in order.
        grow: topic -> partitions.
        topics: of those that join; none = what most members read.
        assignor: another one.

    Raises:
        SettingError: a name that is nobody's, or more than one member's.
    """
    called = planned.names
    order = sorted(planned.group.members, key=lambda each: called.get(each.id, each.id))
    if join.isdecimal():
        fresh = next_names([called.get(each.id, each.id) for each in order], int(join))
    else:
        fresh = [name.strip() for name in join.split(",") if name.strip()]
    if len(set(fresh)) < len(fresh) or set(fresh) & set(called.values()):
        raise SettingError("--join", join, "each member has a name of its own, and one of these is taken")
    known = frozenset(each.topic for each in planned.group.partitions)
    if unknown := set(topics) - known:
        raise SettingError("--join-topics", min(unknown), f"the group reads {', '.join(sorted(known)) or 'no topic'}")
    wanted = frozenset(topics) or usual_topics(planned.group.members) & known or known
    static = bool(order) and all(each.instance_id for each in order)
    joining = [
        Subscriber(id=_id(planned.group, name), topics=wanted, instance_id=name if static else None) for name in fresh
    ]
    leaving: set[str] = set()
    for said in leave:
        leaving |= _leaving(said, order, planned)
    made = Change(join=tuple(joining), leave=frozenset(leaving), grow=grow, assignor=assignor)
    return made, {**called, **{each.id: name for each, name in zip(joining, fresh, strict=True)}}


def _leaving(said: str, order: Sequence[Subscriber], planned: Planned) -> set[str]:
    clients = planned.group.clients
    found = {
        each.id
        for each in order
        if said in (each.id, planned.names.get(each.id), clients.get(each.id), each.instance_id)
    }
    if len(found) == 1:
        return found
    if found:
        raise SettingError("--leave", said, f"{len(found)} members are called that: give a member id")
    if said.isdecimal():
        if int(said) > len(order):
            raise SettingError("--leave", said, f"the group has {len(order)} members")
        return {each.id for each in order[len(order) - int(said) :]}
    listed = ", ".join(planned.names.get(each.id, each.id) for each in order[:8])
    raise SettingError("--leave", said, f"no member is called that; there are {listed or 'none'}")


def _id(group: Group, name: str) -> str:
    """Make a member id of a name as clients do, so that it sorts where theirs will."""
    return f"{name}-" if group.kind == "kafka" and group.protocol == "classic" and group.clients else name


def _usual(view: GroupView) -> str:
    if view.kind == "rocketmq":
        return "sticky" if view.protocol == "holdfast" else "AVG"
    raise SettingError(
        "--assignor", None, f"{view.group} has no members that have chosen one: name what they will list, such as range"
    )


def _has(member: MemberView) -> frozenset[Partition]:
    """The partitions that the member is to have, where a move is on its way."""
    return (member.target if member.target is not None else member.partitions) or frozenset()


def _subscriber(member: MemberView, guess: frozenset[str]) -> Subscriber:
    return Subscriber(
        id=member.id,
        topics=guess if member.topics is None else frozenset(t for t in member.topics if not t.startswith(_RETRY)),
        weight=member.weight,
        rack=member.rack,
        instance_id=member.instance_id,
    )
