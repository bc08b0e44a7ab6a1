"""Progress: whether a world makes progress, and when all is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.brokers.kafka_slips import LOST_SEEKS, SENT_AGAIN_S
from tests.simulation.judging.effects import LOOKS_BACK_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.judging.watch import Watch
    from tests.simulation.playing.stage import Stage

#: After the last event, more is handled or committed within so long, until all is. Slow handlers that run one at a time
#: keep a record waiting for longer, and the commits of the records behind it.
_PROGRESS_S = 20.0
#: Time between a member's looks whether a topic was made again; until then it reads on in the new one.
_REMADE_S = 35.0
#: Time between looks.
_LOOK_S = 0.25


class Progress:
    """Looks at a stage, a few times a second.

    Args:
        stage: the stage.
        watch: looks at the same times.
        busy: whether records are still to be sent, or all members are away for a while.
    """

    def __init__(self, stage: Stage, watch: Watch, *, busy: Callable[[], bool]) -> None:
        self._stage, self._watch, self._busy = stage, watch, busy
        #: Whether all is handled and committed.
        self.settled = False
        #: (handled, committed, failures left), and when it changed last. Failed calls count as progress: a handler that
        #: is paused at its limit of dead letters tries the next record each `pause_s`, until one does not fail, and
        #: each record's plan has a bounded number of failures.
        self._got, self._progress_at = (0, 0, 0), 0.0
        self._patience_s = _PROGRESS_S + _REMADE_S * any(each.kind == "remake" for each in stage.world.faults)
        if stage.world.store == "database":
            self._patience_s += LOOKS_BACK_S
        if stage.world.slips == "lost seek":
            self._patience_s += LOST_SEEKS * SENT_AGAIN_S

    def look(self) -> None:
        """Look now, and again each `_LOOK_S`."""
        stage = self._stage
        self._watch.look()
        got = stage.judges.handled, stage.ground.progress, -sum(stage.fails.values())
        if got != self._got or stage.now < stage.world.calm_s:
            self._got, self._progress_at = got, stage.now
        calm = stage.now > stage.world.calm_s and not self._busy()
        self.settled = calm and stage.judges.complete and not stage.ground.behind()
        if not self.settled and stage.now - self._progress_at > self._patience_s:
            self._watch.stands_still()
        stage.scheduler.at(stage.scheduler.now + _LOOK_S, self.look)
