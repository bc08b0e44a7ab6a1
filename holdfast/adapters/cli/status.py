"""`holdfast status`: what a running process tells of its apps by its HTTP endpoint, once or again and again."""

from __future__ import annotations

import json
import os
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from holdfast.adapters.cli import options as shared
from holdfast.adapters.cli.arguments import at_least_1, seconds, token
from holdfast.adapters.cli.output import count, shown, span
from holdfast.adapters.cli.watch_loop import again_and_again
from holdfast.errors import HoldfastError, SettingError
from holdfast.plugin.overrides import RUN_PREFIX
from holdfast.plugin.secret_names import MASK

if TYPE_CHECKING:
    import argparse

    from holdfast.adapters.cli.options import Commands
    from holdfast.adapters.cli.output import Output, Tone

_EXAMPLE = """\
  holdfast status http://127.0.0.1:9464
  holdfast status localhost:9464 --watch

exit code 1: an app is not live or not ready; 3: no answer
"""
_PORT = 9464
_TOKEN = f"{RUN_PREFIX}TOKEN"
_NAMES = ("PARTITION", "PHASE", "OFFSET", "END", "LAG", "IN FLIGHT", "CLAIMS", "OLDEST", "HANDLER", "WAITS FOR")
#: Lines of a screen beside its tables and sentences: how many rows are left out, a blank one, the cursor's.
_FRAME = 3
App = dict[str, Any]


class NoAnswer(HoldfastError):
    """Nobody answers, or who answers is not holdfast."""

    retriable = True


def add(commands: Commands) -> None:
    """The command and its options."""
    made = shared.command(commands, "status", "what a running process is doing, partition by partition", _EXAMPLE)
    made.add_argument("url", metavar="URL", help="the address at which its serve(...) listens")
    made.add_argument("--watch", action="store_true", help="repeat until Ctrl-C")
    made.add_argument(
        "--every", type=seconds, default=2.0, metavar="S", help="seconds between two looks (default: %(default)g)"
    )
    made.add_argument("--count", type=at_least_1, metavar="N", help="end after so many looks")
    made.add_argument(
        "--token",
        type=token,
        metavar="TEXT",
        help=f"the endpoint's, if it has one (default: {_TOKEN} in the environment)",
    )
    made.set_defaults(run=run)


def run(options: argparse.Namespace, output: Output) -> int:
    """Ask, and tell. Raises SettingError, NoAnswer."""
    if not options.watch and not options.count:
        with output.progress("asking the process"):
            apps = _ask(options)
        return _tell(apps, output)
    return again_and_again(
        options, output, lambda: _ask(options), lambda apps, height: _tell(apps, output, height), NoAnswer
    )


# ---- asking
def _ask(options: argparse.Namespace) -> list[App]:
    said: str = options.url
    try:
        parts = urlsplit(said if "://" in said else f"http://{said}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = parts = None
    if parts is None or not host or parts.scheme not in ("http", "https"):
        raise SettingError("url", said, "give http://HOST:PORT, where the process's serve(...) listens")
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    asked = kind(host, port or (None if "://" in said else _PORT), timeout=options.timeout)
    where = f"{host}:{asked.port}"
    given = options.token or os.environ.get(_TOKEN, "").strip()
    headers = {"Authorization": f"Bearer {given}"} if given else {}
    try:
        asked.request("GET", f"{parts.path.rstrip('/').removesuffix('/status')}/status", headers=headers)
        answer = asked.getresponse()
        wants_token = answer.status == HTTPStatus.UNAUTHORIZED
        found = {"apps": []} if wants_token else json.loads(answer.read())
        apps = [{**each, "partitions": list(each["partitions"])} for each in found["apps"]]
    except OSError as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise NoAnswer(
            f"no process answers at {where} ({why}): check the address, that the process runs, and that it calls "
            "holdfast.adapters.watching.serve(app, port=...)"
        ) from error
    except (HTTPException, ValueError, TypeError, LookupError) as error:
        raise NoAnswer(
            f"the server at {where} is not holdfast's endpoint: name the port that serve(app, port=...) listens at"
        ) from error
    finally:
        asked.close()
    if wants_token:
        why = f"{where} asks for its token: give it, or set {_TOKEN} in the environment"
        raise SettingError("token", MASK if given else None, why)
    return apps


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
        output.say(head[0], tone=_tone(app))
        output.say(head[1])
        partitions: list[App] = app["partitions"]
        rows, room = partitions, None
        if height is not None:  # what is furthest behind first, since the rest has no room
            rows = sorted(partitions, key=lambda each: -(each["lag"] or 0))
            room = height // len(apps) - output.height_of(*head, *foot) - _FRAME
        tones: list[Tone | None] = [None if each["phase"] == "owned" else "warning" for each in rows]
        told = output.table(_NAMES, map(_row, rows), room, tones) if rows else 0
        if told < len(partitions):
            output.say(f"and {count(len(partitions) - told, 'partition')} more")
        for each in foot:
            output.say(each, tone="warning")
    return 0 if all(app["live"] and app["ready"] for app in apps) else 1


def _tone(app: App) -> Tone:
    if not app["live"] or not app["store"]["up"]:
        return "bad"
    return "good" if app["ready"] else "warning"


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
