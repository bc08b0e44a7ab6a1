"""`holdfast lag`: how far a group is behind, by partition and by member, once or watching."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from holdfast.adapters.cli import options as shared
from holdfast.adapters.cli.arguments import at_least_1, seconds
from holdfast.adapters.cli.lag_rates import Line, Rates, Total, lines_of, names
from holdfast.adapters.cli.output import count, shown, span
from holdfast.adapters.cli.positions import with_positions
from holdfast.adapters.cli.watch_loop import again_and_again
from holdfast.errors import SourceUnavailable
from holdfast.printable import printable
from holdfast.timing import SYSTEM_CLOCK, Deadline, wall_ms

if TYPE_CHECKING:
    import argparse

    from holdfast.adapters.cli.options import Commands
    from holdfast.adapters.cli.output import Output
    from holdfast.tools.advice.group_view import GroupView, GroupViews

_EXAMPLE = """\
  holdfast lag --group billing --bootstrap localhost:9092
  holdfast lag --app billing:app --watch
  holdfast lag --group billing --namesrv localhost:9876 --redis redis://localhost:6379/0 --json

exit code 1: the lag of a partition is unknown (it has no leader, its topic is gone, or the committed offset is beyond
the log's end), or its log has lost records that the group had not read. A partition without a committed offset does not
count.
"""
_RATES = ("READ/S", "WRITTEN/S", "CAUGHT UP IN")


def add(commands: Commands) -> None:
    """The command and its options."""
    made = shared.command(commands, "lag", "how far a consumer group is behind", _EXAMPLE)
    shared.add_group(made)
    made.add_argument(
        "--topic", action="append", default=[], metavar="NAME", help="only this topic; may be given several times"
    )
    made.add_argument("--watch", action="store_true", help="repeat until Ctrl-C, with rates")
    made.add_argument(
        "--every", type=seconds, default=2.0, metavar="S", help="seconds between two looks (default: %(default)g)"
    )
    made.add_argument("--count", type=at_least_1, metavar="N", help="end after so many looks")
    shared.add_brokers(made)
    shared.add_redis(
        made,
        "it has the group's position, if that differs from the committed offset; RocketMQ: also the queues' owners",
        required=False,
    )
    shared.add_app(made)
    made.set_defaults(run=run)


def run(options: argparse.Namespace, output: Output) -> int:
    """Look, and print. Raises HoldfastError."""
    with shared.group_views_of(options) as group:
        if options.watch or options.count:
            return _watch(group, options, output)
        with output.progress(f"asking about {shown(options.group)}"):
            view = _look(group, options)
        lines = lines_of(view)
        _tell(view, lines, output)
    return _code(view, lines)


def _look(group: GroupViews, options: argparse.Namespace) -> GroupView:
    view = group.view(Deadline(options.timeout), topics=options.topic).only(options.topic)
    return with_positions(view, options) if options.redis else view


def _watch(group: GroupViews, options: argparse.Namespace, output: Output) -> int:
    rates = Rates()

    def tell(view: GroupView, height: int | None) -> int:
        rates.add(SYSTEM_CLOCK.now(), view)
        lines = lines_of(view, rates)
        _tell(view, lines, output, watching=True, height=height)
        return _code(view, lines)

    return again_and_again(options, output, lambda: _look(group, options), tell, SourceUnavailable)


def _code(view: GroupView, lines: list[Line]) -> int:
    return int(bool(view.unseen) or any(line.wrong for line in lines))


# ---- telling
def _tell(
    view: GroupView, lines: list[Line], output: Output, *, watching: bool = False, height: int | None = None
) -> None:
    """Args: height: of a terminal that is drawn anew."""
    if height is not None:
        output.draw_anew()
    head, summary = heading(view), _summary(view, lines, watching=watching)
    notes = [f"note: {shown(note, 200)}" for note in view.not_known]
    output.say(head, tone="warning" if view.rebalancing else "head")
    output.json(_group_json(view, lines))
    for line in lines:
        output.json(line.as_json())
    members = _member_rows(view, lines, watching=watching) if lines and view.members else []
    columns = ("MEMBER", "HOST", "PARTITIONS", "LAG", *(_RATES if watching else ()))
    rows, room = lines, None
    if height is not None:  # what is furthest behind first, since the rest has no room
        rows = sorted(lines, key=lambda line: (not line.wrong, -(line.view.lag or 0)))
        room = output.room(height, head, summary, *notes) - output.height_of_table(columns, members)
    if lines:
        told = output.table(
            ("PARTITION", "MEMBER", "OFFSET", "END", "LAG", *(_RATES if watching else ()), ""),
            [_partition_row(line, watching=watching) for line in rows],
            room,
            ["bad" if line.wrong else None for line in rows],
        )
        if told < len(lines):
            output.say(f"and {count(len(lines) - told, 'partition')} more")
    if members:
        output.say()
        output.table(columns, members)
    output.say(summary)
    for each in notes:
        output.say(each, tone="warning")


def heading(view: GroupView) -> str:
    """The group in a line."""
    broker = "Kafka" if view.kind == "kafka" else "RocketMQ"
    parts = [f"{view.group} at {broker}: {view.state}", count(len(view.members), "member")]
    how = {"": "", "classic": "classic protocol", "consumer": "consumer protocol", "remoting": "each client by itself"}
    said = how.get(view.protocol, "holdfast's plan")
    if said:
        parts.append(f"{said} with {view.assignor}" if view.assignor else said)
    if view.generation is not None:
        parts.append(f"{'epoch' if view.protocol == 'consumer' else 'generation'} {view.generation}")
    if view.coordinator:
        parts.append(f"coordinator {view.coordinator.name} ({view.coordinator.address})")
    return printable(", ".join(parts))


def _partition_row(line: Line, *, watching: bool) -> list[object]:
    view, rate = line.view, line.rate
    rates = _rates(rate.consumed_s, rate.produced_s, rate.catch_up_s(view.lag)) if watching else ()
    member = shown("?" if line.member is None else line.member or "-")
    return [str(view.partition), member, view.committed, view.end, view.lag, *rates, shown(line.remark)]


def _member_rows(view: GroupView, lines: list[Line], *, watching: bool) -> list[list[object]]:
    called = names(view)
    everybody = [(called[each.id], each.host, each.partitions is not None) for each in view.members]
    by_member: dict[str | None, list[Line]] = {None: [], "": []}
    for line in lines:
        by_member.setdefault(line.member, []).append(line)
    rows: list[list[object]] = []
    for name, host, told in everybody:
        mine = by_member.get(name, [])
        total = Total.of(mine)
        rates = _rates(*total.rate, total.catch_up_s) if watching else ()
        rows.append([shown(name), shown(host), *([len(mine), total.text] if told else [None, "?"]), *rates])
    if left := by_member[""]:
        total = Total.of(left)
        rates = _rates(*total.rate, total.catch_up_s) if watching else ()
        rows.append(["(nobody)", "", len(left), total.text, *rates])
    return rows


def _rates(consumed_s: float | None, produced_s: float | None, catch_up_s: float | None) -> list[object]:
    when = "-" if catch_up_s is None else "never" if catch_up_s == math.inf else span(catch_up_s)
    return [consumed_s, produced_s, when]


def _summary(view: GroupView, lines: list[Line], *, watching: bool) -> str:
    if not lines:
        return "lag: unknown: the broker does not report the group's topics now"
    total = Total.of(lines)
    known = total.partitions - total.unknown
    if known:
        parts = [f"lag: {total.lag:,} in {count(known, 'partition')}"]
        parts += [f"unknown in {total.unknown}"] if total.unknown else []
    else:
        parts = [f"lag: unknown in {count(total.partitions, 'partition')}"]
    if view.unseen:
        parts.append(f"without {', '.join(sorted(view.unseen))}, which cannot be described")
    new = [line for line in lines if line.state == "never_committed" and line.in_log]
    if new:
        in_log = sum(line.in_log or 0 for line in new)
        parts.append(f"{len(new)} without a committed offset ({in_log:,} records in the log)")
    if view.rebalancing:
        parts.append("the group rebalances")
    elif not view.members and not any(line.view.given_out for line in lines):
        parts.append("nobody consumes")
    if watching and (when := total.catch_up_s):
        parts.append("never caught up at this rate" if when == math.inf else f"caught up in {span(when)}")
    return ", ".join(parts)


def _group_json(view: GroupView, lines: list[Line]) -> dict[str, object]:
    total = Total.of(lines)
    return {
        "type": "group",
        "at_ms": wall_ms(),
        "group": view.group,
        "kind": view.kind,
        "state": view.state,
        "protocol": view.protocol,
        "assignor": view.assignor,
        "generation": view.generation,
        "coordinator": view.coordinator.address if view.coordinator else None,
        "members": [
            {
                "id": each.id,
                "name": name,
                "client": each.client_id,
                "host": each.host,
                "partitions": None if each.partitions is None else len(each.partitions),
                "lag": _known_lag([line for line in lines if line.member == name]),
            }
            for each, name in ((each, names(view)[each.id]) for each in view.members)
        ],
        "partitions": total.partitions,
        "lag": None if total.unknown else total.lag,
        "lag_known": total.lag,
        "lag_not_known_in": total.unknown,
        "unseen": dict(view.unseen),
        "notes": list(view.notes),
    }


def _known_lag(lines: list[Line]) -> int | None:
    total = Total.of(lines)
    return None if total.unknown else total.lag
