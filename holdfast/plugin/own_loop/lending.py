"""Lending: how much of what a loop of the user's has in hand the bounds of the intake leave out.

`max_in_flight` bounds what is read ahead of the loop. What the loop has got, it has asked for, and while it waits for
more in `poll`, nobody can end that. So a loop that commits gets what it asks for, however much it gathers, as from the
client.

Where each record is ended by itself (`done_when="explicit"`), other threads may be at work, and the bound keeps the
process from taking more than they can do: it holds as long as something ends. Only where nothing has ended for a while,
though the loop asks, it is raised by its own size, and later each time. Both are told (`MuchInHand`).
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

#: How long an explicit loop that asks for more waits at first for something to end.
_PATIENCE_S = 5.0


class Lending:
    """Under the lock of its `Driven`.

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
        #: How often the bound was raised, and how long is waited before the next time.
        self._raised, self._patience_s = 0, _PATIENCE_S
        #: Since when the loop has asked in vain, and how much had ended by then.
        self._since: float | None = None
        self._drops = 0
        #: At how many bounds it is told again.
        self._told_at = 1.0

    def look(self, asked_records: int, asked_bytes: int) -> None:
        """Say what is lent, before the intake is asked for room.

        Args:
            asked_records: what is ready and part of what the loop asks for now.
            asked_bytes: of these.
        """
        intake, settings, in_hand = self._intake, self._settings, self._in_hand
        lent_records, lent_bytes = in_hand.records, in_hand.bytes
        if self._explicit:
            self._look_whether_it_stands()
            lent_records = min(lent_records, self._raised * settings.max_in_flight)
            lent_bytes = min(lent_bytes, self._raised * settings.max_in_flight_bytes)
        intake.lent_records, intake.lent_bytes = lent_records + asked_records, lent_bytes + asked_bytes
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
        """Raise the bound of an explicit loop where it asks in vain and nothing ends."""
        intake, settings, in_hand, now = self._intake, self._settings, self._in_hand, self._clock.now()
        most_records, most_bytes = settings.max_in_flight, settings.max_in_flight_bytes
        if in_hand.records * 2 <= most_records and in_hand.bytes * 2 <= most_bytes:
            self._raised, self._patience_s = 0, _PATIENCE_S
        bound = 1 + self._raised
        full = intake.records >= bound * most_records or intake.bytes >= bound * most_bytes
        # Without what the loop has there would be room: it does not wait for a key, or a takeover.
        its_own = intake.records - in_hand.records < most_records and intake.bytes - in_hand.bytes < most_bytes
        if not full or not its_own:
            self._since = None
        elif self._since is None or in_hand.drops != self._drops:
            self._since, self._drops = now, in_hand.drops
        elif now - self._since >= self._patience_s:
            self._raised += 1
            self._patience_s *= 2
            self._since = None
