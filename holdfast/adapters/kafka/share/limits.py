"""The grants of a share group: how long a record is locked for a member, and how often it is delivered. Read from the
broker at the start: the client has neither."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.kafka._client import ConfigResource, ResourceType
from holdfast.adapters.kafka.admin import request_s
from holdfast.errors import SettingError, SourceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.kafka.admin import Admin
    from holdfast.plugin.handlers import Handler
    from holdfast.plugin.settings import Settings
    from holdfast.timing import Deadline

_log = logging.getLogger("holdfast.kafka")

_LOCK, _DELIVERIES, BEGINS = "share.record.lock.duration.ms", "share.delivery.count.limit", "share.auto.offset.reset"
_HEARTBEAT, _HEARTBEAT_MS = "share.heartbeat.interval.ms", 5_000
#: The broker's default, of brokers that tell it for no group (group.share.delivery.count.limit).
_DELIVERIES_DEFAULT = 5
#: A handler has one delivery, and its record's dead letter the next.
_LEAST_DELIVERIES = 2
#: Of a lock, for a dead letter and the acknowledgement; and the longest part for one call of a handler and its grace.
_SPARE, _MOST = 0.1, 0.75
#: An entry's source, if the group itself has the setting (DescribeConfigsResponse.ConfigSource.GROUP_CONFIG).
_GROUPS_OWN = 8


class Limits(NamedTuple):
    """The grants of one group."""

    #: Seconds from a record's delivery until others get it, if it was not acknowledged.
    lock_s: float
    #: Deliveries of one record. After the last, the broker archives it: it is delivered no more, handled or not.
    deliveries: int
    #: Where a group begins that is new to a partition ("earliest", "latest"), and whether the group itself says so.
    begins: str
    begins_by_choice: bool
    #: Seconds until a new client has its partitions, or an error: two heartbeats.
    join_s: float = 10.0

    @property
    def spare_s(self) -> float:
        """Seconds of a lock that are kept for a dead letter, or for giving the record back."""
        return self.lock_s * _SPARE

    @property
    def most_s(self) -> float:
        """The longest time for one call of a handler, with its grace."""
        return self.lock_s * _MOST


def read(admin: Admin, group: str, deadline: Deadline) -> Limits:
    """Read them. Needs DESCRIBE_CONFIGS on the group. Raises SourceError: they are not known, or nothing could be kept
    within them."""
    what = f"asking for the settings of the share group {group}"
    [future] = admin.client.describe_configs(
        [ConfigResource(ResourceType.GROUP, group)], request_timeout=request_s(deadline)
    ).values()
    try:
        found = admin.answer(future, deadline, what)
    except SourceError as error:
        raise type(error)(
            f"{error}; holdfast needs {_LOCK} and {_DELIVERIES}, so allow this user DESCRIBE_CONFIGS on the group"
        ) from error
    if (lock := found.get(_LOCK)) is None or lock.value is None:
        raise SourceError(f"{what}: these brokers have no share groups: use 4.2 or later, or KafkaSource")
    limit, begins, heartbeat = found.get(_DELIVERIES), found.get(BEGINS), found.get(_HEARTBEAT)
    if limit is None or limit.value is None:
        _log.warning("%s tells no %s: holdfast counts with %d, the default", group, _DELIVERIES, _DELIVERIES_DEFAULT)
    limits = Limits(
        lock_s=int(lock.value) / 1000,
        deliveries=_DELIVERIES_DEFAULT if limit is None or limit.value is None else int(limit.value),
        begins="latest" if begins is None or begins.value is None else begins.value,
        begins_by_choice=begins is not None and int(begins.source) == _GROUPS_OWN,
        join_s=2 * int(_HEARTBEAT_MS if heartbeat is None else heartbeat.value or _HEARTBEAT_MS) / 1000,
    )
    if limits.deliveries < _LEAST_DELIVERIES:
        raise SourceError(
            f"{_DELIVERIES}={limits.deliveries} of {group}: a record whose process dies would be lost. "
            + change(group, _DELIVERIES, _DELIVERIES_DEFAULT)
        )
    return limits


def change(group: str, name: str, value: object) -> str:
    """The command that changes a setting of a group."""
    return f"kafka-configs.sh --alter --entity-type groups --entity-name {group} --add-config {name}={value}"


def beginning(group: str, limits: Limits) -> str | None:
    """Where a new group begins, if nobody has decided it: a consumer's default, and this one's, differ. None: somebody
    has."""
    if limits.begins != "latest" or limits.begins_by_choice:
        return None
    return (
        f"{BEGINS}=latest, the default: if the share group {group} is new, it gets none of the records that are there "
        f"already. To have them, set it before the first start: {change(group, BEGINS, 'earliest')}. To keep it, set "
        "it to latest the same way"
    )


def check_handlers(handlers: Sequence[Handler], settings: Settings) -> None:
    """Check that no record can be lost by a handler: before any connection. Raises SettingError."""
    for each in handlers:
        if each.dead_letter is None:
            raise SettingError(
                "dead_letter",
                None,
                f"name a topic for {each.name}: a share group drops a record after {_DELIVERIES} deliveries, and "
                "holdfast writes it there instead",
            )
        timeout_s = _timeout_s(each, settings)
        if timeout_s is None or timeout_s == math.inf:
            raise SettingError(
                "handler_timeout_s" if each.timeout_s is None else "timeout_s",
                timeout_s,
                f"set it for {each.name}, to less than {_LOCK} of the group (30 s by default): a share group's lock "
                "cannot be renewed, and a handler that outlives it runs twice",
            )


def check_times(limits: Limits, group: str, handlers: Sequence[Handler], settings: Settings) -> None:
    """Check that each handler ends, or is given up, before the lock does. Raises SettingError."""
    for each in handlers:
        timeout_s, grace_s = _timeout_s(each, settings) or 0.0, settings.handler_grace_s
        if timeout_s + grace_s > limits.most_s:
            lock_ms = math.ceil((timeout_s + grace_s) / _MOST) * 1000
            raise SettingError(
                "timeout_s" if each.timeout_s is not None else "handler_timeout_s",
                timeout_s,
                f"{each.name} and handler_grace_s={grace_s:g} may take {timeout_s + grace_s:g} s, and a record of "
                f"{group} is locked for {limits.lock_s:g} s, of which {limits.most_s:g} are for the handler. Lower "
                f"them, or lengthen the lock: {change(group, _LOCK, lock_ms)} (the brokers' "
                "group.share.max.record.lock.duration.ms, 60000 by default, is the longest)",
            )


def _timeout_s(handler: Handler, settings: Settings) -> float | None:
    return settings.handler_timeout_s if handler.timeout_s is None else handler.timeout_s
