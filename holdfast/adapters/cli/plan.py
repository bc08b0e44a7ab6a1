"""`holdfast plan`: what would happen if members joined or left a group, a topic grew, or it took another assignor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.cli import options as shared
from holdfast.adapters.cli.arguments import assignor_list, members, topic_counts
from holdfast.adapters.cli.described import from_file, from_options
from holdfast.adapters.cli.lag import heading
from holdfast.adapters.cli.output import count, shown
from holdfast.adapters.cli.plan_output import Heading, tell
from holdfast.adapters.cli.plan_request import Planned, change, live
from holdfast.errors import SettingError
from holdfast.plugin.assign.java import offsets_partition
from holdfast.timing import Deadline
from holdfast.tools.advice.forecast import assigned, forecast
from holdfast.tools.advice.vote import vote
from holdfast.tools.picture import before_and_after

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from holdfast.adapters.cli.options import Commands
    from holdfast.adapters.cli.output import Output
    from holdfast.tools.advice.forecast import Change
    from holdfast.tools.advice.group_view import GroupView

_EXAMPLE = """\
  holdfast plan --group billing --bootstrap localhost:9092 --join 2 --leave till-3 --picture billing.svg
  holdfast plan --group billing --namesrv localhost:9876 --join 1 --assignor AVG_BY_CIRCLE
  holdfast plan --topics orders=12,payments=4 --members 3 --assignor range --join 1
  holdfast plan --described billing.json --leave 1

a described group:
  {"topics": {"orders": 12, "payments": 4}, "members": [
    {"id": "till-1", "topics": ["orders"], "assignors": ["range", "sticky"], "partitions": {"orders": [0, 1]}},
    {"id": "till-2", "weight": 2, "rack": "a", "instance_id": "two"}]}
