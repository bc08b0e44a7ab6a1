"""Audit: whether and how a consumer writes events about its work. Frozen; validated at construction."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.timing import Deadline

Keys = Literal["none", "hashed", "plain"]
_DIGEST_BYTES = 16
#: A longer key is written as its beginning and a digest, in characters. A producer may send keys of any length, many of
#: them share an event, and an event above the broker's message size would be lost with all its keys.
_LONGEST, _SHOWN = 512, 400


class Sink(Protocol):
    """An open destination of lines. One thread; `write` and `close` never raise."""

    def write(self, lines: Sequence[str], run: str) -> int:
        """Write lines of the run. Returns how many, from the first on, the sink has taken: they are written, on their
        way, or lost and counted. The caller offers the rest again later. Does not block for long."""
        ...

    @property
    def lost(self) -> int:
        """How many lines it has taken and could not deliver."""
        ...

    def close(self, deadline: Deadline) -> None:
        """Wait for lines on their way, at most until the deadline, and close."""
        ...


class EventsTo(Protocol):
    """Settings of a destination for events. Each consumer that starts opens its own sink."""

    def open(self, member: str, run: str) -> Sink:
        """Open a sink. Raises SettingError, OSError: the destination cannot be written to."""
        ...


@dataclass(frozen=True, slots=True)
class Audit:
    """Which events a consumer writes, and where: `Holdfast(source, ..., audit=Audit(FileEvents("/var/log/orders")))`.

    Raises:
        SettingError: a value that cannot work; names the field, the value and the remedy.
    """

    #: `FileEvents(...)`, or `holdfast.adapters.kafka.KafkaEvents(...)`.
    events: EventsTo
    #: The member's name in events, for people; None: host and process id.
    member: str | None = field(default=None, kw_only=True)
    #: Whether events have the business key of each record. Without keys, a report cannot show that a producer has sent
    #: a message twice. "hashed": 16 bytes of BLAKE2 with the salt. Keys cost memory, disk and time for each record; all
    #: other fields cost them for each run of records.
    keys: Keys = field(default="none", kw_only=True)
    #: The salt of hashed keys; all members of a group need the same. None: the group's name, which prevents comparing
    #: keys of two groups, but not guessing them.
    salt: str | None = field(default=None, kw_only=True, repr=False)
    #: Seconds between two writes of spans. After a kill, the outcomes of up to that many seconds are unknown.
    flush_s: float = field(default=1.0, kw_only=True)
    #: Seconds between two events with the positions of all partitions.
    progress_s: float = field(default=5.0, kw_only=True)
    #: How many events may wait for the sink; further ones are dropped, and counted.
    buffer_events: int = field(default=10_000, kw_only=True)
    #: Seconds that the end of the process waits for the sink, at most.
    close_s: float = field(default=5.0, kw_only=True)

    def __post_init__(self) -> None:
        if not callable(getattr(self.events, "open", None)):
            raise SettingError("events", self.events, "use FileEvents(folder) or KafkaEvents(conf, topic)")
        if self.keys not in get_args(Keys):
            raise SettingError("keys", self.keys, f"use one of {', '.join(map(repr, get_args(Keys)))}")
        for name in ("member", "salt"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise SettingError(name, "***" if name == "salt" else value, "use text, or None")
        if self.salt is not None and self.keys != "hashed":
            raise SettingError("salt", "***", 'is for keys="hashed" alone')
        for name in ("flush_s", "progress_s", "close_s"):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < math.inf:
                raise SettingError(name, number, "use seconds above 0")
        events: object = self.buffer_events
        if isinstance(events, bool) or not isinstance(events, int) or events < 10:
            raise SettingError("buffer_events", events, "use a whole number of 10 or more")


def checked(audit: Audit | None) -> Audit | None:
    """Return `audit`. Raises SettingError: it is neither an Audit nor None."""
    given: object = audit
    if not isinstance(given, Audit | None):
        raise SettingError("audit", given, "use Audit(FileEvents(folder)), or None to do without")
    return audit


class KeyWriter:
    """Converts business keys into the form that `Audit.keys` asks for. Any thread."""

    def __init__(self, audit: Audit, group: str) -> None:
        self.wanted = audit.keys != "none"
        self._hashed = audit.keys == "hashed"
        # BLAKE2 accepts a key of up to 64 bytes; the digest of the salt has 64, however long the salt is.
        self._salt = blake2b((audit.salt or group).encode()).digest()

    def __call__(self, key: str) -> str:
        """The key as events have it."""
        if not self._hashed:
            # JSON may bring a lone surrogate, which UTF-8 cannot encode, and an event with one counts as unreadable.
            # Write its code point instead.
            text = key if key.isascii() else key.encode("utf-8", "backslashreplace").decode()
            return text if len(text) <= _LONGEST else f"{text[:_SHOWN]}...{_digest(text)}"
        return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES, key=self._salt).hexdigest()


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
