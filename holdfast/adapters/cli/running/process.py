"""One process that runs an app: logging, the app, its endpoint and health file, and its loop until a signal."""

from __future__ import annotations

import logging
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from holdfast.adapters.cli.running.application import load
from holdfast.adapters.cli.running.in_force import apply, overrides
from holdfast.adapters.watching.endpoint import serve
from holdfast.adapters.watching.health_file import write_health

if TYPE_CHECKING:
    import argparse

    from holdfast.plugin.app import Holdfast

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def run_here(options: argparse.Namespace) -> int:
    """Load the app and run it until SIGTERM, SIGINT or its own stop. Raises HoldfastError, and what the app raises."""
    chosen = overrides(options.config)
    app = load(options.application, factory=options.factory, folder=options.app_dir)
    apply(app, chosen)
    set_up_logging(options)
    app.check()
    with ExitStack() as stack:
        watch(app, options, stack)
        app.run()
    return 0


def set_up_logging(options: argparse.Namespace) -> None:
    """Lines on standard error, unless the application has set up logging when it was imported."""
    level = "debug" if options.debug else options.log_level
    logging.basicConfig(level=level.upper(), format=_FORMAT, stream=sys.stderr)


def watch(app: Holdfast, options: argparse.Namespace, stack: ExitStack) -> None:
    """Open the endpoint and write the health file, as far as asked. Raises SettingError."""
    if options.port is not None:
        stack.enter_context(serve(app, host=options.host, port=options.port))
    if options.health_file is not None:
        stack.enter_context(write_health(options.health_file, app))
