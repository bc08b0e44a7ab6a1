"""Audit: whether and how a consumer tells what it does. Frozen; validated at birth."""

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
#: Of a key that is longer, which is anybody's, the beginning and a digest: many of them are one event, and what is
#: larger than a broker takes would be lost, with all that it tells.
_LONGEST, _SHOWN = 512, 400


class Sink(Protocol):
    """Where lines go, once it is open. One thread; `write` and `close` never raise."""

    def write(self, lines: Sequence[str], run: str) -> int:
        """How many of them, from the first on, need not be written again: they are there, on their way, or lost and
        counted. Less than all: ask again later. Does not wait for long."""
        ...

    @property
    def lost(self) -> int:
        """How many it had taken and could not deliver."""
        ...

    def close(self, deadline: Deadline) -> None:
        """Bring to an end what is on its way."""
        ...


class EventsTo(Protocol):
    """A place for events: settings, of which each consumer that is started opens its own sink."""

    def open(self, member: str, run: str) -> Sink:
        """Raises SettingError, OSError: nothing can be written there."""
        ...


@dataclass(frozen=True, slots=True)
class Audit:
    """A consumer's events, and where they go: `Holdfast(source, ..., audit=Audit(FileEvents("/var/log/orders")))`.

    Raises:
        SettingError: a value that cannot work; names the field, the value and the remedy.
    """

    #: `FileEvents(...)`, or `holdfast.adapters.kafka.KafkaEvents(...)`.
    events: EventsTo
    #: The member's name in events, for people; None: host and process id.
    member: str | None = field(default=None, kw_only=True)
    #: Business keys, one for each record that has one: without them nobody can see that a producer has sent something
    #: twice. "hashed": 16 bytes of BLAKE2 with the salt. They cost memory, room and time by the record; what else is
    #: told costs by the run of records.
    keys: Keys = field(default="none", kw_only=True)
    #: Of hashed keys: all members of a group need the same. None: the group's name, which keeps keys from being
    #: compared between groups, and not from being guessed.
    salt: str | None = field(default=None, kw_only=True, repr=False)
    #: How often spans are told: what a kill leaves unknown.
    flush_s: float = field(default=1.0, kw_only=True)
    #: How often all partitions' positions are told.
    progress_s: float = field(default=5.0, kw_only=True)
    #: Events that wait for their sink at most; more are dropped, and counted.
    buffer_events: int = field(default=10_000, kw_only=True)
    #: How long the end of the process waits for the sink.
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
    """Return `audit`. Raises SettingError: it is none."""
    given: object = audit
    if not isinstance(given, Audit | None):
        raise SettingError("audit", given, "use Audit(FileEvents(folder)), or None to do without")
    return audit


class KeyWriter:
    """Business keys as they go into events."""

    def __init__(self, audit: Audit, group: str) -> None:
        self.wanted = audit.keys != "none"
        self._hashed = audit.keys == "hashed"
        # BLAKE2 takes up to 64 bytes as its own key: longer salts by their digest.
        self._salt = blake2b((audit.salt or group).encode()).digest()

    def __call__(self, key: str) -> str:
        """Write the key as asked for."""
        if not self._hashed:
            # Half a character, which JSON may bring, by its number: no reader could write it anywhere, and an event
            # that has one counts as unreadable.
            text = key if key.isascii() else key.encode("utf-8", "backslashreplace").decode()
            return text if len(text) <= _LONGEST else f"{text[:_SHOWN]}...{_digest(text)}"
        return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES, key=self._salt).hexdigest()


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
