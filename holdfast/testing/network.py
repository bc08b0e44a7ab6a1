"""Network: carries calls between the processes of a simulated world and one of its servers."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.testing.process import Process
    from holdfast.testing.scheduler import Scheduler
    from holdfast.testing.tasks import Waiter

_T = TypeVar("_T")

#: The least and the longest time of one way, of a call or its reply, without faults.
_WAY_S = (5e-5, 1e-3)


class NoAnswer(Exception):
    """No reply within the caller's timeout. The call may have arrived, or may still arrive."""


class Refused(Exception):
    """The server refuses the caller's credentials; the text is the server's."""


class _Call:
    """A call on its way."""

    __slots__ = ("error", "reply", "waiters")

    def __init__(self) -> None:
        self.waiters: list[Waiter] = []
        self.reply: object = None
        self.error: Exception | None = None


class Network:
    """Carries calls to a server and replies back. A call arrives at most once; a caller that asks again sends another.

    A sent call arrives even if its caller has died meanwhile, or has given up waiting.

    Args:
        scheduler: of the world.
        name: of the server. Its random numbers are its own, so that the same call fails whatever else happens.
        timeout_s: how long a caller waits for a reply, in seconds of its own clock.
    """

    def __init__(self, scheduler: Scheduler, name: str, *, timeout_s: float) -> None:
        self._scheduler = scheduler
        self._timeout_s = timeout_s
        self._random = Random(f"{scheduler.seed} network {name}")
        self._hears = self._speaks = True
        self._refusal = ""
        self._slowest_s = 0.0
        self._lost_calls = self._lost_replies = self._late_calls = 0.0
        #: How many calls were sent, have arrived, and were answered.
        self.sent = self.arrived = self.answered = 0

    # ---- faults
    def go_silent(self, *, hears: bool) -> None:
        """From now on no reply arrives; with `hears`, calls still arrive."""
        self._hears, self._speaks = hears, False

    def speak(self) -> None:
        """Calls and replies arrive again."""
        self._hears = self._speaks = True

    def slow(self, up_to_s: float) -> None:
        """From now on each way takes up to so long; 0 = as usual."""
        self._slowest_s = up_to_s

    def lose(self, *, calls: float = 0.0, replies: float = 0.0, late: float = 0.0) -> None:
        """Probabilities (0 to 1) that a call does not arrive; that it arrives and is not answered; that it arrives
        after its caller has given up, and perhaps asked again."""
        self._lost_calls, self._lost_replies, self._late_calls = calls, replies, late

    def refuse(self, text: str = "NOAUTH Authentication required.") -> None:
        """From now on the server refuses each call with this text; "" = as usual."""
        self._refusal = text

    # ---- a task
    def ask(self, process: Process, request: Callable[[], _T]) -> _T:
        """Send a request to the server and wait for its reply. Called by a task.

        Args:
            process: the caller's.
            request: runs at the server as one step, in the hub: it must not wait.

        Raises:
            NoAnswer: no reply in time.
            Refused: the server refuses the caller's credentials.
        """
        call, random = _Call(), self._random
        self.sent += 1
        timeout_s = self._timeout_s / process.clock_rate
        # Each call draws all four numbers, so that the fate of one call does not change the others'.
        there_s, back_s, fate, how_late = self._way(), self._way(), random.random(), random.random()
        if fate < self._late_calls:
            there_s = timeout_s * (1.0 + 2.0 * how_late)
        fate -= self._late_calls
        if not 0 <= fate < self._lost_calls:
            answered = not 0 <= fate - self._lost_calls < self._lost_replies
            self._scheduler.at(
                self._scheduler.now + there_s, lambda: self._arrive(call, request, back_s if answered else None)
            )
        if not self._scheduler.wait_among(call.waiters, timeout_s):
            raise NoAnswer
        self.answered += 1
        if call.error is not None:
            raise call.error
        return cast("_T", call.reply)

    # ---- the hub
    def _arrive(self, call: _Call, request: Callable[[], object], back_s: float | None) -> None:
        if not self._hears:
            return
        self.arrived += 1
        try:
            if self._refusal:
                raise Refused(self._refusal)  # noqa: TRY301 - as the server's own errors
            call.reply = request()
        except Exception as error:  # noqa: BLE001 - raised at the caller
            call.error = error
        if self._speaks and back_s is not None:
            self._scheduler.at(self._scheduler.now + back_s, lambda: self._scheduler.tell(call.waiters))

    def _way(self) -> float:
        least_s, most_s = _WAY_S
        return least_s + (max(most_s, self._slowest_s) - least_s) * self._random.random()
