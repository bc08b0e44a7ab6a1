"""Looks: a command that looks again and again, until Ctrl-C or for so many times."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, TypeVar

from holdfast.adapters.cli.exit_codes import INTERRUPTED, code_of
from holdfast.adapters.cli.interrupt import Interrupt
from holdfast.errors import HoldfastError
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from holdfast.adapters.cli.output import Output

T = TypeVar("T")


def again_and_again(
    options: argparse.Namespace,
    output: Output,
    look: Callable[[], T],
    tell: Callable[[T, int | None], int],
    away: type[HoldfastError],
) -> int:
    """Look and tell. Raises what the first look raises. Returns: the exit code of the last look, that of its
    error where it was in vain.

    Args:
        options: with `every`, in seconds, and `count`, of looks; None: until Ctrl-C.
        output: where it is told.
        look: asks.
        tell: tells what was found, and returns an exit code; with the height of a terminal that is drawn anew.
        away: what a later look may raise: it is noted, and asked again.
    """
    looks, code = 0, None
    live = sys.stdout.isatty() and not output.as_json
    with Interrupt() as interrupt:
        while True:
            next_s = SYSTEM_CLOCK.now() + options.every
            try:
                found = look()
            except KeyboardInterrupt:
                return INTERRUPTED if code is None else code
            except HoldfastError as error:
                if code is None or not isinstance(error, away):
                    raise
                code = code_of(error)
                output.note(f"holdfast: {error}")
            else:
                code = tell(found, shutil.get_terminal_size().lines if live else None)
                output.flush()
            looks += 1
            if looks == options.count or interrupt.before(next_s):
                return code
            if not live:
                output.say()