of RocketMQ: {"kind": "rocketmq", "topics": {"orders": {"broker-a": 4, "broker-b": 4}}, "members": 3}
"""


class _Subject(NamedTuple):
    """The group that a plan is for."""

    planned: Planned
    name: str
    #: Lines about it: who it is, who coordinates it, how its assignor came about.
    about: list[str]
    #: The same for programs.
    facts: dict[str, object]
    #: Assignors by member, where they are known.
    lists: Mapping[str, tuple[str, ...]]


def add(commands: Commands) -> None:
    """The command and its options."""
    made = shared.command(commands, "plan", "what would happen if members joined or left a group", _EXAMPLE)
    group = made.add_argument_group("the group: a live one, or a described one")
    group.add_argument("--group", metavar="NAME", help="a live consumer group")
    group.add_argument("--described", metavar="FILE", help="a group in JSON (below)")
    group.add_argument(
        "--topics", type=topic_counts, metavar="T=N,...", help="topics and their partitions, and --members"
    )
    group.add_argument("--members", type=members, metavar="N", help="number of members; each reads all of --topics")
    what = made.add_argument_group("the change (default: a rebalance without a change)")
    what.add_argument(
        "--join", default="", metavar="N|NAME,...", help="the number of members that join, or their client ids"
    )
    what.add_argument(
        "--join-topics",
        default="",
        metavar="T,...",
        help="the topics that they read (default: those that most members read)",
    )
    what.add_argument(
        "--join-assignors",
        type=assignor_list,
        metavar="A,...",
        help="the assignors that they list (partition.assignment.strategy)",
    )
    what.add_argument(
        "--leave",
        action="append",
        default=[],
        metavar="N|NAME",
        help="the number of members that leave, or one member; may be repeated",
    )
    what.add_argument(
        "--grow", type=topic_counts, default={}, metavar="T=N,...", help="a topic grows to this number of partitions"
    )
    what.add_argument(
        "--assignor",
        metavar="NAME",
        help="instead of the group's: range, roundrobin, sticky, cooperative-sticky, uniform; RocketMQ (default: AVG, "
        "and of holdfast's groups sticky): AVG, AVG_BY_CIRCLE, CONSISTENT_HASH, sticky",
    )
    made.add_argument("--picture", metavar="FILE.svg", help="before and after, drawn")
    shared.add_brokers(made)
    shared.add_redis(made, "RocketMQ: it has the plan of a group of holdfast's", required=False)
    shared.add_app(made)
    made.set_defaults(run=run, changes=True)


def run(options: argparse.Namespace, output: Output) -> int:
    """Plan, and tell. Raises HoldfastError."""
    if options.picture and not options.picture.endswith(".svg"):
        raise SettingError("--picture", options.picture, "it is drawn as SVG: let the name end with .svg")
    subject = _live(options, output) if options.group and not _is_described(options) else _described(options)
    wanted, called = change(
        subject.planned,
        join=options.join,
        leave=options.leave,
        grow=options.grow,
        topics=[topic for topic in options.join_topics.split(",") if topic],
        assignor=options.assignor,
    )
    wanted, about = _voted(subject, wanted, called, options)
    made = forecast(subject.planned.group, wanted)
    tell(Heading(subject.name, subject.about, subject.facts, subject.planned.notes), made, called, about, output)
    if options.picture:
        drawn = before_and_after(made.before, made.after, had=made.had, has=made.has, names=called, title=subject.name)
        _write(options.picture, drawn)
        output.note(f"drawn: {options.picture}")
    return 0


# ---- the group
def _is_described(options: argparse.Namespace) -> bool:
    return bool(options.described or options.topics or options.members is not None)


def _live(options: argparse.Namespace, output: Output) -> _Subject:
    with shared.group_views_of(options) as group, output.progress(f"asking about {shown(options.group)}"):
        view = group.view(Deadline(options.timeout))
    planned = live(view, None if view.assignor or view.kind == "rocketmq" else options.assignor)
    facts: dict[str, object] = {
        "kind": view.kind,
        "state": view.state,
        "protocol": view.protocol,
        "coordinator": view.coordinator.address if view.coordinator else None,
        "offsets_partition": view.offsets_partition,
        "offsets_leader": view.offsets_leader.address if view.offsets_leader else None,
    }
    return _Subject(planned, view.group, [heading(view), *_coordination(view), *_chosen(view)], facts, {})


def _coordination(view: GroupView) -> list[str]:
    if view.offsets_partition is None:
        return []
    where = f"__consumer_offsets-{view.offsets_partition}, chosen by the hash of the group's name"
    if view.offsets_leader is None:
        return [f"offsets are in {where}: that partition has no leader now, so no broker coordinates the group"]
    leader = f"broker {view.offsets_leader.name} ({view.offsets_leader.address})"
    if view.offsets_leader == view.coordinator:
        return [f"offsets are in {where}; {leader} leads it and is the group's coordinator"]
    return [f"offsets are in {where}; {leader} leads it, but another broker is still the coordinator"]


def _chosen(view: GroupView) -> list[str]:
    if view.kind == "rocketmq":
        if view.protocol == "holdfast":
            return ["assignor: holdfast's own plan, sticky unless the members set another one (--assignor)"]
        return [
            "assignor: each client computes the assignment and does not tell how: AVG unless --assignor sets another"
        ]
    if view.protocol == "consumer":
        return [f"assignor: {view.assignor}, the broker's own"]
    if view.assignor:
        return [f"assignor: {view.assignor}, chosen from the members' lists; a broker does not show the lists"]
    return []


def _described(options: argparse.Namespace) -> _Subject:
    if options.described:
        if options.topics or options.members is not None:
            raise SettingError("--described", options.described, "leave out --topics and --members: the file says both")
        found = from_file(options.described, None)
    elif not options.topics or options.members is None:
        raise SettingError(
            "--group", None, "name a live group, or describe one: --described, or --topics and --members"
        )
    else:
        found = from_options(options.topics, options.members, options.assignor, name=options.group or "")
    notes = []
    if not found.group.owners and found.group.members:
        found = found._replace(group=found.group.with_owners(assigned(found.group)))
        notes.append(
            f"the description does not say what members have: the plan takes what {found.group.assignor} would assign"
        )
    sizes = f"{count(len(found.group.members), 'member')}, {count(len(found.group.partitions), 'partition')}"
    about = [f"{found.name or 'the group'} as described: {sizes}"]
    facts: dict[str, object] = {"kind": found.group.kind, "protocol": found.group.protocol}
    if found.group.kind == "kafka" and found.name:
        number = offsets_partition(found.name, found.offsets_partitions)
        about.append(
            f"offsets are in __consumer_offsets-{number} of {found.offsets_partitions}, chosen by the hash of the "
            "group's name; the leader of that partition is the coordinator"
        )
        facts["offsets_partition"] = number
    if found.vote:
        about.append(f"assignor: {found.vote.describe()}")
    planned = Planned(found.group, {each.id: each.id for each in found.group.members}, notes)
    return _Subject(planned, found.name, about, facts, found.lists)


def _voted(
    subject: _Subject, wanted: Change, called: Mapping[str, str], options: argparse.Namespace
) -> tuple[Change, list[str]]:
    """Apply what the lists of members that join, or leave, change about the assignor. Raises SettingError."""
    group, listed = subject.planned.group, options.join_assignors
    if group.kind != "kafka" or group.protocol != "classic" or options.assignor:
        return wanted, []
    if subject.lists:
        stay = {each.id: subject.lists[each.id] for each in group.members if each.id in subject.lists}
        stay = {member: each for member, each in stay.items() if member not in wanted.leave}
        if wanted.join and not listed:
            listed = next(iter(stay.values()), (group.assignor,))
        found = vote({**stay, **{each.id: listed for each in wanted.join}})
        if found.winner is None:
            raise SettingError("--join-assignors", ",".join(listed or ()), found.describe(called))
        if found.winner != group.assignor:
            return wanted.with_assignor(found.winner), [f"the vote then: {found.describe(called)}"]
        return wanted, []
    if listed and group.assignor not in listed:
        raise SettingError(
            "--join-assignors",
            ",".join(listed),
            f"the group works by {group.assignor}, which they do not list: the broker refuses them, unless all members "
            "know another one of these too, which a broker does not tell (--assignor says what would be)",
        )
    return wanted, []


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingError("--picture", path, f"the file cannot be written ({error.strerror})") from None
