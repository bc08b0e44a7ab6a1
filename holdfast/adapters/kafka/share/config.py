"""The check of a share consumer's configuration before any client exists, and the client's own. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from holdfast.adapters.kafka.config import check
from holdfast.adapters.kafka.properties import addresses, as_int, check_known
from holdfast.errors import SettingError
from holdfast.plugin.secret_names import masked
from holdfast.plugin.setting_names import check_number

if TYPE_CHECKING:
    from collections.abc import Mapping

#: How the client takes records out of the process's hands: only by our word.
_MODE = "share.acknowledgement.mode"
_RECORDS = "max.poll.records"
#: Properties that only a share consumer knows.
_SHARE_ONLY = frozenset({_MODE, _RECORDS})
_GROUPS = "it is a setting of the group: kafka-configs.sh --alter --entity-type groups --entity-name <group>"
_NONE_ASSIGNED = "leave it out: a share group assigns no partitions to one member alone"
_NO_OFFSETS = "leave it out: a share group commits no offsets, each record is acknowledged by itself"
#: What a share consumer refuses, or ignores, and what to do instead.
_NOT_HERE = {
    "auto.offset.reset": f"{_GROUPS} --add-config share.auto.offset.reset=earliest",
    "isolation.level": f"{_GROUPS} --add-config share.isolation.level=read_committed",
    "session.timeout.ms": f"{_GROUPS} --add-config share.session.timeout.ms=45000",
    "heartbeat.interval.ms": f"{_GROUPS} --add-config share.heartbeat.interval.ms=5000",
    "group.instance.id": _NONE_ASSIGNED,
    "group.protocol": _NONE_ASSIGNED,
    "group.protocol.type": _NONE_ASSIGNED,
    "group.remote.assignor": _NONE_ASSIGNED,
    "partition.assignment.strategy": _NONE_ASSIGNED,
    "enable.auto.commit": _NO_OFFSETS,
    "auto.commit.enable": _NO_OFFSETS,
    "auto.commit.interval.ms": _NO_OFFSETS,
    "enable.auto.offset.store": _NO_OFFSETS,
    "enable.partition.eof": "leave it out: a share consumer reads no partition to its end",
    "queued.min.messages": "leave it out: a share consumer fetches nothing ahead",
    "queued.max.messages.kbytes": "leave it out: a share consumer fetches nothing ahead",
    "fetch.queue.backoff.ms": "leave it out: a share consumer fetches nothing ahead",
    "fetch.error.backoff.ms": "leave it out: the share consumer does not know it",
    "message.copy.max.bytes": "leave it out: the share consumer does not know it",
}
#: A client that does not poll for so long is no member any more. It does not poll while it has records in hand.
_POLL_MS = 300_000


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ShareConfig:
    """A configuration that can hold the promise; made by `check_share`. Its repr has no credentials."""

    #: For helpers: without what only a share consumer knows.
    conf: Mapping[str, object]
    #: Records that one poll asks for, as the user has set it; None: as many as handlers run at a time.
    records: int | None
    clients: int

    def __repr__(self) -> str:
        return f"ShareConfig(conf={masked(self.conf)!r}, records={self.records}, clients={self.clients})"

    @property
    def group(self) -> str:
        """The group's id."""
        return str(self.conf["group.id"])

    @property
    def bootstrap(self) -> str:
        """The brokers as the user wrote them."""
        return addresses(self.conf)

    def of_client(self, *, name: str, records: int, lock_s: float, own: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration of one client.

        Args:
            name: its client.id, unless the user has set one.
            records: records that one poll asks for, unless the user has set it.
            lock_s: how long it may have records in hand, and not poll.
            own: callbacks.
        """
        longest_ms = max(_POLL_MS, int(3 * lock_s * 1000))
        conf = {"client.id": name, "max.poll.interval.ms": longest_ms, **self.conf, **own}
        return {**conf, _MODE: "explicit", _RECORDS: records if self.records is None else self.records}


def check_share(conf: Mapping[str, object], clients: int) -> ShareConfig:
    """Check a configuration for `confluent_kafka.ShareConsumer`. Raises SettingError."""
    check_number("clients", clients, 1, "use 1 or more", whole=True)
    for name, remedy in _NOT_HERE.items():
        if conf.get(name) is not None:
            raise SettingError(name, conf[name], remedy)
    if str(conf.get(_MODE, "explicit")).strip().lower() != "explicit":
        raise SettingError(_MODE, conf[_MODE], "leave it out: holdfast acknowledges a record when it is done")
    asked = conf.get(_RECORDS)
    records = None if asked is None else as_int(_RECORDS, asked)
    if records is not None and records < 1:
        raise SettingError(_RECORDS, asked, "use a whole number above 0")
    checked = check({name: value for name, value in conf.items() if name not in _SHARE_ONLY}, "keep").conf
    check_known(checked)
    return ShareConfig(conf=MappingProxyType(dict(checked)), records=records, clients=clients)
