"""How tests wait for what others do: they look, until it is so."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.runtime import Condition

T = TypeVar("T")

#: What has not come true by then is broken: a slow machine is no failure. Nothing waits for so long where all is well.
PATIENCE_S = 120.0
_LOOK_S = 0.01


def _show_threads() -> None:
    """Where each thread stands: a wait that fails once in thousands of runs may never be seen again."""
    names = {each.ident: each.name for each in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        print(f"\nthread {names.get(ident, ident)}:", file=sys.stderr)
        traceback.print_stack(frame, file=sys.stderr)


def until(
    over: Callable[[], T | None],
    what: object = "",
    *,
    patience_s: float = PATIENCE_S,
    changed: Condition | None = None,
    meanwhile: Callable[[], object] | None = None,
    despite: tuple[type[Exception], ...] = (),
) -> T:
    """Look until it is true, and return what was seen.

    Args:
        over: is asked again and again, until what it returns is true.
        what: said where it never is; a function is asked for it then.
        patience_s: at the most.
        changed: held while `over` is asked, and waited for between two looks, but not for long: not all notify.
        meanwhile: is called between two looks, in place of a pause.
        despite: what `over` may raise as long as it is not so.

    Raises:
        AssertionError: it has not come true.
    """
    ends = time.monotonic() + patience_s
    with changed or nullcontext():
        while True:
            with suppress(*despite):
                if found := over():
                    return found
            if time.monotonic() >= ends:
                _show_threads()
                raise AssertionError((what() if callable(what) else what) or "it has not come true")
            if meanwhile is not None:
                meanwhile()
            elif changed is not None:
                changed.wait(_LOOK_S)
            else:
                time.sleep(_LOOK_S)
