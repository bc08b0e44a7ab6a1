"""`holdfast migrate`: how a live Kafka group gets from an eager strategy to a better one, and what that moves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from holdfast.adapters.cli import options as shared
from holdfast.adapters.cli.arguments import processes, topic_counts
from holdfast.adapters.cli.described import from_options
from holdfast.adapters.cli.emit import kafka_brokers
from holdfast.adapters.cli.lag_rates import names
from holdfast.adapters.cli.output import shown
from holdfast.errors import SettingError, SourceUnavailable
from holdfast.plugin.assign.members import Subscriber
from holdfast.timing import Deadline
from holdfast.tools.advice.emit import Sheet, as_properties
from holdfast.tools.advice.emit.kafka import Client
from holdfast.tools.advice.emit.migration import Goal, migrate
from holdfast.tools.advice.emit.rehearsal import Living, mode_of
from holdfast.tools.advice.forecast import assigned

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from holdfast.adapters.cli.output import Output
    from holdfast.tools.advice.emit.migration import Migration, Step
    from holdfast.tools.advice.emit.rehearsal import Rebalance
    from holdfast.tools.advice.group_view import GroupView

_EXAMPLE = """\
  holdfast migrate --group billing --bootstrap localhost:9092
  holdfast migrate --group billing --bootstrap localhost:9092 --client java --to cooperative
  holdfast migrate --kafka 3.9 --client java --topics orders=12,payments=4 --members 3

