"""Rules over a configuration and the live Kafka group that it is to join. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.tools.advice.rules.finding import Effect, Rule, Seen, Severity
from holdfast.tools.advice.rules.membership import ASSIGNOR, PROTOCOL, STATIC_ID, STRATEGY
from holdfast.tools.advice.rules.watched import member_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.tools.advice.group_view import GroupView
    from holdfast.tools.advice.rules.conf import ClientConf


class Joining(NamedTuple):
    """A process that would join, and its configuration."""

    conf: ClientConf
    group: GroupView

    @property
    def kafka(self) -> bool:
        """Whether both are Kafka's, and there is somebody in the group to differ from."""
        return self.conf.kafka and self.group.kind == "kafka" and bool(self.group.members)


def _assignor(joining: Joining) -> Iterator[Seen]:
    conf, group = joining
    if not joining.kafka or group.protocol != "classic" or not conf.assignors or group.assignor is None:
        return
    if group.assignor not in conf.assignors:
        yield Seen(
            STRATEGY,
            conf.shown(STRATEGY),
            f"the group uses {group.assignor}, which this list does not have: unless all members have another "
            "assignor in common, the broker refuses the join (INCONSISTENT_GROUP_PROTOCOL), again and again",
            f"use {group.assignor}, or migrate the group: `holdfast migrate` shows the steps",
        )


def _remote_assignor(joining: Joining) -> Iterator[Seen]:
    conf, group = joining
    said = conf.text(ASSIGNOR)
    if joining.kafka and conf.consumer_protocol and group.protocol == "consumer" and said and group.assignor != said:
        yield Seen(
            ASSIGNOR,
            conf.shown(ASSIGNOR),
            f"the group uses {group.assignor}: the assignor that most members ask for wins, so members with this "
            "configuration may change it, and with it the whole assignment",
            "give all members the same value",
        )


def _protocol(joining: Joining) -> Iterator[Seen]:
    conf, group = joining
    if not joining.kafka or group.protocol not in ("classic", "consumer") or conf.to_be_filled_in(PROTOCOL):
        return
    if conf.consumer_protocol and group.protocol == "classic":
        why = "the group is classic: the first member of the consumer protocol converts it, if the brokers allow that"
    elif not conf.consumer_protocol and group.protocol == "consumer":
        why = "the group uses the consumer protocol: a classic member in it has to join again at each change"
    else:
        return
    yield Seen(
        PROTOCOL,
        conf.shown(PROTOCOL),
        f"{why} (group.consumer.migration.policy)",
        "if you mean to migrate, finish it: `holdfast migrate` shows the steps; if not, set the group's protocol",
    )


def _static_id(joining: Joining) -> Iterator[Seen]:
    conf, group = joining
    said = conf.text(STATIC_ID)
    taken = next((each for each in group.members if said and each.instance_id == said), None)
    if joining.kafka and taken is not None:
        new, old = "the broker would refuse it", "the broker would remove that member"
        outcome = new if group.protocol == "consumer" else old
        yield Seen(
            STATIC_ID,
            conf.shown(STATIC_ID),
            f"a member of the group has this id ({taken.client_id} at {taken.host}): if another process joined with "
            f"it, {outcome}",
            "nothing, if that member is the process of this configuration; otherwise give this one its own id",
        )


def _other_group(joining: Joining) -> Iterator[Seen]:
    conf, group = joining
    name = "group.id" if conf.kafka else "consumer_group"
    said = conf.text(name)
    if said and said != group.group:
        members = f", whose members include {member_name(group.members[0])}" if group.members else ""
        yield Seen(
            conf.spelled(name),
            conf.shown(name),
            f"you compare it with the group {group.group}{members}, but it names another group",
            "name the same group in both places",
        )


RULES = (
    Rule(
        name="joins-another-group",
        severity=Severity.NOTE,
        effect=Effect.IGNORED,
        title="the configuration names another group than `--group`",
        look=_other_group,
    ),
    Rule(
        name="joins-without-common-assignor",
        severity=Severity.ERROR,
        effect=Effect.REFUSED,
        title="the configuration does not list the live group's assignor",
        look=_assignor,
    ),
    Rule(
        name="joins-with-other-assignor",
        severity=Severity.NOTE,
        effect=Effect.UNEVEN,
        title="the live group uses another `group.remote.assignor`",
        look=_remote_assignor,
    ),
    Rule(
        name="joins-with-other-protocol",
        severity=Severity.WARNING,
        effect=Effect.STANDSTILL,
        title="the live group uses the other protocol",
        look=_protocol,
    ),
    Rule(
        name="static-id-taken",
        severity=Severity.WARNING,
        effect=Effect.REPEATS,
        title="a live member has the configuration's static id",
        look=_static_id,
    ),
)
