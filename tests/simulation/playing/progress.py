"""Progress: whether a world gets on, and when all is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.brokers.kafka_slips import LOST_SEEKS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.judging.watch import Watch
    from tests.simulation.playing.stage import Stage

#: After the last thing that happens, something more is handled or committed within so long, until all is. Where slow
#: handlers run one at a time, a record may wait for its turn for longer, and all that is behind it for its commit.
_PROGRESS_S = 20.0
#: A member looks that often whether a topic of its was made again, and reads on in the new one until then.
_REMADE_S = 35.0
#: Where a seek was without effect and nothing comes, the client is sent there again after so long: to where a partition
#: begins, and to a hole.
_SENT_AGAIN_S = 2 * 35.0
#: How often it is looked at what waits where.
_LOOK_S = 0.25


class Progress:
    """Looks at a stage, a few times a second.

    Args:
        stage: what is played on it.
        watch: looks with it.
        busy: whether something is still to be stored, or everybody has left for a while.
    """

    def __init__(self, stage: Stage, watch: Watch, *, busy: Callable[[], bool]) -> None:
        self._stage, self._watch, self._busy = stage, watch, busy
        #: All is handled and committed.
        self.settled = False
        #: What was handled, committed and tried in all, and when that last changed. Calls that fail count: a handler
        #: that is paused at its limit of dead letters tries the next record each `pause_s`, until one fails no more.
        #: Each record's plan has so many of them.
        self._got, self._progress_at = (0, 0, 0), 0.0
        self._patience_s = _PROGRESS_S + _REMADE_S * any(each.kind == "remake" for each in stage.world.faults)
        if stage.world.slips == "lost seek":
            self._patience_s += LOST_SEEKS * _SENT_AGAIN_S

    def look(self) -> None:
        """Now, and again and again."""
        stage = self._stage
        self._watch.look()
        got = stage.judges.handled, stage.ground.progress, -sum(stage.fails.values())
        if got != self._got or stage.now < stage.world.calm_s:
            self._got, self._progress_at = got, stage.now
        calm = stage.now > stage.world.calm_s and not self._busy()
        self.settled = calm and not stage.ground.behind()
        if not self.settled and stage.now - self._progress_at > self._patience_s:
            self._watch.stands_still()
        stage.scheduler.at(stage.scheduler.now + _LOOK_S, self.look)
