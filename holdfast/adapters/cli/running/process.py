"""One process that runs an app: logging, the app, its endpoint and health file, and its loop until it is to stop."""

from __future__ import annotations

import errno
import gc
import logging
import os
import signal
import socket
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from holdfast.adapters.cli.exit_codes import USAGE, code_of
from holdfast.adapters.cli.output import LogLines
from holdfast.adapters.cli.running.application import load
from holdfast.adapters.cli.running.in_force import apply, overrides
from holdfast.adapters.cli.running.lifeline import CLOSE_S
from holdfast.adapters.cli.running.run_options import FROZEN
from holdfast.adapters.cli.running.sources import fixed_static_id, why_not_static
from holdfast.adapters.watching.endpoint import serve
from holdfast.adapters.watching.health_file import write_health
from holdfast.errors import HoldfastError, SettingError, StaticIdTaken
from holdfast.plugin.overrides import PROCESS

#: The collector runs when so many more objects were made than let go; Python's default is 700 to 2,000.
_OBJECTS = 10_000

if TYPE_CHECKING:
    import argparse

    from holdfast.adapters.cli.running.lifeline import Lifeline
    from holdfast.plugin.app import Holdfast


def run_here(options: argparse.Namespace, lifeline: Lifeline | None = None) -> int:
    """Load the app and run it until a signal, its supervisor or its own stop. Raises HoldfastError, and what the app
    raises.

    Args:
        options: of the command line.
        lifeline: to the supervisor; None: nobody supervises it.
    """
    try:
        _run(options, lifeline)
    except Exception as error:
        if lifeline is not None:
            lifeline.tell(type="failed", why=type(error).__name__, again=_again(error))
        raise
    return 0


def _again(error: Exception) -> bool:
    """Whether a restart may help: not where the program or its settings have to change, nor where another process has
    this one's name, which would be thrown out in its turn. A port that is taken may be free again: by a process that
    still drains, or by what one that was killed had started."""
    if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE:
        return True
    final = isinstance(error, HoldfastError) and (code_of(error) == USAGE or isinstance(error, StaticIdTaken))
    return not final


def _run(options: argparse.Namespace, lifeline: Lifeline | None) -> None:
    ordinal = 0 if lifeline is None else lifeline.ordinal
    os.environ[PROCESS] = str(ordinal)  # for the app: a client's name, a port of its own
    chosen = overrides(options.config)
    app = load(options.application, factory=options.factory, folder=options.app_dir)
    apply(app, chosen)
    set_up_logging(options, "" if lifeline is None else f"[{ordinal}] ")
    make_one_of(app, options, ordinal)
    app.check()
    if options.gc == FROZEN:
        app.on_startup(freeze)  # behind the application's own
    with ExitStack() as stack:
        watch(app, options, ordinal, stack)
        if lifeline is None:
            app.run()
        else:
            _run_supervised(app, lifeline)


def freeze() -> None:
    """Keep Python's collector of reference cycles from what will stay as long as the process, and let it run less
    often: it would look at all of that again and again, while records make no cycles."""
    gc.collect()
    gc.freeze()
    young, *older = gc.get_threshold()
    if 0 < young < _OBJECTS:  # 0: the application has switched it off
        gc.set_threshold(_OBJECTS, *older)


def make_one_of(app: Holdfast, options: argparse.Namespace, ordinal: int) -> None:
    """Make it the app of one of the processes that are asked for. For a run and for its check.

    Raises SettingError: they would get in each other's way, or its source cannot have the name.
    """
    if options.static is not None:
        name(app, static_id(options.static, ordinal))
    elif options.processes > 1:
        check_names(app, options.processes)
    if options.processes > 1 and (use := getattr(app.parts.source, "use_process_number", None)) is not None:
        use(ordinal)


def _run_supervised(app: Holdfast, lifeline: Lifeline) -> None:
    settings, stops = app.parts.fitted, Stops(app)
    stop_s = settings.drain_s + settings.linger_timeout_s + CLOSE_S
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: stops.signalled(signal.Signals(number)))
    lifeline.serve(stops.ask, stops.hurry, stop_s)
    lifeline.tell(type="loaded", stop_s=stop_s)
    app.run(install_signal_handlers=False)


class Stops:
    """Stops of a supervised app: by its supervisor, and by somebody who signals this process. Each may ask, and that is
    one stop: only who asks twice hurries it. Any thread, and any signal handler."""

    def __init__(self, app: Holdfast) -> None:
        self._app, self._signals = app, 0
        #: Who takes it is the first. pop() is one step: there is no lock that a signal handler could wait for.
        self._first = [True]

    def ask(self, why: str) -> None:
        """Drain and leave, if nobody has asked before."""
        try:
            self._first.pop()
        except IndexError:
            return
        self._app.stop(why=why)

    def hurry(self) -> None:
        """Drain no longer."""
        self.ask("hurry")
        self._app.stop()

    def signalled(self, number: signal.Signals) -> None:
        """Answer a signal: the second one hurries."""
        self._signals += 1
        if self._signals == 1:
            self.ask(number.name)
        else:
            self.hurry()


def static_id(prefix: str, ordinal: int) -> str:
    """The name of a process. An empty prefix: this host's name."""
    return f"{prefix or socket.gethostname()}-{ordinal}"


def name(app: Holdfast, static_id: str) -> None:
    """Give an app's source its name. Raises SettingError: it takes none, or has another."""
    source = app.parts.source
    use = getattr(source, "use_static_id", None)
    if use is None:
        why = why_not_static(source)
        remedy = f"{type(source).__name__} has no static members{f' ({why})' if why else ''}: leave it out"
        raise SettingError("--static", static_id, remedy)
    use(static_id)


def check_names(app: Holdfast, processes: int) -> None:
    """Raises SettingError: all processes would have one static id, and throw each other out."""
    if (static_id := fixed_static_id(app.parts.source)) is not None:
        raise SettingError(
            "--processes",
            processes,
            f"each process would be the static member {static_id!r}: say --static and leave static_id out of the "
            "source, or give it a function that reads the environment variable HOLDFAST_PROCESS",
        )


def set_up_logging(options: argparse.Namespace, who: str = "") -> None:
    """Lines on standard error, unless the application has set up logging when it was imported."""
    level = "debug" if options.debug else options.log_level
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(LogLines(f"%(asctime)s %(levelname)s {who}%(name)s: %(message)s", theirs=True))
    logging.basicConfig(level=level.upper(), handlers=[lines])


def watch(app: Holdfast, options: argparse.Namespace, ordinal: int, stack: ExitStack) -> None:
    """Open the endpoint and write the health file, as far as asked; of several processes each has its own. Raises
    SettingError."""
    if (port := port_of(options, ordinal)) is not None:
        stack.enter_context(serve(app, host=options.host, port=port, token=options.token))
    if (file := health_file_of(options, ordinal)) is not None:
        stack.enter_context(write_health(file, app))


def port_of(options: argparse.Namespace, ordinal: int) -> int | None:
    """Where the endpoint of that process listens; 0 = at any port, None = it has none."""
    port: int | None = options.port
    return port + ordinal if port else port


def health_file_of(options: argparse.Namespace, ordinal: int) -> str | None:
    """Which file that process writes; None = none."""
    if options.health_file is None:
        return None
    return f"{options.health_file}.{ordinal}" if options.processes > 1 else str(options.health_file)
