"""START HERE: from a command line to an exit code. Each command is `run(options, output) -> int` in another module.

Exit codes: 0 done; 1 a problem was found, or what was asked is refused; 2 the command line or a setting cannot work, or
what the command needs is not on this machine, or fails (a package, Java, the application's own module); 3 the broker,
the store or the process that is asked gave no answer; 4 warnings alone (`doctor`, `run --check`), or not all is known
(`audit`); 130 interrupted.
"""

from __future__ import annotations

import importlib.metadata
import logging
import sys
from typing import TYPE_CHECKING

from holdfast.adapters.cli import (
    audit,
    claims,
    completion,
    config,
    dead_letters,
    doctor,
    emit,
    group,
    healthy,
    lag,
    migrate,
    new,
    plan,
    reset,
    run,
    sql,
    status,
    web,
)
from holdfast.adapters.cli.exit_codes import INTERRUPTED, code_of
from holdfast.adapters.cli.options import from_environment
from holdfast.adapters.cli.output import LogLines, Output
from holdfast.adapters.cli.parser import Help, Parser
from holdfast.errors import HoldfastError, SettingError
from holdfast.printable import without_credentials

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_EPILOG = """\
exit codes: 0 done; 1 a problem was found, or refused; 2 a wrong command line or setting, a missing package or Java, or
an application that cannot be imported; 3 no answer from the broker, the store or the process; 4 warnings (doctor, run
--check), or not all is known (audit); 130 interrupted

examples:
  holdfast new billing
  holdfast run billing.main:app --processes 4
  holdfast claims show 4711 --redis redis://localhost:6379/0 --scope billing/orders
  holdfast reset --group billing --topic orders --to 2026-11-20T10:00:00Z --bootstrap localhost:9092 \\
      --redis redis://localhost:6379/0 --dry-run
  holdfast dead-letters list --topic orders.dlq --bootstrap localhost:9092
"""


#: Settings whose names are another's, and the options that they come from.
_OPTIONS = {"url": ("redis",), "address": ("namesrv",), "file": ("config",), "broker version": ("kafka", "rocketmq")}


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    whole = Parser(
        prog="holdfast",
        description="Run an application that consumes with holdfast, and look after its group: claims, positions, dead "
        "letters.",
        epilog=_EPILOG,
        formatter_class=Help,
    )
    whole.add_argument("--version", action="version", version=f"holdfast {_version()}")
    commands = whole.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for each in (
        new,
        run,
        config,
        claims,
        reset,
        dead_letters,
        group,
        status,
        web,
        healthy,
        lag,
        plan,
        doctor,
        emit,
        migrate,
        audit,
        sql,
        completion,
    ):
        each.add(commands)
    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Raises SystemExit as argparse does."""
    whole = parser()
    completion.complete(whole)
    options = whole.parse_args(arguments)
    options.command_line = list(sys.argv[1:] if arguments is None else arguments)
    if not getattr(options, "logs_itself", False):
        lines = logging.StreamHandler(sys.stderr)
        lines.setFormatter(LogLines("%(name)s: %(message)s"))
        logging.basicConfig(level=logging.DEBUG if options.debug else logging.WARNING, handlers=[lines])
    changes = getattr(options, "changes", False)
    output = Output(as_json=options.json, out=sys.stdout, err=sys.stderr, changes=changes, colours=not options.no_color)
    try:
        if getattr(options, "app", None) is not None:
            from holdfast.adapters.cli import from_app  # noqa: PLC0415 - a command loads what it uses

            from_app.take(options)
        from_environment(options)
        code: int = options.run(options, output)
        output.flush()
    except HoldfastError as error:
        if options.debug:
            raise
        output.note(f"holdfast: {_sentence(error, options)}")
        if error.docs:
            output.note(f"docs: {error.docs}")
        return code_of(error)
    except KeyboardInterrupt:
        output.note("holdfast: interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough, of a command that only looks: those that change something go on.
        output.leave()
        return 0
    return code


def _sentence(error: HoldfastError, options: argparse.Namespace) -> str:
    """An error in the words of a command line: a field of Python's by the option that sets it, and no None."""
    if not isinstance(error, SettingError):
        return str(error)
    field = error.field
    for name in (*_OPTIONS.get(field, ()), field, field.removesuffix("_s"), field.removesuffix("_timeout_s")):
        if vars(options).get(name) is not None:
            field = "--" + name.replace("_", "-")
            break
    shown = "" if error.value is None or isinstance(error.value, bool) else f"={error.value!r}"
    return without_credentials(f"{field}{shown}{f' ({error.origin})' if error.origin else ''}: {error.remedy}")


def _version() -> str:
    try:
        return importlib.metadata.version("holdfast-mq")  # the distribution; the package is holdfast
    except importlib.metadata.PackageNotFoundError:
        return "(from source, not installed)"
