"""From an eager group to one that moves little, while it lives: the steps, and what each restart moves. Pure.

Which steps there are depends on the client. Java's reads a list of strategies and is eager as long as one of them is:
with both in the list a group changes over member by member, in two rounds. librdkafka refuses such a list
(rd_kafka_assignor_rebalance_protocol_check), and a group refuses a member that has nothing in common with the others.
To the consumer protocol members change over one by one, whatever they were: the first one turns the group into one
whose broker assigns, and who has not changed yet is served by it in the classic protocol (KIP-848; the broker's
group.consumer.migration.policy).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from holdfast.errors import SettingError
from holdfast.plugin.choice import Choice
from holdfast.tools.advice.emit.kafka import COOPERATIVE
from holdfast.tools.advice.emit.rehearsal import Mode, Rehearsal, mode_of

if TYPE_CHECKING:
    from holdfast.tools.advice.emit.kafka import Client
    from holdfast.tools.advice.emit.rehearsal import Living, Restart
    from holdfast.tools.advice.emit.sheet import Value

Goal = Literal["cooperative", "consumer"]

_RANGE = {"confluent-kafka": "range", "java": "org.apache.kafka.clients.consumer.RangeAssignor"}
_JAVAS = {
    "range": _RANGE["java"],
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing to do to the whole group, and to see through before the next."""

    what: str
    why: str
    #: Settings that each member gets, beside those that it has.
    settings: tuple[Choice[Value], ...]
    #: Settings that it loses.
    without: tuple[str, ...] = ()
    #: Member by member, in this order. Of a group that is not known: empty.
    restarts: tuple[Restart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """The steps in their order; none: the group is there already."""

    steps: tuple[Step, ...]
    #: Conditions to check before, and signs to look for.
    notes: tuple[str, ...]


def migrate(goal: Goal, client: Client, living: Living | None = None, *, assignor: str = "range") -> Migration:
    """How to get there.

    Args:
        goal: "cooperative": for brokers without the consumer protocol.
        client: whose names the settings have; all members use it.
        living: the group, for what each restart would move.
        assignor: what the group has now, where `living` does not tell.

    Raises:
        SettingError: there is no way from here to there.
    """
    assignor = assignor if living is None else living.assignor
    mode = mode_of(assignor)
    if mode == "consumer":
        if goal == "cooperative":
            raise SettingError(
                "to", goal, "the group already uses the consumer protocol, which is better: nothing to do"
            )
        return Migration(steps=(), notes=("The group already uses the consumer protocol.",))
    if goal == "consumer":
        return _to_consumer(living)
    if client == "java":
        return _by_both(living, mode, assignor)
    return _by_stop(living, mode)


def _to_consumer(living: Living | None) -> Migration:
    step = Step(
        what="restart every member, one after the other, with the consumer protocol",
        why="after the first one the broker assigns the partitions; the other members continue as before until it is "
        "their turn",
        settings=(
            Choice("group.protocol", "consumer", "the broker assigns, and only the partitions that move stop"),
            Choice(
                "group.remote.assignor",
                "uniform",
                "begins with the current assignment, and moves as few partitions as it can",
            ),
        ),
        without=("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"),
        restarts=_rehearse(living, "consumer"),
    )
    notes = (
        "This needs brokers 4.0 or later with the default group.consumer.migration.policy (bidirectional).",
        "First set the group's consumer.session.timeout.ms if static members take longer than 45 s to restart.",
        "To go back, restart all members with the old settings: after the last one the group is classic again.",
    )
    return Migration(steps=(step,), notes=notes)


def _by_both(living: Living | None, mode: Mode, assignor: str) -> Migration:
    eager, key = _JAVAS.get(assignor, _RANGE["java"]), "partition.assignment.strategy"
    rehearsal = None if living is None else Rehearsal(living)
    steps = []
    if mode == "eager":
        steps.append(
            Step(
                what="restart every member, one after the other, with both strategies",
                why="the group can use a strategy only when all members list it; as long as one list has an eager "
                "strategy, all partitions stop at each rebalance",
                settings=(Choice(key, f"{COOPERATIVE['java']},{eager}", "the new strategy first, then the old one"),),
                restarts=_round(rehearsal, "both"),
            )
        )
    elif rehearsal is not None:
        rehearsal.all_are("both")  # no broker tells what else members have in their lists: the worst is assumed
    steps.append(
        Step(
            what="restart every member, one after the other, with the cooperative strategy alone",
            why="a member without an eager strategy in its list gives up only the partitions that move",
            settings=(Choice(key, COOPERATIVE["java"], "without an eager strategy"),),
            restarts=_round(rehearsal, "cooperative"),
        )
    )
    notes = ["Finish each step first: the group cannot use the new strategy while one member lists only the old one."]
    if mode == "eager":
        notes.append(
            "Java's default lists both, range first: a group with this default has already done the first step."
        )
    return Migration(steps=tuple(steps), notes=tuple(notes))


def _by_stop(living: Living | None, mode: Mode) -> Migration:
    if mode == "cooperative":
        return Migration(
            steps=(), notes=("The group is already cooperative: librdkafka allows no eager strategy in the same list.",)
        )
    restarts: tuple[Restart, ...] = ()
    if living is not None:
        restarts = (Rehearsal(living).all_anew("cooperative"),)
    step = Step(
        what="stop all members; when the group is empty, start all of them with the cooperative strategy",
        why="librdkafka refuses a list with both strategies, and the group refuses a member that shares no strategy "
        "with the others",
        settings=(
            Choice("partition.assignment.strategy", COOPERATIVE["confluent-kafka"], "without an eager strategy"),
        ),
        restarts=restarts,
    )
    still = "Processing stops until the members have started again. With brokers 4.0 or later the consumer "
    notes = (
        f"{still}protocol is better: members change one by one.",
        "Static members that stop do not leave: the group is empty when their sessions have ended.",
    )
    return Migration(steps=(step,), notes=notes)


def _rehearse(living: Living | None, mode: Mode) -> tuple[Restart, ...]:
    return _round(None if living is None else Rehearsal(living), mode)


def _round(rehearsal: Rehearsal | None, mode: Mode) -> tuple[Restart, ...]:
    return () if rehearsal is None else tuple(rehearsal.restart(member, mode) for member in rehearsal.order)
