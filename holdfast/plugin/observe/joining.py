"""Joining: a member that the group has not accepted yet, or has removed, as probes report it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """The client has asked to join, and the group has not given it an assignment."""

    #: Seconds since it began to wait.
    for_s: float
    #: The last fault that the source reported while it was no member, and its age in seconds; None = none.
    trouble: str | None = None
    trouble_s: float | None = None

    def __str__(self) -> str:
        said = "" if self.trouble is None else f"; the last trouble, {self.trouble_s or 0.0:.0f} s ago: {self.trouble}"
        return f"joining: the group has not let this member in for {self.for_s:.0f} s{said}"


@runtime_checkable
class HasName(Protocol):
    """A source whose member has a name."""

    @property
    def member_name(self) -> str:
        """The name of this member for brokers and tools. Any thread."""
        ...


def name_of(source: object) -> str | None:
    """Return the name of a source's member at brokers and in tools; None = the source has none."""
    return source.member_name if isinstance(source, HasName) else None


@runtime_checkable
class KnowsItsPlace(Protocol):
    """A source that knows whether it is a member of its group. For other sources the app goes by their assignments."""

    @property
    def in_group(self) -> bool:
        """Whether it is a member with an assignment, which may be empty. Sends no request; for the polling thread."""
        ...
