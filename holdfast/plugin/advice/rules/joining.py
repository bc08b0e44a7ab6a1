"""Rules over a configuration and the live Kafka group that it is to join. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.plugin.advice.rules.finding import Effect, Rule, Seen, Severity
from holdfast.plugin.advice.rules.membership import ASSIGNOR, PROTOCOL, STATIC_ID, STRATEGY
from holdfast.plugin.advice.rules.watched import member_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.plugin.advice.group_view import GroupView
    from holdfast.plugin.advice.rules.conf import ClientConf


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
            f"the group goes by {group.assignor}, which is not among them: where the others have no other in common "
            "with it, the broker refuses the join (INCONSISTENT_GROUP_PROTOCOL), again and again",
            f"say {group.assignor}, or migrate the group: `holdfast migrate` tells the order",
        )


def _remote_assignor(joining: Joining) -> Iterator[Seen]:
    conf, group = joining
    said = conf.text(ASSIGNOR)
    if joining.kafka and conf.consumer_protocol and group.protocol == "consumer" and said and group.assignor != said:
        yield Seen(
            ASSIGNOR,
            conf.shown(ASSIGNOR),
            f"the group goes by {group.assignor}: most members decide, so with those of this configuration it may "
            "change, and everything with it",
            "let all members say the same",
        )


def _protocol(joining: Joining) -> Iterator[Seen]:
    conf, group = joining
    if not joining.kafka or group.protocol not in ("classic", "consumer") or conf.to_be_filled_in(PROTOCOL):
        return
    if conf.consumer_protocol and group.protocol == "classic":
        why = "the group is classic: the first of the consumer protocol makes it another, where the brokers allow that"
    elif not conf.consumer_protocol and group.protocol == "consumer":
        why = "the group is of the consumer protocol: a classic member in it has to join anew at each change"
    else:
        return
    yield Seen(
        PROTOCOL,
        conf.shown(PROTOCOL),
        f"{why} (group.consumer.migration.policy)",
        "if a migration is meant, bring it to its end: `holdfast migrate` tells the order; if not, say what the "
        "group is",
    )


def _static_id(joining: Joining) -> Iterator[Seen]:
    conf, group = joining
    said = conf.text(STATIC_ID)
    taken = next((each for each in group.members if said and each.instance_id == said), None)
    if joining.kafka and taken is not None:
        outcome = "this one would be refused" if group.protocol == "consumer" else "that one would be thrown out"
        yield Seen(
            STATIC_ID,
            conf.shown(STATIC_ID),
            f"a member of the group has it ({taken.client_id} at {taken.host}): were another started, {outcome}",
            "nothing, if that is the process of this configuration; otherwise give it a name of its own",
        )


def _other_group(joining: Joining) -> Iterator[Seen]:
    conf, group = joining
    name = "group.id" if conf.kafka else "consumer_group"
    said = conf.text(name)
    if said and said != group.group:
        members = f", which has {member_name(group.members[0])} in it" if group.members else ""
        yield Seen(
            conf.spelled(name),
            conf.shown(name),
            f"it is held against the group {group.group}{members}: this is another",
            "name the group that is meant",
        )


RULES = (
    Rule(
        name="joins-another-group",
        severity=Severity.NOTE,
        effect=Effect.IGNORED,
        title="the configuration's group is not the one that is looked at",
        look=_other_group,
    ),
    Rule(
        name="joins-without-common-assignor",
        severity=Severity.ERROR,
        effect=Effect.REFUSED,
        title="the live group's assignor is none of the configuration's",
        look=_assignor,
    ),
    Rule(
        name="joins-with-other-assignor",
        severity=Severity.NOTE,
        effect=Effect.UNEVEN,
        title="the live group goes by another `group.remote.assignor`",
        look=_remote_assignor,
    ),
    Rule(
        name="joins-with-other-protocol",
        severity=Severity.WARNING,
        effect=Effect.STANDSTILL,
        title="the live group is of the other protocol",
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
