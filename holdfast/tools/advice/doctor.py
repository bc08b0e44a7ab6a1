"""START HERE: a configuration, or a live group, held against the rules. Pure: the caller brings the facts.

The rules are in rules/: membership, times, reading, spelling and rocketmq of configurations; live_members, live_shares,
live_offsets and live_topics of a group that was looked at; joining of both together. One rule is one function, and a
row of a table that says how bad it is and what it brings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.tools.advice.rules import (
    joining,
    live_members,
    live_offsets,
    live_shares,
    live_topics,
    membership,
    reading,
    rocketmq,
    spelling,
    times,
)
from holdfast.tools.advice.rules.conf import Circumstances, Client, ClientConf
from holdfast.tools.advice.rules.finding import Effect, Finding, Rule, Severity, look_at
from holdfast.tools.advice.rules.joining import Joining
from holdfast.tools.advice.rules.watched import Watched

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.tools.advice.group_view import GroupView

__all__ = [
    "CONF_RULES",
    "GROUP_RULES",
    "JOINING_RULES",
    "Circumstances",
    "Client",
    "ClientConf",
    "Effect",
    "Finding",
    "Rule",
    "Severity",
    "Watched",
    "examine",
    "examine_conf",
    "examine_group",
    "examine_joining",
    "not_judged",
    "worst",
]

#: Rules about a configuration.
CONF_RULES: tuple[Rule[ClientConf], ...] = (
    *spelling.RULES,
    *membership.RULES,
    *times.RULES,
    *reading.RULES,
    *rocketmq.RULES,
)
#: Rules about a live group.
GROUP_RULES: tuple[Rule[Watched], ...] = (
    *live_members.RULES,
    *live_shares.RULES,
    *live_offsets.RULES,
    *live_topics.RULES,
)
#: Rules about a configuration and the live group that it is for.
JOINING_RULES: tuple[Rule[Joining], ...] = joining.RULES


def examine(
    conf: Mapping[str, object], *, client: Client | None = None, circumstances: Circumstances | None = None
) -> list[Finding]:
    """Find what is wrong with a consumer's configuration, the worst first.

    Args:
        conf: by the names of its client; values as they are or as text. None = not said.
        client: whose names and defaults; None = as the names look.
        circumstances: what no configuration says; what is not known keeps rules silent.

    Raises:
        SettingError: the circumstances cannot be.
    """
    return examine_conf(ClientConf(conf, client=client, circumstances=circumstances))


def examine_conf(conf: ClientConf) -> list[Finding]:
    """Find what is wrong with a configuration that is read already, the worst first."""
    return look_at(conf, CONF_RULES)


def examine_group(watched: Watched) -> list[Finding]:
    """Find what is wrong with a live group, the worst first. One look is enough for what stands; what moves takes
    more."""
    return look_at(watched, GROUP_RULES)


def examine_joining(conf: ClientConf, group: GroupView) -> list[Finding]:
    """Find what would go wrong if a process with this configuration joined that group now."""
    return look_at(Joining(conf, group), JOINING_RULES)


def not_judged(conf: ClientConf) -> list[Rule[ClientConf]]:
    """The rules for this client that are silent since nobody has said how long a handler takes."""
    if conf.circumstances.handler_s is not None or (conf.kafka and conf.turn is not None):
        return []
    return [rule for rule in CONF_RULES if rule.needs_handler and (rule in rocketmq.RULES) is not conf.kafka]


def worst(findings: Sequence[Finding]) -> Severity | None:
    """How bad it is; None = nothing was found."""
    return max((each.severity for each in findings), key=lambda severity: severity.rank, default=None)
