"""The end of a command that changes something: what it has done is told however it ends, and after the last change."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.adapters.cli.interrupt import Interrupt
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.adapters.cli.output import Output


@contextmanager
def told_at_the_end(output: Output, tell: Callable[[str | None], None]) -> Iterator[Interrupt]:
    """Call `tell` once, with the reason why the work has ended early; None: it is done. What was raised goes on.

    A first Ctrl-C, or SIGTERM, waits until that is told and on its way to the reader.
    """
    told = False

    def end(why: str | None) -> None:
        nonlocal told
        with interrupt.held():
            if not told:
                told = True
                tell(why)
                output.flush()

    with Interrupt() as interrupt:
        try:
            yield interrupt
            end(None)
        except KeyboardInterrupt:
            end("interrupted")
            raise
        except HoldfastError as error:
            end(str(error))
            raise
        except Exception as error:
            end(repr(error))
            raise