The command changes nothing. It shows the steps, and what each restart would move. MOVES: partitions that change their
owner while a member is away and when it is back. HELD UP: partitions that stop although they keep their owner. "none":
a static member, whose restart causes no rebalance.
"""
_COLUMNS = ("MEMBER", "MOVES WHILE AWAY", "MOVES WHEN BACK", "HELD UP")


def add(commands: shared.Commands) -> None:
    """The command."""
    made = shared.command(commands, "migrate", "the steps from an eager strategy to a better one", _EXAMPLE)
    made.add_argument("--group", help="a live group; nothing is changed")
    described = made.add_argument_group("without a live group")
    described.add_argument("--kafka", metavar="VERSION", help="brokers of that version")
    described.add_argument("--assignor", default="range", help="the strategy now (default: %(default)s)")
    described.add_argument("--topics", type=topic_counts, metavar="T=N,...", help="topics and their partitions")
    described.add_argument("--members", type=processes, metavar="N", help="number of members; each reads all topics")
    described.add_argument("--static", action="store_true", help="the members are static (group.instance.id)")
    made.add_argument("--client", choices=get_args(Client), default="confluent-kafka", help="(default: %(default)s)")
    made.add_argument("--to", choices=get_args(Goal), help="(default: consumer where the brokers have it)")
    shared.add_brokers(made)
    made.set_defaults(run=run, redis=None)


def run(options: argparse.Namespace, output: Output) -> int:
    """Raises SettingError: there is no such way; SourceError: no answer."""
    if not options.kafka and shared.is_rocketmq(options):
        raise SettingError("--namesrv", options.namesrv, "RocketMQ's clients have no better strategy; "
            "examples/rocketmq_move shows how to move to holdfast")  # fmt: skip
    if bool(options.kafka) == bool(options.group):
        raise SettingError("--group", options.group, "name the group, or give the brokers' version with --kafka")
    if options.group and (options.topics or options.members or options.static):
        raise SettingError(
            "--group",
            options.group,
            "leave out --topics, --members and --static, or leave out --group: they describe another group",
        )
    brokers = kafka_brokers(options)
    goal: Goal = options.to or ("consumer" if brokers.consumer_protocol else "cooperative")
    if goal == "consumer" and not brokers.consumer_protocol:
        raise SettingError("--to", goal, f"{brokers.why}: use cooperative, or bring the brokers to 4.0")
    living, called = _described(options), {}
    if options.group:
        with shared.group_views_of(options) as group, output.progress(f"asking about {shown(options.group)}"):
            view = group.view(Deadline(options.timeout))
        living, called = living_of(view), dict(names(view))
        _about(view, living, goal, output)
    _tell(migrate(goal, options.client, living, assignor=options.assignor), called, output)
    return 0


def living_of(view: GroupView) -> Living:
    """The group that was seen, to rehearse with.

    Raises:
        SourceUnavailable: the group rebalances now.
        SettingError: it has no members, or an assignor that is not Kafka's.
    """
    if not view.members:
        raise SettingError("--group", view.group, "it has no members: start them with the new settings")
    if view.rebalancing or any(each.partitions is None for each in view.members):
        raise SourceUnavailable(f"{view.group} rebalances now ({view.state}): try again when it is stable")
    members = tuple(
        Subscriber(
            id=each.id,
            topics=each.topics if each.topics is not None else frozenset(p.topic for p in each.partitions or ()),
            rack=each.rack,
            instance_id=each.instance_id,
        )
        for each in view.members
    )
    wanted = frozenset().union(*(each.topics for each in members))
    assignor = view.assignor or ("uniform" if view.protocol == "consumer" else "range")
    mode_of(assignor)
    return Living(
        members=members,
        partitions=frozenset(each for each, one in view.partitions.items() if one.exists and each.topic in wanted),
        plan={partition: member.id for partition, member in view.owners.items()},
        assignor=assignor,
        racks={each: one.racks for each, one in view.partitions.items() if one.racks},
    )


def _described(options: argparse.Namespace) -> Living | None:
    """A group of so many members, if one is described. Raises SettingError."""
    if options.topics is None and options.members is None:
        return None
    if not options.topics or not options.members:
        raise SettingError("--topics", options.topics, "give --topics and --members, or neither")
    group = from_options(options.topics, options.members, options.assignor).group
    members = tuple(replace(each, instance_id=each.id if options.static else None) for each in group.members)
    plan = assigned(group)
    return Living(members=members, partitions=frozenset(group.partitions), plan=plan, assignor=options.assignor)


def _about(view: GroupView, living: Living, goal: Goal, output: Output) -> None:
    static = sum(each.instance_id is not None for each in living.members)
    facts = {"members": len(living.members), "static": static, "partitions": len(living.partitions)}
    output.json(
        {
            "type": "group",
            "group": view.group,
            "assignor": living.assignor,
            "goal": goal,
            **facts,
            "not_known": view.not_known,
        }
    )
    output.say(
        f"{view.group}: {len(living.members)} members, {static} of them static, {len(living.partitions)} partitions, "
        f"{living.assignor}"
    )
    for note in view.not_known:
        output.note(f"not known: {shown(note, 300)}")


def _tell(migration: Migration, called: Mapping[str, str], output: Output) -> None:
    for number, step in enumerate(migration.steps, 1):
        output.json(_as_json(step, number, called))
        output.say()
        output.say(f"step {number} of {len(migration.steps)}: {step.what}")
        output.say(f"({step.why})")
        output.say()
        sheet = Sheet(name="settings", where="of each member", form="properties", choices=step.settings)
        output.say_all(as_properties(sheet).rstrip("\n").split("\n"))
        if step.without:
            output.say(f"and without {', '.join(step.without)}")
        if step.restarts:
            output.say()
            output.table(
                _COLUMNS,
                [
                    (called.get(each.member, each.member), _moves(each.away), _moves(each.back), each.held_up)
                    for each in step.restarts
                ],
            )
    if migration.notes:
        output.json({"type": "notes", "notes": list(migration.notes)})
        output.say()
    for note in migration.notes:
        output.say(note)


def _moves(rebalance: Rebalance | None) -> object:
    return "none" if rebalance is None else len(rebalance.movement.moves)


def _as_json(step: Step, number: int, called: Mapping[str, str]) -> dict[str, object]:
    return {
        "type": "step",
        "number": number,
        "what": step.what,
        "why": step.why,
        "settings": {each.key: each.value for each in step.settings},
        "reasons": {each.key: each.why for each in step.settings},
        "without": list(step.without),
        "restarts": [
            {
                "member": called.get(each.member, each.member),
                "away": None if each.away is None else len(each.away.movement.moves),
                "back": None if each.back is None else len(each.back.movement.moves),
                "held_up": each.held_up,
            }
            for each in step.restarts
        ],
    }
