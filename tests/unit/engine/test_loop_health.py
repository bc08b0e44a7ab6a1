"""A loop that is not ours, as probes see it: from other threads, while it is inside of a call, outside, or hangs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import SourceError
from holdfast.plugin.own_loop.loop_health import LoopHealth
from tests.harness.waiting import PATIENCE_S, until
from tests.unit.engine.test_driven import Loops, end, loops, take

if TYPE_CHECKING:
    from holdfast.plugin.observe.health import Health
    from holdfast.plugin.own_loop.driven import Driven

__all__ = ["loops"]


def elsewhere(health: LoopHealth, silent_s: float = 60.0) -> Health:
    """As a probe asks: in another thread."""
    found: list[Health] = []
    thread = threading.Thread(target=lambda: found.append(health.judge(stall_s=300.0, silent_s=silent_s)))
    thread.start()
    thread.join(PATIENCE_S)
    [one] = found
    return one


def begun(loops: Loops) -> Driven:
    loops.produce("a", "b")
    return loops.loop()


def test_a_loop_that_is_with_its_records_lives_until_the_broker_takes_them_away(loops: Loops) -> None:
    loop = begun(loops)
    assert take(loop, 2, PATIENCE_S) == ["a", "b"]
    until(lambda: loop.away_s > 1e-9)  # its next look at the client would be due in 20 ms
    for silent_s, may_be_away_s in ((1e-9, 300.0), (60.0, 1e-9)):
        health = elsewhere(LoopHealth(loop, may_be_away_s), silent_s)
        assert (health.live, health.ready) == (True, True)
    health = elsewhere(LoopHealth(loop, 1e-9), 1e-9)
    assert (health.live, health.ready) == (False, False)
    assert health.reasons[0].startswith("the application's loop has not polled for ")


def test_a_loop_that_waits_for_records_answers(loops: Loops) -> None:
    loop = loops.loop()
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            take(loop, timeout_s=0.5)

    thread = threading.Thread(target=run)
    thread.start()
    health = LoopHealth(loop, 1e-9)
    for _ in range(5):
        judged = elsewhere(health)
        assert (judged.live, judged.ready, judged.reasons) == (True, True, ())
    over.set()
    thread.join(PATIENCE_S)


def test_a_loop_that_has_ended_says_so(loops: Loops) -> None:
    loop = begun(loops)
    end(loop)
    health = elsewhere(LoopHealth(loop, 1e-9), 1e-9)
    assert (health.live, health.ready, health.reasons) == (True, False, ("the app has stopped",))


def test_a_loop_whose_calls_raise_what_the_consumer_has_failed_with_does_not_live(loops: Loops) -> None:
    """Whatever the loop makes of it, as many do that catch all errors and go on: only a new consumer helps."""
    loop = begun(loops)
    health = LoopHealth(loop, 300.0)
    assert take(loop, 2, PATIENCE_S) == ["a", "b"]
    assert elsewhere(health).live
    loop.parts.stopping.fail(SourceError("the log cannot be read"))
    for _ in range(2):
        with pytest.raises(SourceError, match="the log cannot be read"):
            take(loop)
        judged = elsewhere(health)
        assert (judged.live, judged.ready) == (False, False)
        assert judged.reasons[0] == "the app has failed with SourceError: the log and snapshot().error say why"
