"""What happens to the groups: the same steps for each, at the same moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from examples.lab.group import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One event. `graceful`: every member had its chance to finish, so nothing should be handled twice."""

    #: What is counted from here on; empty: it belongs to the step before.
    phase: str
    label: str
    told: str
    do: Callable[[Group], None]
    graceful: bool
    #: The member that is killed or stopped.
    victim: str = ""
    #: Seconds after the start, at the earliest.
    at_s: float
    #: Whether the next step waits until the groups have caught up.
    settles: bool = True


def _start_three(group: Group) -> None:
    for member in ("A", "B", "C"):
        group.start(member)


# Crash and stall come in the middle between two automatic commits (each 5 s, counted from a member's start, and a
# member needs 0.4 s to begin), so that the defaults are neither lucky nor unlucky: between 0 and 5 s' worth, 2.5.
SCRIPT = (
    Step(
        phase="start",
        label="start A, B, C",
        told="members A, B and C start; a backlog of orders waits for them",
        do=_start_three,
        graceful=True,
        at_s=0,
    ),
    Step(
        phase="join",
        label="D joins",
        told="D joins the group",
        do=lambda group: group.start("D"),
        graceful=True,
        at_s=7,
    ),
    Step(
        phase="leave",
        label="B leaves\n(SIGTERM)",
        told="B leaves in good order (SIGTERM)",
        do=lambda group: group.terminate("B"),
        graceful=True,
        at_s=14,
    ),
    Step(
        phase="kill",
        label="C is killed\n(SIGKILL)",
        told="C is killed without warning (SIGKILL)",
        do=lambda group: group.kill("C"),
        graceful=False,
        victim="C",
        at_s=22.9,
    ),
    Step(
        phase="replace",
        label="E replaces C",
        told="E joins in C's place",
        do=lambda group: group.start("E"),
        graceful=True,
        at_s=32,
    ),
    Step(
        phase="stall",
        label="A stalls\n(SIGSTOP)",
        told="A is frozen, longer than the group waits for it (SIGSTOP)",
        do=lambda group: group.stop("A"),
        graceful=False,
        victim="A",
        at_s=42.9,
        settles=False,  # the others take over, and A comes back whether they have caught up or not
    ),
    Step(
        phase="",
        label="A goes on\n(SIGCONT)",
        told="A goes on, and does not know that time has passed (SIGCONT)",
        do=lambda group: group.go_on("A"),
        graceful=False,
        at_s=48.9,
    ),
)

END_S = 57.0
