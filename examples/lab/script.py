"""What happens to the groups: the same steps for each, at the same moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from examples.lab.side import Side


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One event. `graceful`: every member had its chance to finish, so nothing should be handled twice."""

    #: What is counted from here on; empty: it belongs to the step before.
    phase: str
    label: str
    told: str
    #: Returns the member that it kills or stops; empty: nobody.
    do: Callable[[Side], str]
    graceful: bool
    #: Whether one order comes that takes longer than a plain loop may be away from `poll()`.
    slow_order: bool = False
    #: Seconds after the start, at the earliest.
    at_s: float
    #: Whether the next step waits until the groups have caught up.
    settles: bool = True


def _start(*members: str) -> Callable[[Side], str]:
    def do(side: Side) -> str:
        for member in members:
            side.group.start(member)
        return ""

    return do


def _leave(side: Side) -> str:
    side.group.terminate("B")
    return ""


def _kill(side: Side) -> str:
    side.group.kill("C")
    return "C"


def _stop(side: Side) -> str:
    side.group.stop("A")
    return "A"


def _go_on(side: Side) -> str:
    side.group.go_on("A")
    return ""


def _nothing(_side: Side) -> str:
    return ""


def _kill_slow(side: Side) -> str:
    side.catch_up()
    victim = side.has_slow_order or "D"
    side.group.kill(victim)
    return victim


# A member needs 0.4 s to begin, and its automatic commits come each 5 s from then on. C's death and A's freeze are in
# the middle between two of them, so that the defaults are neither lucky nor unlucky: between 0 and 5 s' worth, 2.5. The
# slow order is in work at one of them, whoever has it, and its member dies before the group gives that member up.
SCRIPT = (
    Step(
        phase="start",
        label="A, B, C start",
        told="members A, B and C start; a backlog of orders waits for them",
        do=_start("A", "B", "C"),
        graceful=True,
        at_s=0,
        settles=False,  # else a slow machine would move the next step to the one after it
    ),
    Step(
        phase="join",
        label="D joins",
        told="D joins the group",
        do=_start("D"),
        graceful=True,
        at_s=7,
    ),
    Step(
        phase="leave",
        label="B leaves\n(SIGTERM)",
        told="B leaves in good order (SIGTERM)",
        do=_leave,
        graceful=True,
        at_s=14,
    ),
    Step(
        phase="kill",
        label="C is killed\n(SIGKILL)",
        told="C is killed without warning (SIGKILL)",
        do=_kill,
        graceful=False,
        at_s=22.9,
    ),
    Step(
        phase="back",
        label="B and C\nare back",
        told="B and C are started again",
        do=_start("B", "C"),
        graceful=True,
        at_s=32,
    ),
    Step(
        phase="stall",
        label="A is frozen\n(SIGSTOP)",
        told="A is frozen, longer than the group waits for it (SIGSTOP)",
        do=_stop,
        graceful=False,
        at_s=42.9,
        settles=False,  # the others take over, and A comes back whether they have caught up or not
    ),
    Step(
        phase="",
        label="A goes on\n(SIGCONT)",
        told="A goes on, and does not know that time has passed (SIGCONT)",
        do=_go_on,
        graceful=False,
        at_s=48.9,
    ),
    Step(
        phase="slow",
        label="one order\ntakes 9 s",
        told="one order takes 9 s; a plain loop may be away from poll() for 4 s (max.poll.interval.ms)",
        do=_nothing,
        graceful=True,
        slow_order=True,
        at_s=56.5,
        settles=False,
    ),
    Step(
        phase="slow-kill",
        label="its member\nis killed",
        told="the member that has this order is killed without warning (SIGKILL)",
        do=_kill_slow,
        graceful=False,
        at_s=59.7,
        settles=False,  # a group that hands this order round never catches up
    ),
)

END_S = 84.0
