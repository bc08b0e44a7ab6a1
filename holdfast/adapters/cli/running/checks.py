"""`holdfast run --check`: what would keep an app from starting, before a deployment. A line a check."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from holdfast.adapters.cli.output import TONES, count, shown
from holdfast.adapters.cli.running.application import load
from holdfast.adapters.cli.running.check import Check, code_of
from holdfast.adapters.cli.running.in_force import apply, in_force, overrides
from holdfast.adapters.cli.running.process import health_file_of, make_one_of, port_of
from holdfast.adapters.cli.running.server_checks import of_source, of_store
from holdfast.adapters.watching.endpoint import serve
from holdfast.adapters.watching.health_file import check_health_file
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from holdfast.adapters.cli.output import Output
    from holdfast.plugin.app import Holdfast


def check(options: argparse.Namespace, output: Output) -> int:
    """Check it, and tell. Raises SettingError, ImportFailed: there is no app to look at."""
    app = load(options.application, factory=options.factory, folder=options.app_dir)
    results = []
    for each in _checks(app, options):
        results.append(each.result)
        output.json({"type": "check", **asdict(each)})
        output.say(f"{each.result:<8}{each.check:<16}{shown(each.detail, 2_000)}", 24, TONES.get(each.result))
        sys.stdout.flush()  # a server may take its time to answer
    return code_of(results)


def _checks(app: Holdfast, options: argparse.Namespace) -> Iterator[Check]:
    parts = app.parts
    yield Check("import", "ok", f"{options.application} is the app of group {parts.source.group}")
    yield _settings(app, options)
    yield from _processes(app, options)
    yield from _seen(app, options)
    yield from _handlers(app)
    parts = app.parts  # by the settings that are in force now
    yield from of_source(parts, options.timeout, offline=options.offline)
    if not options.offline:
        yield of_store(parts)


def _settings(app: Holdfast, options: argparse.Namespace) -> Check:
    try:
        chosen = overrides(options.config)
        apply(app, chosen)
    except HoldfastError as error:
        return Check("settings", "error", str(error))
    others = [each for each in in_force(app.parts.settings, chosen) if each.origin != "default"]
    told = ", ".join(f"{each.name}={each.value} from {each.origin}" for each in others)
    return Check("settings", "ok", told or "all as by default")


def _processes(app: Holdfast, options: argparse.Namespace) -> Iterator[Check]:
    """Take a run's steps, as its first process."""
    try:
        make_one_of(app, options, 0)
    except HoldfastError as error:
        yield Check("processes", "error", str(error))
        return
    if options.processes > 1 or options.static is not None:
        yield Check("processes", "ok", f"{options.processes}")


def _seen(app: Holdfast, options: argparse.Namespace) -> Iterator[Check]:
    """Ports and health files of all processes, as a run opens them; a file that another app writes stays as it is."""
    for ordinal in range(options.processes):
        if (port := port_of(options, ordinal)) is not None:
            try:
                serve(app, host=options.host, port=port, token=options.token).close()
            except HoldfastError as error:
                yield Check("port", "error", str(error))
            else:
                yield Check("port", "ok", f"{options.host}:{port or 'any'}")
        if (file := health_file_of(options, ordinal)) is not None:
            try:
                check_health_file(file)
            except HoldfastError as error:
                yield Check("health file", "error", str(error))
            else:
                yield Check("health file", "ok", file)


def _handlers(app: Holdfast) -> Iterator[Check]:
    try:
        app.check()
    except HoldfastError as error:
        yield Check("handlers", "error", str(error))
        return
    handlers = app.parts.routes.handlers
    told = "; ".join(f"{', '.join(each.topics)} by {each.name}" for each in handlers)
    yield Check("handlers", "ok", f"{count(len(handlers), 'handler')}: {told}")
