"""The end of a command that changes something: what it has done is told however it ends, and after the last change."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def told_at_the_end(tell: Callable[[str | None], None]) -> Iterator[None]:
    """Call `tell` once, with the reason why the work has ended early; None: it is done. What was raised goes on."""
    try:
        yield
    except KeyboardInterrupt:
        tell("interrupted")
        raise
    except HoldfastError as error:
        tell(str(error))
        raise
    except Exception as error:
        tell(repr(error))
        raise
    tell(None)
