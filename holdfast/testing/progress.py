"""Progress: whether a world gets on, and when all is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.testing.play import Stage

#: After the last thing that happens, something more is committed within so long, until all is.
_PROGRESS_S = 20.0
#: How often it is looked at what waits where.
_LOOK_S = 0.25


class Progress:
    """Looks at a stage, a few times a second."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        #: All is handled and committed.
        self.settled = False
        #: What was committed in all, and when that last changed.
        self._committed, self._progress_at = 0, 0.0

    def look(self) -> None:
        """Now, and again and again."""
        stage = self._stage
        stage.watch.look()
        committed = stage.ground.progress
        if committed != self._committed or stage.now < stage.world.calm_s:
            self._committed, self._progress_at = committed, stage.now
        self.settled = stage.now > stage.world.calm_s and not stage.ground.behind() and not stage.faults.resetting
        if not self.settled and stage.now - self._progress_at > _PROGRESS_S:
            stage.watch.stands_still()
        stage.scheduler.at(stage.scheduler.now + _LOOK_S, self.look)
