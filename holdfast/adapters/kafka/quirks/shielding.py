"""Shields for the client's callbacks: they keep an exception that a signal handler raises (Ctrl-C, a job's time limit).

- What the binding does: Python runs a signal handler in the next line of Python. While the client waits for its brokers
  this is the first line of a callback. The binding goes on and calls other callbacks with the exception set: the poll
  raises a SystemError that does not name the exception, or nothing at all (confluent-kafka-python issues 865 and 1708,
  both open).
- Seen with confluent-kafka 2.6 to 2.16.
- What holdfast does: a `try` inside a function is too late, because the handler runs before its first line. The client
  therefore gets callables without a Python frame of their own. They send their arguments to a generator that waits
  inside of a `try`. A callback may be called again inside of itself (an error_cb that polls): a running generator can
  be sent nothing, so a second generator waits. The `__call__` of a class picks the generator, which the interpreter
  looks up without a frame.
- It can go when the binding stops at the first callback that raises, and raises that exception.
- Test: tests/unit/test_kafka_shielding.py.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

#: Exceptions that are kept at most: one for each press of Ctrl-C, for example.
_KEPT = 16
_BEGIN = object()


class NoLog:
    """A client's logger that drops its lines."""

    log = "".format


class Shield:
    """Wraps the callbacks of one client. Used in the thread that polls the client, which runs them."""

    def __init__(self) -> None:
        self._kept: deque[BaseException] = deque(maxlen=_KEPT)

    def around(self, call: Callable[..., object], arguments: int) -> Callable[..., Any]:
        """Wrap a callback whose result the client does not use. No exception leaves it.

        Args:
            call: the callback.
            arguments: how many arguments it gets.
        """
        turns = _turns()
        turns.__call__ = _begun(_waiting(call, arguments, self._kept, turns))
        # max() passes its arguments to the generator one by one; all answers are equal, so the comparison has no
        # effect. A signal that came while the client waited raises at _BEGIN, and no argument is lost by it.
        return partial(max, _BEGIN, key=turns())

    def around_answer(self, call: Callable[[Any], object], otherwise: object) -> Callable[[Any], Any]:
        """Wrap a callback that gets one argument, and whose result the client uses. Exceptions of `call` leave it.

        Args:
            call: the callback.
            otherwise: the argument for `call`, if a signal has made the client's argument get lost.
        """
        turns = _turns()
        turns.__call__ = _begun(_answering(call, otherwise, self._kept, turns))
        answers: Callable[[Any], Any] = turns()
        return answers

    def keep(self, error: BaseException) -> None:
        """Keep an exception, to be raised after the poll."""
        self._kept.append(error)

    def raise_kept(self) -> None:
        """Raise the oldest kept exception. Called after each call of the client that may run callbacks."""
        if self._kept:
            raise self._kept.popleft()


def _turns() -> Any:  # noqa: ANN401 - a class that gets its `__call__` again and again
    return type("_Turns", (), {})


def _begun(generator: Generator[Any, object, None]) -> Callable[[object], Any]:
    next(generator)
    return generator.send


def _waiting(
    call: Callable[..., object],
    arguments: int,
    kept: deque[BaseException],
    turns: Any,  # noqa: ANN401 - see above
) -> Generator[int, object, None]:
    given: list[object] = []
    senders: tuple[Any, Any] | None = None  # `send` of this generator, and of the one that waits while `call` runs
    while True:
        try:
            while True:
                try:
                    came = yield 0
                    if came is _BEGIN:
                        given = []
                        if senders is None:
                            senders = turns.__call__, _begun(_waiting(call, arguments, kept, turns))
                        continue
                    given.append(came)
                    if len(given) == arguments:
                        whole, given = given, []
                        _while_another_waits(turns, senders, call, whole)
                        del whole, came  # some arguments refer to the client
                except GeneratorExit:
                    return
                except BaseException as error:  # noqa: BLE001 - raised after the poll
                    kept.append(error)
        except BaseException as error:  # noqa: BLE001 - of another signal, in the lines above
            kept.append(error)


def _while_another_waits(
    turns: Any,  # noqa: ANN401 - see above
    senders: tuple[Any, Any] | None,
    call: Callable[..., object],
    arguments: Sequence[object],
) -> None:
    ours, others = senders or (turns.__call__,) * 2  # None: a signal has interrupted their making
    try:
        turns.__call__ = others
        call(*arguments)
    finally:
        turns.__call__ = ours


def _answering(
    call: Callable[[Any], object],
    otherwise: object,
    kept: deque[BaseException],
    turns: Any,  # noqa: ANN401 - see above
) -> Generator[object, object, None]:
    """A generator for one call: an exception ends it. It prepares the generator for the next call before its own."""
    asked = otherwise
    try:
        asked = yield None
    except GeneratorExit:
        return
    except BaseException as error:  # noqa: BLE001 - raised after the poll
        kept.append(error)
    turns.__call__ = _begun(_answering(call, otherwise, kept, turns))
    yield call(asked)
