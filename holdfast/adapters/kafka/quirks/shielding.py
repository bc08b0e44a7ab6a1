"""Shields for the client's callbacks: they keep an exception that a signal handler raises (Ctrl-C, a job's time limit).

- What the binding does: Python runs a signal handler in the next line of Python. While the client waits for its brokers
  that is the first line of a callback. The binding goes on and calls other callbacks with the exception set: the poll
  raises a SystemError that does not name the exception, or nothing at all.
- Seen with confluent-kafka 2.6 to 2.16.
- What holdfast does: a `try` inside a function is too late, because the handler runs before its first line. So the
  client gets callables without a Python frame of their own. They send their arguments to a generator that waits inside
  of a `try`. A callback may be called again inside of itself (an error_cb that polls): a running generator can be sent
  nothing, so a second generator waits. The `__call__` of a class picks the generator, which the interpreter looks up
  without a frame.
- It can go when the binding stops at the first callback that raises, and raises that exception.
- Test: tests/unit/test_kafka_shielding.py.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

#: As many as are kept: one for each time that somebody presses Ctrl-C.
_KEPT = 16
_BEGIN = object()


class NoLog:
    """A client's logger that drops its lines."""

    log = "".format


class Shield:
    """Around the callbacks of one client. In the thread that polls it, which calls them."""

    def __init__(self) -> None:
        self._kept: deque[BaseException] = deque(maxlen=_KEPT)

    def around(self, call: Callable[..., object], arguments: int) -> Callable[..., Any]:
        """A callback that gets so many arguments, and whose result the client does not use. Nothing leaves it."""
        turns = _turns()
        turns.__call__ = _begun(_waiting(call, arguments, self._kept, turns))
        # max() hands on one by one; all answers are alike, so that it has nothing to compare. The signal that came
        # while the client waited strikes at _BEGIN, and no argument is lost by it.
        return partial(max, _BEGIN, key=turns())

    def around_answer(self, call: Callable[[Any], object], otherwise: object) -> Callable[[Any], Any]:
        """A callback that gets one argument, and whose result the client uses; what `call` raises leaves it.

        Args: otherwise: the argument, where a signal has struck instead of it.
        """
        turns = _turns()
        turns.__call__ = _begun(_answering(call, otherwise, self._kept, turns))
        answers: Callable[[Any], Any] = turns()
        return answers

    def keep(self, error: BaseException) -> None:
        """Have it raised after the poll."""
        self._kept.append(error)

    def raise_kept(self) -> None:
        """Raise what was kept first. To be called after each call of the client that may call back."""
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
    senders: tuple[Any, Any] | None = None  # of this one, and of the one that waits while `call` runs
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
                        del whole, came  # the client, in some
                except GeneratorExit:
                    return
                except BaseException as error:  # noqa: BLE001 - raised after the poll
                    kept.append(error)
        except BaseException as error:  # noqa: BLE001 - another signal, in the lines above
            kept.append(error)


def _while_another_waits(
    turns: Any,  # noqa: ANN401 - see above
    senders: tuple[Any, Any] | None,
    call: Callable[..., object],
    arguments: Sequence[object],
) -> None:
    ours, others = senders or (turns.__call__,) * 2  # none: a signal struck where they were made
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
    """For one call: it ends by what is raised. The next one waits before it begins."""
    asked = otherwise
    try:
        asked = yield None
    except GeneratorExit:
        return
    except BaseException as error:  # noqa: BLE001 - raised after the poll
        kept.append(error)
    turns.__call__ = _begun(_answering(call, otherwise, kept, turns))
    yield call(asked)
