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
from holdfast.plugin.advice.emit.kafka import COOPERATIVE
from holdfast.plugin.advice.emit.rehearsal import Mode, Rehearsal, mode_of
from holdfast.plugin.advice.emit.sheet import Choice

if TYPE_CHECKING:
    from holdfast.plugin.advice.emit.kafka import Client
    from holdfast.plugin.advice.emit.rehearsal import Living, Restart

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
    #: What each member has from then on, beside what it had.
    settings: tuple[Choice, ...]
    #: What it no longer has.
    without: tuple[str, ...] = ()
    #: Member by member, in this order. Of a group that is not known: empty.
    restarts: tuple[Restart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """The steps in their order; none: the group is there already."""

    steps: tuple[Step, ...]
    #: What has to be so before, and what to look for.
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
                "to", goal, "the group has the consumer protocol, which is the better one: nothing to do"
            )
        return Migration(steps=(), notes=("The group has the consumer protocol.",))
    if goal == "consumer":
        return _to_consumer(living)
    if client == "java":
        return _by_both(living, mode, assignor)
    return _by_stop(living, mode)


def _to_consumer(living: Living | None) -> Migration:
    step = Step(
        what="restart every member, one after the other, with the consumer protocol",
        why="the first one turns the group into one whose broker assigns; the others go on as they are until it is "
        "their turn",
        settings=(
            Choice("group.protocol", "consumer", "the broker assigns, and only what moves stops"),
            Choice("group.remote.assignor", "uniform", "begins with what members have, and moves as little as it can"),
        ),
        without=("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"),
        restarts=_rehearse(living, "consumer"),
    )
    notes = (
        "Needs brokers of 4.0 or later, and their group.consumer.migration.policy as it is by default (bidirectional).",
        "Before: set the group's consumer.session.timeout.ms where static members need longer than 45 s to restart.",
        "Back: the same with the settings of before; without a member of the new protocol the group is classic again.",
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
                why="all members have to know a strategy before the group can use it; with an eager one in any list "
                "everything stops at each rebalance as before",
                settings=(Choice(key, f"{COOPERATIVE['java']},{eager}", "the new one first, the old one still there"),),
                restarts=_round(rehearsal, "both"),
            )
        )
    elif rehearsal is not None:
        rehearsal.all_are("both")  # no broker tells what else members have in their lists: the worst is assumed
    steps.append(
        Step(
            what="restart every member, one after the other, with the cooperative one alone",
            why="a member whose list has nothing eager in it gives up only what moves",
            settings=(Choice(key, COOPERATIVE["java"], "nothing eager beside it any more"),),
            restarts=_round(rehearsal, "cooperative"),
        )
    )
    notes = ["See each step through: a member with the old list alone keeps the new strategy from being used."]
    if mode == "eager":
        notes.append("Java's own default is both, range first: a group with it has done the first step already.")
    return Migration(steps=tuple(steps), notes=tuple(notes))


def _by_stop(living: Living | None, mode: Mode) -> Migration:
    if mode == "cooperative":
        return Migration(
            steps=(), notes=("The group is cooperative: librdkafka has no list with an eager one beside it.",)
        )
    restarts: tuple[Restart, ...] = ()
    if living is not None:
        restarts = (Rehearsal(living).all_anew("cooperative"),)
    step = Step(
        what="stop all members; when the group is empty, start all of them with the cooperative strategy",
        why="librdkafka refuses a list with both, and the group a member that shares no strategy with the others",
        settings=(Choice("partition.assignment.strategy", COOPERATIVE["confluent-kafka"], "nothing eager beside it"),),
        restarts=restarts,
    )
    still = (
        "Everything stands still from the first stop to the last start. Where brokers are 4.0 or later, the consumer "
    )
    notes = (
        f"{still}protocol is the better way: members change over one by one.",
        "Static members do not leave by stopping: the group is empty when their sessions have ended.",
    )
    return Migration(steps=(step,), notes=notes)


def _rehearse(living: Living | None, mode: Mode) -> tuple[Restart, ...]:
    return _round(None if living is None else Rehearsal(living), mode)


def _round(rehearsal: Rehearsal | None, mode: Mode) -> tuple[Restart, ...]:
    return () if rehearsal is None else tuple(rehearsal.restart(member, mode) for member in rehearsal.order)
