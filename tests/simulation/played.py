"""One function as a whole world, for tests of the scheduler."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.testing.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.runtime import Runtime


@contextmanager
def world(seed: int = 1, *, jitter: bool = True, yield_odds: float = 0.01) -> Iterator[Scheduler]:
    """A scheduler, which is ended at the end of the block. Fails if a task ended with an error."""
    scheduler = Scheduler(seed, jitter=jitter, yield_odds=yield_odds)
    try:
        yield scheduler
    finally:
        scheduler.end()
    assert not scheduler.errors, scheduler.errors[0].trace


def run_all(scheduler: Scheduler, *, for_s: float = 1000.0) -> None:
    """Run until nothing is left to do, for at most so many virtual seconds."""
    scheduler.run(lambda: False, scheduler.now + for_s)


def played(main: Callable[[Runtime], None], seed: int = 1, *, yield_odds: float = 0.01) -> Scheduler:
    """A world of one process whose first thread is `main`, run until nothing is left to do."""
    with world(seed, yield_odds=yield_odds) as scheduler:
        process = scheduler.process("only")
        process.spawn(lambda: main(process.runtime), "main")
        run_all(scheduler)
    return scheduler
