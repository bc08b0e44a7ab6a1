"""`holdfast status`: what running processes tell of their apps, once or again and again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

from holdfast.adapters.cli import options as shared
from holdfast.adapters.cli.arguments import at_least_1, seconds, token
from holdfast.adapters.cli.output import count, shown, span
from holdfast.adapters.cli.status_group import members, tell_group
from holdfast.adapters.cli.status_request import TOKEN, NoAnswer, Request
from holdfast.adapters.cli.status_table import ask_all, tell, tone_of
from holdfast.adapters.cli.watch_loop import again_and_again
from holdfast.errors import SettingError
from holdfast.plugin.overrides import TOOLS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from holdfast.adapters.cli.options import Commands
    from holdfast.adapters.cli.output import Output, Tone
    from holdfast.adapters.cli.status_request import App

_EXAMPLE = """\
  holdfast status http://127.0.0.1:9464
  holdfast status localhost:9464 --watch
  holdfast status billing-0:9464 billing-1:9464 billing-2:9464
  holdfast status --group billing --redis redis://localhost:6379/0

exit code 1: an app is not live or not ready; 3: no answer, also of one of several
"""
_NAMES = ("PARTITION", "PHASE", "OFFSET", "END", "LAG", "IN FLIGHT", "CLAIMS", "OLDEST", "HANDLER", "WAITS FOR")
T = TypeVar("T")


def add(commands: Commands) -> None:
    """The command and its options."""
    made = shared.command(commands, "status", "what running processes are doing, partition by partition", _EXAMPLE)
    made.add_argument(
        "urls", nargs="*", metavar="URL", help="where the process's serve(...) listens; of several, a line for each"
    )
    made.add_argument(
        "--group",
        metavar="NAME",
        help="in the place of addresses: all members of the group that serve a page, as they tell of themselves in the "
        "Redis of --redis",
    )
    shared.add_redis(made, f"with --group (or {TOOLS['redis']} in the environment)", required=False)
    made.add_argument("--watch", action="store_true", help="repeat until Ctrl-C")
    made.add_argument(
        "--every", type=seconds, default=2.0, metavar="S", help="seconds between two looks (default: %(default)g)"
    )
    made.add_argument("--count", type=at_least_1, metavar="N", help="end after so many looks")
    made.add_argument(
        "--token",
        type=token,
        metavar="TEXT",
        help=f"the endpoint's, if it has one (default: {TOKEN} in the environment)",
    )
    made.set_defaults(run=run)


def run(options: argparse.Namespace, output: Output) -> int:
    """Ask, and tell. Raises SettingError; NoAnswer: the only address gives none; StoreError: Redis gives none."""
    if options.group and not options.redis:
        options.redis = os.environ.get(TOOLS["redis"])
    shared.check_redis(options)
    if bool(options.urls) == bool(options.group) or bool(options.group) != bool(options.redis):
        raise SettingError("URL", options.urls, "give addresses of processes, or --group and --redis")
    if options.group:
        with shared.claims_of(options) as store:
            return _looks(
                options,
                output,
                lambda: members(store, options.group),
                lambda found, height: tell_group(options.group, found, output, height),
            )
    requests = [Request(said, options.token, options.timeout) for said in options.urls]
    if len(requests) > 1:
        return _looks(options, output, lambda: ask_all(requests), lambda found, height: tell(found, output, height))
    [request] = requests
    return _looks(options, output, request.ask, lambda found, height: _tell(found, output, height))


def _looks(
    options: argparse.Namespace, output: Output, look: Callable[[], T], tell: Callable[[T, int | None], int]
) -> int:
    if options.watch or options.count:
        return again_and_again(options, output, look, tell, NoAnswer)
    with output.progress("asking"):
        found = look()
    return tell(found, None)


# ---- telling
def _tell(apps: list[App], output: Output, height: int | None = None) -> int:
    """Args: height: of a terminal that is drawn anew."""
    if height is not None:
        output.draw_anew()
    for number, app in enumerate(apps):
        output.json({"type": "app", **app})
        if number:
            output.say()
        head, foot = [_heading(app), _figures(app)], [f"note: {shown(each, 200)}" for each in app["reasons"]]
        output.say(head[0], tone=tone_of(app) or "good")
        output.say(head[1])
        partitions: list[App] = app["partitions"]
        rows, room = partitions, None
        if height is not None:  # what is furthest behind first, since the rest has no room
            rows = sorted(partitions, key=lambda each: -(each["lag"] or 0))
            room = output.room(height // len(apps), *head, *foot)
        tones: list[Tone | None] = [None if each["phase"] == "owned" else "warning" for each in rows]
        told = output.table(_NAMES, map(_row, rows), room, tones) if rows else 0
        if told < len(partitions):
            output.say(f"and {count(len(partitions) - told, 'partition')} more")
        for each in foot:
            output.say(each, tone="warning")
    return 0 if all(app["live"] and app["ready"] for app in apps) else 1


def _heading(app: App) -> str:
    name = f" as {shown(app['member'])}" if app.get("member") else ""
    parts = [f"{shown(app['group'])}: {app['state']}{name}", f"up for {span(app['uptime_s'])}"]
    parts += ["live" if app["live"] else "NOT LIVE", "ready" if app["ready"] else "not ready"]
    return ", ".join([*parts, "store up" if app["store"]["up"] else "STORE DOWN"])


def _figures(app: App) -> str:
    records, load, partitions = app["records"], app["load"], app["partitions"]
    waiting = sum(each["waiting_for_claims"] for each in partitions)
    lags = [each["lag"] for each in partitions]
    known = [each for each in lags if each is not None]
    parts = [f"lag: {sum(known):,} in {count(len(known), 'partition')}"] if known else []
    unknown = len(lags) - len(known)
    if unknown or not lags:
        parts.append(f"{'' if known else 'lag: '}not known in {count(unknown, 'partition')}")
    parts.append(f"{load['in_flight']:,} in flight")
    if turns := sum(each.get("waiting_for_turn", 0) for each in partitions):
        parts.append(f"{turns:,} wait for their partition's turn")
    parts += [f"{load['running']:,} in handlers", f"{waiting:,} wait for claims", f"{records['handled']:,} handled"]
    skipped = records["suppressed_by_position"] + records["suppressed_by_key"]
    parts += [count(skipped, "duplicate"), count(records["dead_lettered"], "dead letter")]
    return ", ".join(parts)


def _row(each: App) -> list[object]:
    lowest = each["lowest"] or {}
    age = span(lowest["for_s"]) if lowest else "-"
    return [
        shown(each["partition"]),
        each["phase"],
        each["watermark"],
        each["log_end"],
        each["lag"],
        each["in_flight"],
        each["waiting_for_claims"],
        age,
        shown(lowest.get("handler", "-")),
        shown(lowest.get("waits_for", "-")),
    ]
