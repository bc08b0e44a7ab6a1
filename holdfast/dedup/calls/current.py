"""The claim under which a body runs, for the body and whatever it calls."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentClaim:
    """What the body of an idempotent function may ask. Any thread."""

    #: The function's name in the store.
    name: str
    #: The keys that it is run for, as holdfast.dedup.keys writes them ("s:4711"); one, unless it takes batches.
    keys: tuple[str, ...]
    #: For each key: higher than that of each earlier run for this key. 0 = without protection, see store_down="open".
    fences: tuple[int, ...]
    #: The start of the process that holds them; "" = without protection.
    session: str
    live: Callable[[], bool]

    @property
    def fence(self) -> int:
        """The highest of `fences`; the key's own, where there is one.

        A sink that remembers the highest fence of a key, and refuses what comes with a lower one, cannot be written by
        a process that was taken for dead and wakes up.
        """
        return max(self.fences)

    @property
    def cancelled(self) -> bool:
        """True once others may run the body for these keys: stop when you can, the result may not count.

        So it is when this process' session was lost: frozen, or without Redis, for longer than the lease. Does not
        block.
        """
        return not self.live()


#: Set around each body by the thread or task that runs it.
CURRENT: ContextVar[CurrentClaim | None] = ContextVar("holdfast_current_claim", default=None)


def current_claim() -> CurrentClaim | None:
    """The claim under which this code runs, the innermost of several; None outside of idempotent functions.

    Follows the context: tasks started in a body and `asyncio.to_thread` have it, a thread of your own has not.
    """
    return CURRENT.get()
