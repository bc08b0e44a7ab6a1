"""`holdfast reset`: a group's offsets at the broker and its positions in the store, together.

Order: look > ask > take the positions over > look for members again > offsets > positions > read back > let go. While
we own the positions, a member that joins waits. The offsets go first and without the mark of the app's own commits:
were we killed before the positions follow, the next owner would take such an offset for a person's wish and honour it.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from holdfast.adapters.cli import options as shared
from holdfast.adapters.cli.arguments import target
from holdfast.adapters.cli.ending import told_at_the_end
from holdfast.adapters.cli.holding import holding_of
from holdfast.adapters.cli.output import count, shown
from holdfast.adapters.cli.reset_moves import COLUMNS, Move, plan
from holdfast.dedup.claims import ClaimKey
from holdfast.dedup.keys import key_text
from holdfast.dedup.redis_admin import Forgotten, RedisAdmin
from holdfast.errors import GroupActive, SourceError, SourceUnavailable, StoreError, UnknownGroup
from holdfast.plugin.engine.partition.group_position import is_new
from holdfast.timing import Deadline, wall_ms

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from holdfast.adapters.cli.holding import Holder
    from holdfast.adapters.cli.output import Output
    from holdfast.dedup.claims import Acquired
    from holdfast.dedup.redis_store import RedisClaims
    from holdfast.records import Partition
    from holdfast.tools.ports import OffsetTool

_EXAMPLE = """\
  holdfast reset --group billing --topic orders --to 2026-11-20T10:00:00Z \\
      --bootstrap localhost:9092 --redis redis://localhost:6379/0 --dry-run

