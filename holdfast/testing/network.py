"""Network: what is between the processes of a simulated world and one of its servers."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.testing.process import Process
    from holdfast.testing.scheduler import Scheduler
    from holdfast.testing.tasks import Waiter

_T = TypeVar("_T")

#: How long a call, or its reply, is on its way where nothing is wrong: at least, at most.
_WAY_S = (5e-5, 1e-3)


class NoAnswer(Exception):
    """The caller's patience is at its end. Perhaps the call has arrived, or will."""


class Refused(Exception):
    """The server lets nobody in; in its words."""


class _Call:
    """One that is on its way."""

    __slots__ = ("error", "reply", "waiters")

    def __init__(self) -> None:
        self.waiters: list[Waiter] = []
        self.reply: object = None
        self.error: Exception | None = None


class Network:
    """Carries calls to a server and their replies back. Each arrives once at most; who asks again sends another one.

    A call that is sent arrives whatever becomes of who has sent it: it may have died, or have given up waiting.

    Args:
        scheduler: of the world.
        name: of the server; its chance is its own, so that the same call fails whatever else happens.
        timeout_s: how long a caller waits for a reply, by its own clock.
    """

    def __init__(self, scheduler: Scheduler, name: str, *, timeout_s: float) -> None:
        self._scheduler = scheduler
        self._timeout_s = timeout_s
        self._random = Random(f"{scheduler.seed} network {name}")
        self._hears = self._speaks = True
        self._refusal = ""
        self._slowest_s = 0.0
        self._lost_calls = self._lost_replies = self._late_calls = 0.0
        #: Calls that were sent, that have arrived, and whose reply has.
        self.sent = self.arrived = self.answered = 0

    # ---- faults
    def go_silent(self, *, hears: bool) -> None:
        """From now on no reply arrives; `hears` = calls do."""
        self._hears, self._speaks = hears, False

    def speak(self) -> None:
        """Calls and replies arrive again."""
        self._hears = self._speaks = True

    def slow(self, up_to_s: float) -> None:
        """Each way may take so long from now on; 0 = as usual."""
        self._slowest_s = up_to_s

    def lose(self, *, calls: float = 0.0, replies: float = 0.0, late: float = 0.0) -> None:
        """Of so many (0 to 1) the call does not arrive, or arrives and is not answered, or arrives when its caller has
        given up, and may have asked again."""
        self._lost_calls, self._lost_replies, self._late_calls = calls, replies, late

    def refuse(self, text: str = "NOAUTH Authentication required.") -> None:
        """From now on the server answers each call with that; "" = as usual."""
        self._refusal = text

    # ---- a task
    def ask(self, process: Process, request: Callable[[], _T]) -> _T:
        """Have the server do that, and wait for what it says.

        Args:
            process: whose task calls.
            request: what the server does, as one step: in the hub, so it must not wait.

        Raises:
            NoAnswer: no reply in time.
            Refused: the server lets nobody in.
        """
        call, random = _Call(), self._random
        self.sent += 1
        timeout_s = self._timeout_s / process.clock_rate
        # All is drawn for each call: what comes of one does not move the others'.
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
        except Exception as error:  # noqa: BLE001 - it is the caller's
            call.error = error
        if self._speaks and back_s is not None:
            self._scheduler.at(self._scheduler.now + back_s, lambda: self._scheduler.tell(call.waiters))

    def _way(self) -> float:
        least_s, most_s = _WAY_S
        return least_s + (max(most_s, self._slowest_s) - least_s) * self._random.random()
