"""The thread for what may have to wait."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.upkeep import Upkeep
from holdfast.errors import SourceUnavailable

if TYPE_CHECKING:
    from holdfast.timing import Deadline

PATIENCE_S = 60.0


def test_what_goes_wrong_is_tried_again_and_keeps_nothing_else_from_being_done() -> None:
    tried, done = threading.Semaphore(0), threading.Semaphore(0)

    def fail(_: Deadline) -> None:
        tried.release()
        raise SourceUnavailable("away")

    def break_(_: Deadline) -> None:
        tried.release()
        raise ZeroDivisionError

    upkeep = Upkeep("g")
    upkeep.add("fails", fail, 0.01)
    upkeep.add("breaks", break_, 0.01)
    upkeep.add("works", lambda _: done.release(), 0.01)
    upkeep.start()
    for _ in range(4):
        assert tried.acquire(timeout=PATIENCE_S)
        assert done.acquire(timeout=PATIENCE_S)
    upkeep.stop(PATIENCE_S)
    upkeep.stop(PATIENCE_S)


def test_what_is_wanted_soon_does_not_wait_for_its_time() -> None:
    done = threading.Event()
    upkeep = Upkeep("g")
    duty = upkeep.add("rare", lambda _: done.set(), 3600.0)
    upkeep.start()
    upkeep.soon(duty)
    assert done.wait(PATIENCE_S)
    upkeep.stop(PATIENCE_S)


def test_a_duty_may_end_the_thread() -> None:
    done = threading.Semaphore(0)

    def last(_: Deadline) -> None:
        upkeep.stop(PATIENCE_S)
        done.release()

    upkeep = Upkeep("g")
    upkeep.add("works", last, 0.01)
    upkeep.start()
    assert done.acquire(timeout=PATIENCE_S)
    upkeep.stop(PATIENCE_S)
    assert not done.acquire(blocking=False)
