"""`holdfast reset`: a group's offsets at the broker and its positions in the store, together.

Order: look > ask > take the positions over > look for members again > offsets > positions > read back > let go. While
we own the positions, a member that joins waits. The offsets go first and without the mark of the app's own commits:
were we killed before the positions follow, the next owner would take such an offset for a person's wish and honour it.
"""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING

from holdfast.adapters.cli import options as shared
from holdfast.adapters.cli.arguments import target
from holdfast.adapters.cli.holding import Holding
from holdfast.adapters.cli.interrupt import Interrupt
from holdfast.adapters.cli.output import count, shown
from holdfast.adapters.cli.reset_moves import COLUMNS, Move, Position, plan
from holdfast.dedup.claims import ClaimKey
from holdfast.dedup.keys import key_text
from holdfast.dedup.redis_admin import Forgotten, RedisAdmin
from holdfast.errors import GroupActive, SourceError, StoreError
from holdfast.timing import Deadline

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from holdfast.adapters.cli.output import Output
    from holdfast.dedup.claims import Acquired
    from holdfast.dedup.redis_store import RedisClaims
    from holdfast.plugin.tool_ports import OffsetTool
    from holdfast.records import Partition

_EXAMPLE = """\
  holdfast reset --group billing --topic orders --to 2026-11-20T10:00:00Z \\
      --bootstrap localhost:9092 --redis redis://localhost:6379/0 --dry-run

--to takes earliest, latest, an offset, a time (the first record at or after it), -1000 or +1000 (so many records back
or ahead). RocketMQ: --namesrv localhost:9876 instead of --bootstrap.
"""
_KEYS = (
    "Business keys outlive a reset: a handler with key=... skips records whose key is done, for the store's window.",
    "To run them again: holdfast claims forget KEY... --scope {group}/{topic}, or another namespace for all of them.",
)


def add(commands: shared.Commands) -> None:
    """The command."""
    made = shared.command(commands, "reset", "let a group go on from another offset", _EXAMPLE)
    made.add_argument("--group", required=True, help="the consumer group; all its members are stopped")
    made.add_argument("--topic", required=True)
    shared.add_partitions(made)
    made.add_argument("--scope", help="RocketMQ: the handler's scope=, where it names one (default: GROUP/TOPIC)")
    made.add_argument("--to", type=target, required=True, metavar="WHERE", help="see below")
    shared.add_brokers(made)
    shared.add_redis(made, "holds the group's positions")
    made.add_argument("--dry-run", action="store_true", help="show the plan, change nothing")
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.set_defaults(run=run)


def run(options: argparse.Namespace, output: Output) -> int:
    """The whole way. To look we own the positions for a moment, which raises their epochs and changes nothing else.

    Raises GroupActive, StoreRefused: somebody still works on these partitions.
    """
    with shared.offset_tool_of(options) as tool, shared.claims_of(options) as store:
        with output.progress(f"looking at {shown(options.group)}"):
            deadline = Deadline(options.timeout)
            partitions = shared.chosen(tool.partitions(options.topic, deadline), options.partitions)
            names = tool.position_names(partitions, deadline)
            _refuse_members(options, tool, store, deadline)
            with closing(Holding(store, names, output.note)) as looking:
                found = _positions(looking.take(deadline))
            moves = plan(
                options.to,
                committed=tool.committed(partitions, deadline),
                positions=found,
                firsts=tool.first_offsets(partitions, deadline),
                lasts=tool.last_offsets(partitions, deadline),
                at_time=tool.offsets_at(partitions, options.to.value, deadline) if options.to.kind == "time" else {},
            )
        _tell(moves, output)
        output.say_all(line.format(group=options.group, topic=options.topic) for line in _KEYS)
        if not _agreed(options, output, len(moves)):
            output.json({"type": "reset", "done": False, "dry_run": options.dry_run})
            output.say("nothing was changed")
            return 0 if options.dry_run else 1
        # A few calls, which end before a first Ctrl-C does anything.
        with Interrupt(), closing(Holding(store, names, output.note)) as holding:
            deadline = Deadline(options.timeout)
            _take(moves, holding, deadline)
            _refuse_members(options, tool, store, deadline)
            forgotten = _forget(moves, options, tool, store)
            _set({move.partition: move.new for move in moves}, tool, holding, deadline)
    output.json({"type": "reset", "done": True, "dry_run": False, "messages_forgotten": forgotten})
    if forgotten:
        output.say(f"{forgotten:,} messages that were known as done, by their UNIQ_KEY, are forgotten")
    output.say(f"done: {options.group} goes on from there")
    return 0


