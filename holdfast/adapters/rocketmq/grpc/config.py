"""Settings of a LeasedSource, checked before anything is connected."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What the proxy takes: minInvisibleTimeMillsForRecv and maxInvisibleTimeMills of its configuration, as delivered.
_SHORTEST_S, _LONGEST_S = 10, 12 * 3600
_ANY_TAG = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Settings of a LeasedSource: what it takes, and for how long."""

    #: The consumer group.
    group: str
    #: How long a message is hidden from others after it came or was renewed, in whole seconds.
    invisible_s: int = 30
    #: Messages in the process (received, waiting, running, not acknowledged) from which on no more are asked for. What
    #: is on its way then may overshoot it by 32 a topic and broker.
    in_flight: int = 128
    #: By topic: "*", or tags as in "paid || refunded".
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcConfig(Wanted):
    """How to reach the proxy, and how much to take of it.

    Raises:
        SettingError: a value that cannot work.
    """

    #: Of the proxy: "host:port", several separated by semicolons.
    endpoints: str
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    namespace: str = ""
    tls: bool = False
    #: Name servers, for dead letters alone.
    namesrv: str | None = None
    #: How long the proxy may take to answer anything but a long poll, in whole seconds.
    request_timeout_s: int

    def __post_init__(self) -> None:
        for each in self.endpoints.split(";"):
            host, colon, port = each.strip().rpartition(":")
            if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
                raise SettingError(
                    "endpoints", self.endpoints, 'use "host:port" of the proxy, several with ";" between'
                )
        if not self.group.strip():
            raise SettingError("group", self.group, "name the consumer group")
        for name in ("invisible_s", "in_flight", "request_timeout_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SettingError(name, value, "use a whole number above 0")
        if not _SHORTEST_S <= self.invisible_s <= _LONGEST_S:
            raise SettingError(
                "invisible_s", self.invisible_s, f"the proxy takes {_SHORTEST_S} to {_LONGEST_S} seconds"
            )
        if self.request_timeout_s * 3 > self.invisible_s:
            raise SettingError(
                "request_timeout_s",
                self.request_timeout_s,
                f"use a third of invisible_s={self.invisible_s} at most: a renewal has to be answered in time",
            )
        if (self.access_key is None) is not (self.secret_key is None):
            missing = "secret_key" if self.secret_key is None else "access_key"
            raise SettingError(missing, None, "give access_key and secret_key, or neither")
        object.__setattr__(self, "tags", MappingProxyType(dict(self.tags)))

    def expression(self, topic: str) -> str:
        """The tags that are wanted of a topic."""
        return self.tags.get(topic, _ANY_TAG)
