"""The state of a source, as probes report it: brokers that do not answer, and a member that is not in its group yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A client has sent requests to its brokers, and none has answered."""

    #: The brokers, for example "Kafka at b:9092".
    source: str
    #: Seconds since the last answer.
    for_s: float

    def __str__(self) -> str:
        return f"{self.source} has not answered this client for {self.for_s:.0f} s"


@runtime_checkable
class AsksBrokers(Protocol):
    """A source that checks whether its brokers answer while no records come."""

    @property
    def silence(self) -> Silence | None:
        """The silence of the brokers; None: they answer, as far as known. Sends no request; for the polling thread."""
        ...

    def cut_off(self) -> bool:
        """Check whether all brokers are gone: the client has lost its connections, and no broker listens now. A leaving
        app then waits for no answer. For the polling thread; may take a second for each broker."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """The client has asked to join, and the group has not given it an assignment."""

    #: Seconds since it began to wait.
    for_s: float
    #: The last fault that the source reported while it was no member, and its age in seconds; None = none.
    trouble: str | None = None
    trouble_s: float | None = None

    def __str__(self) -> str:
        text = f"joining: the group has not let this member in for {self.for_s:.0f} s"
        if self.trouble is None:
            return text
        return f"{text}; the last trouble, {self.trouble_s or 0.0:.0f} s ago: {self.trouble}"


@runtime_checkable
class HasName(Protocol):
    """A source whose member has a name."""

    @property
    def member_name(self) -> str:
        """The name of this member for brokers and tools. Any thread."""
        ...


def member_name_of(source: object) -> str | None:
    """Return the name of a source's member at brokers and in tools; None = the source has none."""
    return source.member_name if isinstance(source, HasName) else None


@runtime_checkable
class KnowsMembership(Protocol):
    """A source that knows whether it is a member of its group. For other sources the app goes by their assignments."""

    @property
    def in_group(self) -> bool:
        """Whether it is a member with an assignment, which may be empty. Sends no request; for the polling thread."""
        ...
