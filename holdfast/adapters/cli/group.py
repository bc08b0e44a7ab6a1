"""`holdfast group show` and `group remove`: a RocketMQ group as holdfast's coordinator in Redis has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.adapters.cli import options as shared
from holdfast.adapters.cli.ending import told_at_the_end
from holdfast.adapters.cli.output import count, shown, span
from holdfast.dedup.redis_coordinator import RedisCoordinator
from holdfast.errors import GroupActive, UnknownGroup

if TYPE_CHECKING:
    import argparse

    from holdfast.adapters.cli.options import Commands
    from holdfast.adapters.cli.output import Output
    from holdfast.dedup.coordinator import GroupState
    from holdfast.dedup.redis_store import RedisClaims

_EXAMPLE = """\
  holdfast group show --group billing --redis redis://localhost:6379/0
  holdfast group remove --group billing --redis redis://localhost:6379/0

A removed group has no members and no plan any more; positions and business keys stay, and the next member that joins
begins a new plan.
"""


def add(commands: Commands) -> None:
    """The commands and their options."""
    made = commands.add_parser("group", help="a RocketMQ group as holdfast's coordinator in Redis has it")
    below = made.add_subparsers(metavar="COMMAND", required=True)
    for name, summary, run in (
        ("show", "members, their leases and what the plan gives them", _show),
        ("remove", "forget a group: its plan and its members, none of which may be alive", _remove),
    ):
        each = shared.command(below, name, summary, _EXAMPLE)
        shared.add_group(each)
        shared.add_redis(each, "where the group is")
        each.set_defaults(run=run, changes=name == "remove")
        if name == "remove":
            each.add_argument("--yes", action="store_true", help="do not ask")


def _show(options: argparse.Namespace, output: Output) -> int:
    with shared.claims_of(options) as store, output.progress(f"asking about {shown(options.group)}"):
        state = _state(store, options)
    output.json(
        {
            "type": "group",
            "group": options.group,
            "generation": state.plan.generation,
            "settled": state.settled,
            "subscription": state.subscription,
            "members": [
                {
                    "id": each.id,
                    "client": each.client_id,
                    "description": each.description,
                    "weight": each.weight,
                    "lease_left_s": state.left_s.get(each.id),
                    "queues": [[queue.topic, queue.broker, queue.number] for queue in sorted(state.plan.of(each.id))],
                }
                for each in state.members
            ],
        }
    )
    settled = "for these members and queues" if state.settled else "and a new one is due"
    output.say(f"{options.group}: {count(len(state.members), 'member')}, plan {state.plan.generation} {settled}")
    output.say(f"all subscribe to {shown(state.subscription, 200)}")
    output.table(
        ("MEMBER", "PROCESS", "WEIGHT", "QUEUES", "LEASE"),
        [
            [
                shown(each.client_id),
                shown(each.description),
                each.weight,
                len(state.plan.of(each.id)),
                f"for {span(left_s)} more" if (left_s := state.left_s.get(each.id, 0.0)) else "over",
            ]
            for each in sorted(state.members, key=lambda each: each.client_id)
        ],
    )
    return 0


@dataclass(slots=True)
class _Removal:
    """Whether the group is forgotten; None: it was asked for, and no answer has come."""

    done: bool | None = False

    def tell(self, options: argparse.Namespace, output: Output, why: str | None) -> None:
        """Args: why: it has ended early."""
        output.json(
            {
                "type": "removed",
                "group": options.group,
                "done": self.done is True,
                "may_be_removed": self.done is None,
                "error": why,
            }
        )
        if self.done:
            output.say(f"{options.group} is forgotten")
        if self.done is None:
            output.note(f"{options.group} may be forgotten: run it again")


def _remove(options: argparse.Namespace, output: Output) -> int:
    removal = _Removal()
    with (
        told_at_the_end(output, lambda why: removal.tell(options, output, why)) as interrupt,
        shared.claims_of(options) as store,
    ):
        state = _state(store, options)
        if not options.yes and not output.agreed(f"Forget {options.group} and its plan {state.plan.generation}?"):
            return 1
        with interrupt.held():
            removal.done = None
            removal.done = RedisCoordinator(store).remove(options.group)
        if not removal.done:
            told = ", ".join(shown(each.client_id) for each in state.members)
            raise GroupActive(
                f"{options.group} has live members ({told}): stop them all "
                "first (one that was killed counts until its lease has ended)"
            )
    return 0


def _state(store: RedisClaims, options: argparse.Namespace) -> GroupState:
    """Raises UnknownGroup, StoreError."""
    state = RedisCoordinator(store).describe(options.group)
    if not state.members and not state.plan.stamp:
        raise UnknownGroup(
            f"{options.namespace} in this Redis has no group {options.group!r}: check the name, and which Redis and "
            "namespace it is"
        )
    return state
