"""Lending: how many of the records in the loop's hands do not count for the limits of the intake.

`max_in_flight` limits what is read ahead of the loop. Records that the loop has were requested by it, and while it
waits for more in `poll`, no thread can end them. Therefore a loop that commits gets what it requests, however much it
gathers, as from the client itself.

If each record is ended by itself (`done_when="explicit"`), other threads may handle records, and the limit keeps the
process from taking more than they can handle: it holds as long as records end. If no record has ended for a while,
although the loop polls, the limit is raised by its own size, and the next time after a longer wait. Both cases emit
`MuchInHand`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.plugin.events import MuchInHand

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.plugin.engine.flow.intake import Intake
    from holdfast.plugin.events import Event
    from holdfast.plugin.own_loop.handed_out import HandedOut
    from holdfast.plugin.settings import Settings
    from holdfast.timing import Clock

#: The first wait for an ended record, before the limit of an explicit loop is raised.
_PATIENCE_S = 5.0


class Lending:
    """Computes the records and bytes that do not count. Under the lock of its `Driven`.

    Args:
        explicit: each record is ended by itself, maybe by other threads.
    """

    def __init__(
        self,
        in_hand: HandedOut,
        intake: Intake,
        settings: Settings,
        *,
        explicit: bool,
        clock: Clock,
        tell: Callable[[Event], None],
    ) -> None:
        self._in_hand, self._intake, self._settings, self._explicit = in_hand, intake, settings, explicit
        self._clock, self._tell = clock, tell
        #: How often the limit was raised, and the wait before the next time.
        self._raised, self._patience_s = 0, _PATIENCE_S
        #: Since when the loop polls in vain, and `HandedOut.drops` at that time.
        self._since: float | None = None
        self._drops = 0
        #: The multiple of the limit at which the next event is emitted.
        self._told_at = 1.0

    def look(self, asked_records: int, asked_bytes: int) -> None:
        """Update the intake's numbers, before it is asked for room.

        Args:
            asked_records: ready records that the loop requests now.
            asked_bytes: their bytes.
        """
        intake, settings, in_hand = self._intake, self._settings, self._in_hand
        lent_records, lent_bytes = in_hand.records, in_hand.bytes
        if self._explicit:
            self._look_whether_it_stands()
            lent_records = min(lent_records, self._raised * settings.max_in_flight)
            lent_bytes = min(lent_bytes, self._raised * settings.max_in_flight_bytes)
        intake.lent_records, intake.lent_bytes = lent_records + asked_records, lent_bytes + asked_bytes
        intake.lent_soon = asked_records
        bounds = max(in_hand.records / settings.max_in_flight, in_hand.bytes / settings.max_in_flight_bytes)
        if bounds <= 1.0:
            self._told_at = 1.0
        elif bounds > self._told_at and (not self._explicit or self._raised):
            self._told_at = 2.0 * bounds
            self._tell(
                MuchInHand(
                    records=in_hand.records,
                    size_bytes=in_hand.bytes,
                    max_in_flight=settings.max_in_flight,
                    max_in_flight_bytes=settings.max_in_flight_bytes,
                )
            )

    def _look_whether_it_stands(self) -> None:
        """Raise the limit of an explicit loop that polls in vain while no record ends."""
        intake, settings, in_hand, now = self._intake, self._settings, self._in_hand, self._clock.now()
        most_records, most_bytes = settings.max_in_flight, settings.max_in_flight_bytes
        if in_hand.records * 2 <= most_records and in_hand.bytes * 2 <= most_bytes:
            self._raised, self._patience_s = 0, _PATIENCE_S
        bound = 1 + self._raised
        full = intake.records >= bound * most_records or intake.bytes >= bound * most_bytes
        # Only the loop's own records fill the limit, not records that wait for a key or a takeover.
        its_own = intake.records - in_hand.records < most_records and intake.bytes - in_hand.bytes < most_bytes
        if not full or not its_own:
            self._since = None
        elif self._since is None or in_hand.drops != self._drops:
            self._since, self._drops = now, in_hand.drops
        elif now - self._since >= self._patience_s:
            self._raised += 1
            self._patience_s *= 2
            self._since = None