--to takes earliest, latest, an offset, a time (the first record at or after it), -1000 or +1000 (so many records back
or ahead). What lies beyond the log is refused: say latest. An app without a store: --no-store. RocketMQ:
--namesrv localhost:9876 instead of --bootstrap.
"""
_KEYS = (
    "Business keys outlive a reset: a handler with key=... skips records whose key is done, for the store's window.",
    "To run them again: holdfast claims forget KEY... --scope {group}/{topic}, or another namespace for all of them.",
)


def add(commands: shared.Commands) -> None:
    """The command."""
    made = shared.command(commands, "reset", "let a group continue at another offset", _EXAMPLE)
    shared.add_group(made, "the consumer group; all its members are stopped")
    made.add_argument("--topic", required=True)
    shared.add_partitions(made)
    made.add_argument("--scope", help="RocketMQ: the handler's scope=, where it names one (default: GROUP/TOPIC)")
    made.add_argument("--to", type=target, required=True, metavar="WHERE", help="see below")
    made.add_argument(
        "--new", action="store_true", help="the group has no offset in this topic yet: let it begin there"
    )
    shared.add_brokers(made)
    shared.add_store(made, "holds the group's positions")
    shared.add_app(made, "topics")
    made.add_argument("--dry-run", action="store_true", help="show the plan, change nothing")
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.set_defaults(run=run, changes=True)


class Became(Enum):
    """How far the change has come."""

    NOTHING = "unchanged"
    #: At the broker, all or some of the offsets.
    PERHAPS = "may have been set"
    #: The offsets are set, the positions in the store perhaps not.
    OFFSETS = "set, positions may be as before"
    SET = "set"


@dataclass(slots=True, kw_only=True)
class _Change:
    became: Became = Became.NOTHING
    messages_forgotten: int = 0

    def tell(self, options: argparse.Namespace, output: Output, why: str | None) -> None:
        """The last line for programs. Args: why: it has ended early."""
        output.json(
            {
                "type": "reset",
                "done": self.became is Became.SET and why is None,
                "dry_run": options.dry_run,
                "offsets": self.became.value,
                "messages_forgotten": self.messages_forgotten,
                "error": why,
            }
        )
        if why is not None and (self.became is not Became.NOTHING or self.messages_forgotten):
            output.note(f"the offsets: {self.became.value}; run it again")


def run(options: argparse.Namespace, output: Output) -> int:
    """The whole way. To look we own the positions for a moment, which raises their epochs and changes nothing else.

    Raises GroupActive, StoreRefused: somebody still works on these partitions.
    """
    shared.check_store(options)
    change = _Change()
    with (
        told_at_the_end(output, lambda why: change.tell(options, output, why)) as interrupt,
        shared.offset_tool_of(options) as tool,
        shared.store_of(options) as store,
    ):
        with output.progress(f"looking at {shown(options.group)}"):
            names, moves, retries = _look(options, output, tool, store)
        _tell(moves, retries, output)
        for line in _KEYS:
            output.say(line.format(group=options.group, topic=options.topic))
        output.flush()
        if not _agreed(options, output, len(moves)):
            output.say("nothing was changed")
            return 0 if options.dry_run else 1
        # A few calls, which end before a first Ctrl-C does anything. The wait before them is no change.
        with closing(holding_of(store, names, output.note)) as holding:
            deadline = Deadline(options.timeout)
            _take(moves, holding, deadline)
            with interrupt.held():
                _refuse_members(options, tool, store, list(names), deadline)
                _forget(moves, options, tool, store, change)
                _set({move.partition: move.new for move in moves}, tool, holding, deadline, change)
    if change.messages_forgotten:
        output.say(f"{change.messages_forgotten:,} messages known as done by their UNIQ_KEY are forgotten")
    output.say(f"done: {options.group} continues there")
    return 0


def _look(
    options: argparse.Namespace, output: Output, tool: OffsetTool, store: RedisClaims | None
) -> tuple[Mapping[Partition, str], list[Move], Mapping[str, int]]:
    """The positions' names, the plan, and what waits in retry topics. Raises SettingError, GroupActive,
    UnknownGroup."""
    deadline = Deadline(options.timeout)
    every = tool.partitions(options.topic, deadline)
    partitions = shared.chosen(every, options.partitions)
    names = tool.position_names(partitions, deadline)
    _refuse_members(options, tool, store, partitions, deadline)
    with closing(holding_of(store, names, output.note)) as looking:
        known = {} if store is None else dict(looking.take(deadline))
    committed = tool.committed(every, deadline)
    if not options.new and all(each is None for each in committed.values()) and all(map(is_new, known.values())):
        raise UnknownGroup(
            f"the group {options.group!r} has never read {options.topic}: it has no offset there, and no position in "
            "the store; check both names. If it is to begin there, say --new"
        )
    moves = plan(
        options.to,
        committed={each: committed[each] for each in partitions},
        known=known,
        firsts=tool.first_offsets(partitions, deadline),
        lasts=tool.last_offsets(partitions, deadline),
        at_time=tool.offsets_at(partitions, options.to.value, deadline) if options.to.kind == "time" else {},
        now_ms=wall_ms(),
    )
    return names, moves, tool.retry_lags(options.topic, deadline)


def _take(moves: list[Move], holding: Holder[Partition], deadline: Deadline) -> None:
    """Own the positions, as they were when the plan was made. Raises GroupActive."""
    taken = holding.take(deadline)
    moved = [
        move.partition
        for move in moves
        if move.known is not None and _state(taken[move.partition]) != _state(move.known)
    ]
    if moved:
        raise GroupActive(f"{moved[0]} has moved on since the plan was made: stop all members, and plan again")
    if busy := holding.busy(deadline):
        partition, offsets = min(busy.items())
        raise GroupActive(
            f"a process that has left the group still works on {partition}, offset {offsets[0]}: wait until it has "
            "ended, or stop it"
        )


def _state(known: Acquired) -> tuple[object, ...]:
    """The parts that a member would have changed."""
    return known.watermark, known.done, known.begun


def _forget(
    moves: list[Move], options: argparse.Namespace, tool: OffsetTool, store: RedisClaims | None, change: _Change
) -> None:
    """Messages that are to run again and are known by more than their position. Before the offsets are set: killed in
    between, the next run finds them again."""
    if store is None:
        return
    admin, scope = RedisAdmin.of(store), options.scope or f"{options.group}/{options.topic}"
    starts = {move.partition: move.new for move in moves if move.again}
    ends = {move.partition: _end_of_done(move) for move in moves if move.again}
    for found in tool.identities(starts, ends, options.timeout):
        keys = [ClaimKey(scope, text) for each in found if (text := key_text(each)) is not None]
        if keys:
            change.messages_forgotten += admin.forget(keys, force=False).count(Forgotten.DONE)


def _end_of_done(move: Move) -> int:
    """Behind the last offset that is done."""
    known = -1 if move.known is None else max(move.known.watermark, max(move.known.done, default=-1) + 1)
    return min(max(move.at or 0, known), move.last)


def _set(
    wanted: Mapping[Partition, int], tool: OffsetTool, holding: Holder[Partition], deadline: Deadline, change: _Change
) -> None:
    change.became = Became.PERHAPS
    try:
        tool.set(wanted, deadline)
    except GroupActive:
        change.became = Became.NOTHING
        raise
    except SourceUnavailable as error:
        raise SourceUnavailable(f"the offsets may have been set, all or some of them: {error}; run it again") from error
    change.became = Became.OFFSETS
    try:
        holding.drop(wanted, deadline)
    except StoreError as error:
        raise type(error)(
            f"the offsets at the broker are set, the positions may not be: {error}; run it again, or leave it at that: "
            "the app honours such offsets when it starts"
        ) from error
    change.became = Became.SET
    try:
        found = tool.committed(list(wanted), deadline)
    except SourceUnavailable as error:
        raise SourceUnavailable(f"all is set, and could not be read back: {error}") from error
    for partition, offset in sorted(wanted.items()):
        there = found[partition]
        if there is None or there.offset != offset:
            raise SourceError(
                f"read back, the offset of {partition} is {None if there is None else there.offset} instead of "
                f"{offset}: another program sets the group's offsets too; stop it, and try again"
            )


def _agreed(options: argparse.Namespace, output: Output, partitions: int) -> bool:
    if options.dry_run or options.yes:
        return not options.dry_run
    return output.agreed(f"Set {partitions} partitions?")


def _refuse_members(
    options: argparse.Namespace,
    tool: OffsetTool,
    store: RedisClaims | None,
    partitions: Sequence[Partition],
    deadline: Deadline,
) -> None:
    """Raises GroupActive: the broker, or a record of the group in the store, knows of some."""
    members = [*(() if store is None else shared.coordinated(options, store)), *tool.members(partitions, deadline)]
    if members:
        told = "; ".join(
            f"{each.client} at {each.host}{f' ({each.member_id})' if each.member_id else ''}" for each in members[:5]
        )
        more = f"; and {len(members) - 5} more" if len(members) > 5 else ""
        raise GroupActive(
            f"{tool.group} has {len(members)} member{'s' if len(members) > 1 else ''}: {told}{more}; stop them all "
            "first (one that was killed counts until its session has ended)"
        )


def _tell(moves: list[Move], retries: Mapping[str, int], output: Output) -> None:
    for move in moves:
        output.json(move.as_json())
    for topic, lag in retries.items():
        output.json({"type": "retry_topic", "topic": topic, "lag": lag})
    output.table(COLUMNS, [move.row() for move in moves])
    again, skipped = sum(move.again or 0 for move in moves), sum(move.skipped or 0 for move in moves)
    output.say(f"at most {count(again, 'record')} would run again and {skipped:,} be skipped")
    for topic, lag in retries.items():
        output.say(
            f"{count(lag, 'record')} in {shown(topic)}, which is not reset, {'is' if lag == 1 else 'are'} tried again"
        )