def _take(moves: list[Move], holding: Holding, deadline: Deadline) -> None:
    """Own the positions, as they were when the plan was made. Raises GroupActive."""
    taken = _positions(holding.take(deadline))
    moved = [move.partition for move in moves if taken[move.partition] != move.position]
    if moved:
        raise GroupActive(f"{moved[0]} has moved on since the plan was made: stop all members, and plan again")
    if busy := holding.busy(deadline):
        partition, offsets = min(busy.items())
        raise GroupActive(
            f"a process that has left the group still works on {partition}, offset {offsets[0]}: wait until it has "
            "ended, or stop it"
        )


def _forget(moves: list[Move], options: argparse.Namespace, tool: OffsetTool, store: RedisClaims) -> int:
    """Messages that are to run again and are known by more than their position. Before the offsets are set: killed in
    between, the next run finds them again."""
    admin, scope = RedisAdmin.of(store), options.scope or f"{options.group}/{options.topic}"
    starts = {move.partition: move.new for move in moves if move.again}
    ends = {move.partition: _end_of_done(move) for move in moves if move.again}
    forgotten = 0
    for found in tool.identities(starts, ends, options.timeout):
        keys = [ClaimKey(scope, text) for each in found if (text := key_text(each)) is not None]
        if keys:
            forgotten += admin.forget(keys, force=False).count(Forgotten.DONE)
    return forgotten


def _end_of_done(move: Move) -> int:
    """Behind the last offset that is done."""
    return min(max(move.at or 0, max(move.position.done, default=-1) + 1), move.last)


def _set(wanted: Mapping[Partition, int], tool: OffsetTool, holding: Holding, deadline: Deadline) -> None:
    tool.set(wanted, deadline)
    try:
        holding.drop(wanted, deadline)
    except StoreError as error:
        raise type(error)(
            f"the offsets at the broker are set, the positions are not: {error}; run it again, or leave it at that: "
            "the app honours such offsets when it starts"
        ) from error
    found = tool.committed(list(wanted), deadline)
    if wrong := sorted(partition for partition, offset in wanted.items() if found[partition] != offset):
        raise SourceError(
            f"read back, the offset of {wrong[0]} is {found[wrong[0]]} instead of {wanted[wrong[0]]}: somebody else "
            "sets the group's offsets too; stop them, and try again"
        )


def _positions(found: Mapping[Partition, Acquired]) -> dict[Partition, Position]:
    return {each: Position(watermark=one.watermark, done=one.done) for each, one in found.items()}


def _agreed(options: argparse.Namespace, output: Output, partitions: int) -> bool:
    if options.dry_run or options.yes:
        return not options.dry_run
    agreed = output.confirm(f"Set {partitions} partitions?", sys.stdin)
    if agreed is None:
        output.note("no terminal to ask at: say --yes")
    return bool(agreed)


def _refuse_members(options: argparse.Namespace, tool: OffsetTool, store: RedisClaims, deadline: Deadline) -> None:
    """Raises GroupActive: the broker, or the group's coordinator in the store, knows of some."""
    members = [*tool.members(deadline), *shared.coordinated(options, store)]
    if members:
        told = "; ".join(f"{each.client} at {each.host} ({each.member_id})" for each in members[:5])
        more = f"; and {len(members) - 5} more" if len(members) > 5 else ""
        raise GroupActive(
            f"{tool.group} has {len(members)} member{'s' if len(members) > 1 else ''}: {told}{more}; stop them all "
            "first (one that was killed counts until its session has ended)"
        )


def _tell(moves: list[Move], output: Output) -> None:
    for move in moves:
        output.json(move.as_json())
    output.table(COLUMNS, [move.row() for move in moves])
    again, skipped = sum(move.again or 0 for move in moves), sum(move.skipped or 0 for move in moves)
    output.say(f"at most {count(again, 'record')} would run again and {skipped:,} be skipped")
