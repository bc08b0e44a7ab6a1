"""`holdfast run`: starts an application, or says before a deployment whether it would start."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.adapters.cli import options as shared
from holdfast.adapters.cli.arguments import at_least_0, port, processes, span_s, token
from holdfast.adapters.cli.running.run_options import COLLECTORS, LEVELS, OPTIONS, settle

if TYPE_CHECKING:
    from holdfast.adapters.cli.output import Output

_EXAMPLE = """\
  holdfast run billing.main:app
  holdfast run billing.main:app --processes 4 --static --port 9464
  holdfast run billing.main:make_app --factory --port 9464
  holdfast run billing.main:app --check
  holdfast run billing.main:app --reload

SIGTERM or Ctrl-C: drain, commit, leave; a second one is faster. HOLDFAST_RUN_PROCESSES=4 in the environment, or
processes = 4 in the table [run] of the file, is --processes 4; the command line wins. `holdfast config` shows all.
"""

#: What the command line does not say, the environment or the file may: `running/run_options.py`.
_UNSAID = argparse.SUPPRESS


def add(commands: shared.Commands) -> None:
    """The command."""
    made = shared.command(commands, "run", "run an application until SIGTERM or Ctrl-C", _EXAMPLE)
    add_application(made)
    add_config(made)
    made.add_argument(
        "--check",
        action="store_true",
        help="check whether the application would start, with one line per check, and end",
    )
    made.add_argument(
        "--reload",
        action="store_true",
        help="for development: drain and begin anew when a .py, .toml or .env file below this folder changes",
    )
    made.add_argument("--offline", action="store_true", help="with --check: ask neither the broker nor the store")
    several = made.add_argument_group("several processes", argument_default=_UNSAID)
    several.add_argument(
        "--processes", type=processes, metavar="N", help="number of processes, under one supervisor (default: 1)"
    )
    several.add_argument(
        "--static",
        nargs="?",
        const="",
        metavar="PREFIX",
        help="static members: each process comes back under its own name, PREFIX-0, PREFIX-1, ... (without a PREFIX: "
        "this host's name); behind MODULE:APP",
    )
    several.add_argument(
        "--restarts",
        type=at_least_0,
        metavar="N",
        help="restarts of a process in a row until the supervisor gives up; the count restarts after a minute of "
        f"running (default: {OPTIONS['restarts'][1]})",
    )
    several.add_argument(
        "--grace",
        type=span_s,
        metavar="TIME",
        help="the time that a stop may take in all, such as 25s; processes that still run then are killed (default: "
        "as long as the app's drain_timeout_s and linger_timeout_s say)",
    )
    seen = made.add_argument_group("how it is seen", argument_default=_UNSAID)
    seen.add_argument(
        "--port",
        type=port,
        metavar="N",
        help="serve a page at /, and /live, /ready, /status and /metrics, at this port; 0: any free port; several "
        "processes: N, N+1, ...",
    )
    seen.add_argument("--host", help=f"the address to listen at (default: {OPTIONS['host'][1]})")
    seen.add_argument(
        "--token",
        type=token,
        metavar="TEXT",
        help="/ and /status ask for it; better HOLDFAST_RUN_TOKEN in the environment, since all users of a machine see "
        "command lines (default: none, and / is served at the loopback alone)",
    )
    seen.add_argument(
        "--health-file",
        metavar="FILE",
        help="write a file for `holdfast healthy`; several processes: FILE.0, FILE.1, ...",
    )
    seen.add_argument(
        "--log-level",
        choices=LEVELS,
        help="level of the lines on standard error, unless the application sets up logging itself (default: "
        f"{OPTIONS['log_level'][1]})",
    )
    made.add_argument(
        "--gc",
        choices=COLLECTORS,
        default=_UNSAID,
        help="frozen: Python's collector of reference cycles leaves out what is there when the app joins its group, "
        f"and runs less often; default: it runs as in any program (default: {OPTIONS['gc'][1]})",
    )
    made.set_defaults(run=run, changes=True, logs_itself=True)


def add_application(made: argparse.ArgumentParser, *, required: bool = True) -> None:
    """MODULE:APP, --factory and --app-dir."""
    made.add_argument(
        "application",
        nargs=None if required else "?",
        metavar="MODULE:APP",
        help="such as billing.main:app; the attribute may have dots",
    )
    made.add_argument("--factory", action="store_true", help="APP is a function that returns the app")
    made.add_argument(
        "--app-dir",
        default=".",
        metavar="DIR",
        help="the folder in which modules are searched first (default: this folder)",
    )


def add_config(made: argparse.ArgumentParser) -> None:
    """--config."""
    made.add_argument(
        "--config",
        metavar="FILE",
        help="settings as TOML (default: holdfast.toml, or [tool.holdfast] of pyproject.toml, in this folder)",
    )


def run(options: argparse.Namespace, output: Output) -> int:
    """Run or check it. Raises SettingError: an option of the environment or the file cannot be."""
    settle(options, options.config)
    if options.check:
        from holdfast.adapters.cli.running.checks import check  # noqa: PLC0415 - a command loads what it uses

        return check(options, output)
    from holdfast.adapters.cli.running.lifeline import Lifeline  # noqa: PLC0415 - as above
    from holdfast.adapters.cli.running.process import run_here  # noqa: PLC0415 - as above

    if (lifeline := Lifeline.of_this_process()) is not None:
        return run_here(options, lifeline)
    if options.processes == 1 and not options.reload:
        return run_here(options)
    return _supervise(options)


def _supervise(options: argparse.Namespace) -> int:
    from holdfast.adapters.cli.running.changes import watched  # noqa: PLC0415 - as above
    from holdfast.adapters.cli.running.child import Child  # noqa: PLC0415 - as above
    from holdfast.adapters.cli.running.process import set_up_logging  # noqa: PLC0415 - as above
    from holdfast.adapters.cli.running.supervisor import Supervisor  # noqa: PLC0415 - as above

    set_up_logging(options)
    return Supervisor(
        lambda ordinal: Child(options.command_line, ordinal),
        options.processes,
        restarts=options.restarts,
        grace_s=options.grace,
        changes=watched(options.app_dir) if options.reload else None,
    ).run()
