"""`holdfast healthy`: whether the file that an app writes says that it lives, for probes that run a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.adapters.cli import options as shared
from holdfast.adapters.cli.arguments import seconds
from holdfast.adapters.cli.output import span
from holdfast.timing import wall_ms

if TYPE_CHECKING:
    import argparse

    from holdfast.adapters.cli.options import Commands
    from holdfast.adapters.cli.output import Output

_EXAMPLE = """\
  holdfast healthy /run/billing.health --max-age 30
  holdfast healthy /run/billing.health --ready
  holdfast healthy /run/billing.health.0 /run/billing.health.1

exit code 1: the app is not live (with --ready: not ready), or the file is not there, too old, or no such file
"""


def add(commands: Commands) -> None:
    """The command and its options."""
    made = shared.command(commands, "healthy", "whether an app is alive, by the file that it writes", _EXAMPLE)
    made.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        type=Path,
        help="what the app gives to write_health(...); several (`holdfast run --processes`): all apps have to be live",
    )
    made.add_argument(
        "--max-age", type=seconds, default=30.0, metavar="S", help="seconds since it was written (default: %(default)g)"
    )
    made.add_argument("--ready", action="store_true", help="whether it is ready, too")
    made.set_defaults(run=run)


def run(options: argparse.Namespace, output: Output) -> int:
    """Look at each, and tell. All are looked at: who is not well is told with the others."""
    return max([_judge(file, options, output) for file in options.files])


def _judge(file: Path, options: argparse.Namespace, output: Output) -> int:
    why, called = "", f"{file}: " if len(options.files) > 1 else ""
    try:
        age_s = (wall_ms() - file.stat().st_mtime_ns // 1_000_000) / 1000
        found: Any = json.loads(file.read_text(encoding="utf-8"))
        live, ready, reasons = bool(found["live"]), bool(found["ready"]), list(map(str, found["reasons"]))
    except OSError as error:
        why = f"cannot be read ({error.strerror}): the app has not written it yet, or writes another file"
    except (ValueError, TypeError, LookupError):
        why = "is not what write_health() writes: name that file"
    else:
        if age_s > options.max_age:
            why = f"was written {span(age_s)} ago: the process has ended or stands still, or its app had failed"
        elif -age_s > options.max_age:
            why = f"was written {span(-age_s)} in the future: the clock was set back, and the app has not written since"
        output.json(
            {"type": "health", "file": str(file), "live": live, "ready": ready, "age_s": age_s, "reasons": reasons}
        )
        if not why and live and (ready or not options.ready):
            output.say(f"{called}{'ready' if ready else 'live, not ready'}, {span(age_s)} ago")
            return 0
        why = "; ".join([*([why] if why else []), *reasons]) or "says no, without a reason"
    output.note(f"holdfast: {file}: {why}")
    return 1
