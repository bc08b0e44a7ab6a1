"""What a signal's handler raises while the client calls back comes out of the call around it, and as it is."""

from __future__ import annotations

import _thread
import signal
import subprocess
import sys
from collections import deque
from functools import partial
from itertools import starmap
from typing import Any

import pytest

from holdfast.adapters.kafka.quirks.shielding import Shield


class TimeIsUp(Exception):
    """As Celery's: of class Exception, from a handler."""


# No broker listens there: the client calls error_cb, statistics and log some hundred times a second, so that each
# signal finds it in a callback, or meets its first line.
_PROGRAM = """
import logging, os, signal, sys, threading, time
from holdfast import MemoryClaims
from holdfast.adapters.kafka import KafkaConsumer

class TimeIsUp(Exception):
    pass

def strikes(*_):
    raise TimeIsUp

def works(*_):
    for _ in range(1000):
        pass

def token(_):
    works()
    return "token", time.time() + 0.01

class Log:
    def log(self, *_):
        works()

logging.disable()
signal.signal(signal.SIGINT, signal.default_int_handler if %(raises)s is KeyboardInterrupt else strikes)
conf = {"bootstrap.servers": "127.0.0.1:1,127.0.0.1:2", "group.id": "g", "reconnect.backoff.ms": 1,
        "reconnect.backoff.max.ms": 2, **%(callbacks)s}
loop = KafkaConsumer(conf, claims=MemoryClaims())
if %(subscribes)s:
    loop.subscribe(["t"])
raised = []
for _ in range(10):
    signals = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
    try:
        signals.start()
        while True:
            loop.poll(1.0)
    except BaseException as error:
        raised.append(type(error).__name__)
    signals.join()
assert set(raised) == {%(raises)r}, raised
signal.signal(signal.SIGINT, signal.SIG_IGN)
loop.close()
"""
_CALLBACKS = {
    "ours": "{}",
    "error_cb": "{'error_cb': works}",
    "stats_cb": "{'stats_cb': works, 'statistics.interval.ms': 1}",
    "oauth_cb": "{'oauth_cb': token, 'security.protocol': 'sasl_plaintext', 'sasl.mechanisms': 'OAUTHBEARER'}",
    "logger": "{'logger': Log(), 'log_level': 7, 'debug': 'broker'}",
}


_CASES = [(callbacks, True, "KeyboardInterrupt") for callbacks in _CALLBACKS]
_CASES += [("stats_cb", False, "KeyboardInterrupt"), ("error_cb", True, "TimeIsUp")]


@pytest.mark.parametrize(("callbacks", "subscribes", "raises"), _CASES)
def test_a_signal_that_strikes_in_a_callback_ends_the_poll_and_the_loop_may_go_on(
    callbacks: str, subscribes: bool, raises: str
) -> None:
    program = _PROGRAM % {"callbacks": _CALLBACKS[callbacks], "subscribes": subscribes, "raises": raises}
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=60.0, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class TestShield:
    def test_a_callback_gets_what_the_client_gives(self) -> None:
        came: list[tuple[object, ...]] = []
        shield = Shield()
        one, two = shield.around(lambda *args: came.append(args), 1), shield.around(lambda *args: came.append(args), 2)
        for _ in range(2):
            one("error")
            two(None, ["partitions"])
        shield.raise_kept()
        assert came == [("error",), (None, ["partitions"])] * 2

    def test_what_one_raises_is_raised_once_and_the_next_is_called(self) -> None:
        shield, came = Shield(), list[Any]()

        def fails(*args: object) -> None:
            came.append(args)
            raise TimeIsUp(len(came))

        call = shield.around(fails, 2)
        call("a", "b")
        call("c", "d")
        for number in (1, 2):
            with pytest.raises(TimeIsUp, match=str(number)):
                shield.raise_kept()
        shield.raise_kept()
        assert came == [("a", "b"), ("c", "d")]

    def test_no_argument_is_lost_to_a_signal_that_came_before(self) -> None:
        shield, came = Shield(), list[Any]()
        call = shield.around(lambda *args: came.append(args), 2)

        def strikes(*_: object) -> None:
            raise TimeIsUp

        before = signal.signal(signal.SIGUSR1, strikes)
        try:
            # No line of Python runs between the two, as in the client.
            steps: list[Any] = [partial(_thread.interrupt_main, signal.SIGUSR1), partial(call, "a", "b")]
            deque(starmap(partial.__call__, zip(steps, strict=True)), maxlen=0)
        finally:
            signal.signal(signal.SIGUSR1, before)
        with pytest.raises(TimeIsUp):
            shield.raise_kept()
        assert came == [("a", "b")]

    def test_a_callback_that_makes_the_client_call_it_once_more_is_called_inside_of_itself(self) -> None:
        shield, came = Shield(), list[Any]()

        def again(depth: int, name: str) -> None:
            came.append(("begins", depth, name))
            if depth < 3:
                call(depth + 1, name)
            if depth == 2:
                raise TimeIsUp
            came.append(("ends", depth, name))

        call = shield.around(again, 2)
        for name in ("one", "two"):
            came.clear()
            call(1, name)
            with pytest.raises(TimeIsUp):
                shield.raise_kept()
            begins = [("begins", depth, name) for depth in (1, 2, 3)]
            assert came == [*begins, ("ends", 3, name), ("ends", 1, name)]


class TestShieldOfAnAnswer:
    def test_what_the_callback_returns_and_raises_is_the_clients(self) -> None:
        def answers(asked: Any) -> Any:
            if asked == "raise":
                raise TimeIsUp
            return asked if asked < 1 else (asked, call(asked - 1))

        shield = Shield()
        call = shield.around_answer(answers, "")
        for _ in range(2):
            assert call(2) == (2, (1, 0))
            with pytest.raises(TimeIsUp):
                call("raise")
        shield.raise_kept()

    def test_a_signal_that_came_before_is_kept_and_the_answer_is_given(self) -> None:
        shield = Shield()
        call = shield.around_answer(lambda asked: f"to {asked}", "what the configuration says")

        def strikes(*_: object) -> None:
            raise TimeIsUp

        before = signal.signal(signal.SIGUSR1, strikes)
        try:
            steps: list[Any] = [partial(_thread.interrupt_main, signal.SIGUSR1), partial(call, "lost")]
            _, answer = map(partial.__call__, steps)
        finally:
            signal.signal(signal.SIGUSR1, before)
        with pytest.raises(TimeIsUp):
            shield.raise_kept()
        assert answer == "to what the configuration says"
        assert call("it") == "to it"
