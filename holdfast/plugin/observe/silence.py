"""Silence: brokers that do not answer a source, as probes report it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A client has asked its brokers, and none has answered."""

    #: The brokers, for example "Kafka at b:9092".
    source: str
    #: Seconds since the last answer.
    for_s: float

    def __str__(self) -> str:
        return f"{self.source} has not answered this client for {self.for_s:.0f} s"


@runtime_checkable
class AsksBrokers(Protocol):
    """A source that looks whether its brokers answer while nothing comes from them."""

    @property
    def silence(self) -> Silence | None:
        """None = they answer, as far as is known. Asks nobody; by the thread that polls."""
        ...

    def cut_off(self) -> bool:
        """Look whether all brokers are gone: the client has lost them since it heard of one, and none listens now. Who
        leaves then waits for no answer. By the thread that polls; it may take a second for each."""
        ...
