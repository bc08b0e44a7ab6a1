"""Silence: brokers that do not answer a source, as probes report it."""

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
