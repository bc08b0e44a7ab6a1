"""Settings of a LeasedSource, checked before anything is connected."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The proxy's default limits: minInvisibleTimeMillsForRecv and maxInvisibleTimeMills of its configuration.
_SHORTEST_S, _LONGEST_S = 10, 12 * 3600
_ANY_TAG = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Settings of a LeasedSource: which messages it takes, and for how long."""

    #: The consumer group.
    group: str
    #: How long a message is hidden from other members after its delivery or renewal, in whole seconds.
    invisible_s: int = 30
    #: With this many messages in the process (received, waiting, running, not acknowledged), no more are requested.
    #: Polls under way may exceed it by 32 for each topic and broker.
    in_flight: int = 128
    #: Topic -> "*", or tags as in "paid || refunded".
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcConfig(Wanted):
    """All settings of a LeasedSource.

    Raises:
        SettingError: a value that cannot work.
    """

    #: The proxy's addresses: "host:port", several separated by semicolons.
    endpoints: str
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    namespace: str = ""
    tls: bool = False
    #: Name servers, for dead letters and for checks of the group.
    namesrv: str | None = None
    #: The timeout of all requests except long polls, in whole seconds.
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
        """The tags of a topic's subscription."""
        return self.tags.get(topic, _ANY_TAG)
