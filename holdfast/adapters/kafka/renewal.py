"""After a client has ended: when the source makes the next one, and what it raises meanwhile.

A client that an error has ended is replaced at once, or after a wait that grows with each failure in a row. A static
member whose id another process has is a case of its own (seen on Kafka 4.3.1). In the classic protocol the newer
process takes the place of the older one, whose client ends. In the consumer protocol the newer one is refused as long
as the older one's session lasts, whether that process lives or was killed.

`_FATAL` hides the error's code, so the protocol decides about it. Classic: this member was fenced, and it stops;
otherwise the two would throw each other out for ever. Consumer protocol: this member was refused, because of a living
process or of a dead one's session; it tries again for a limited time.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.adapters.kafka import faults
from holdfast.adapters.kafka.config import STATIC_ID
from holdfast.errors import SourceError, SourceFatal, StaticIdTaken
from holdfast.plugin.retrying.retry import BACKOFF
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.adapters.kafka._client import KafkaError

_log = logging.getLogger("holdfast.kafka")

#: A client that lived for longer ends a series of failures: the next wait is short again.
_STABLE_S = 120.0

#: How long a refusal may be due to a dead predecessor: the longest session that brokers allow by default
#: (group.consumer.max.session.timeout.ms), and half of it in addition.
_REFUSED_S = 90.0


class Renewal:
    """The next client of one source. One thread."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._due_at = 0.0
        #: How many clients in a row have ended.
        self.in_a_row = 0
        self._refusals: Refusals | None = None

    def of_static_member(self, static_id: str, *, waits: bool) -> None:
        """Take the errors of clients for those of a static member; `waits` as in `Refusals`."""
        self._refusals = Refusals(static_id, self._group, SYSTEM_CLOCK.now, waits=waits)

    @property
    def left_s(self) -> float:
        """Seconds until the next client is made; not below 0."""
        return max(self._due_at - SYSTEM_CLOCK.now(), 0.0)

    @property
    def final(self) -> bool:
        """Whether no other client is made: another process has this member's static id."""
        return self._refusals is not None and self._refusals.final

    def ended(self) -> float:
        """Note that a client has ended. Returns the seconds until the next one is made."""
        if SYSTEM_CLOCK.now() - self._due_at > _STABLE_S:
            self.in_a_row = 0
        self.in_a_row += 1
        wait_s = BACKOFF.wait_s(self.in_a_row, SourceFatal()) or 0.0
        self._due_at = SYSTEM_CLOCK.now() + wait_s
        return wait_s

    def ended_by(self, error: KafkaError) -> SourceError | None:
        """Note that this error has ended a client. Returns the error to raise; None = it was raised before."""
        wait_s = self.ended()
        if self._refusals is not None and faults.is_about_static_id(error):
            return self._refusals.judge(error)
        said = faults.as_source_error(error, f"member of {self._group}")
        return SourceFatal(f"{said}; a new client is made in {wait_s:.1f} s")

    def assigned(self) -> None:
        """Note that the group has assigned partitions to the client."""
        if self._refusals is not None and self._refusals.waiting:
            _log.info("the member of %s has joined after %.1f s", self._group, self._refusals.let_in())


class Refusals:
    """Refusals of a static member whose id another process has. One thread."""

    def __init__(self, static_id: str, group: str, now: Callable[[], float], *, waits: bool) -> None:
        """Args: waits: True under the consumer protocol, in which a refused member may be let in once a session
        ends."""
        self._id, self._group, self._now, self._waits = static_id, group, now, waits
        self._since: float | None = None
        #: This member will not come back.
        self.final = False

    @property
    def waiting(self) -> bool:
        """Whether the member was refused, and has not been let in since."""
        return self._since is not None

    def judge(self, error: KafkaError) -> SourceError | None:
        """The error to raise about a refusal; None = it was raised before."""
        if not self._waits:
            # If this member came back, it would take the other's place, and so on for ever.
            self.final = True
            return StaticIdTaken(
                f"another process joined {self._group} as {STATIC_ID}={self._id} and has this member's place "
                f"({error.str()}): give each process its own, see that the old one is gone before its name is used "
                "again, and start this one anew"
            )
        if self._since is None:
            self._since = self._now()
            return SourceFatal(
                f"{self._group}: {STATIC_ID}={self._id} is still another member's ({error.str()}); one that was killed "
                f"has it until its session ends. The member tries again silently, for {_REFUSED_S:.0f} s at most"
            )
        if self._now() - self._since < _REFUSED_S:
            return None
        self.final = True
        return StaticIdTaken(
            f"another member of {self._group} has had {STATIC_ID}={self._id} for {_REFUSED_S:.0f} s, longer than a "
            f"dead one's session lasts ({error.str()}): give each process its own, or end the other one "
            "and start this one anew"
        )

    def let_in(self) -> float:
        """Note that it is a member again. Returns the seconds since its first refusal."""
        since, self._since = self._since, None
        return 0.0 if since is None else self._now() - since
