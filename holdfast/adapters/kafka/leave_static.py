"""A static member leaves for good: its partitions go to others at once, not after its session.

In the classic protocol librdkafka says so when it is asked to unsubscribe, and nothing when it is closed. In the
consumer protocol it always says "I come back" (epoch -2, KIP-848), whatever is called, so the other word (epoch -1) is
sent by hand: FindCoordinator, key 10, and ConsumerGroupHeartbeat, key 68, both version 0. Measured on Kafka 4.3.1;
layouts: Kafka's message definitions.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.kafka import tls
from holdfast.adapters.kafka.broker_features import bootstrap
from holdfast.adapters.kafka.config import GroupProtocol
from holdfast.adapters.kafka.wire import Malformed, answer, compact, exchange, request
from holdfast.timing import Deadline

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from holdfast.adapters.kafka._client import Consumer
    from holdfast.adapters.kafka.emission import ClientConfig

_log = logging.getLogger("holdfast.kafka")

_FIND_COORDINATOR, _HEARTBEAT = 10, 68
_LEAVE_FOR_GOOD = -1
#: The member is not in the group (any more): what was wanted.
_GONE = frozenset({25, 69})  # UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND
#: One look at a client that is about to go.
_LOOK_S = 0.02
# How long one address may take to tell who coordinates the group.
_ADDRESS_S = 2.0


class Failed(Exception):
    """The member still counts as one that comes back; the message is a clause that says why."""


class StaticMember(NamedTuple):
    """A static member as the broker knows it."""

    group: str
    #: What the client has given itself; another one is refused.
    member_id: str
    static_id: str


def cannot(conf: Mapping[str, object]) -> str | None:
    """Why nothing can be said by hand with this configuration; None = it can."""
    if str(conf.get("security.protocol", "plaintext")).strip().lower().startswith("sasl"):
        return "requests by hand do not speak SASL"
    try:
        if tls.uses_tls(conf):
            tls.context(conf)
    except (tls.CannotSay, OSError, ValueError) as error:
        return str(error)
    return None


def leave(consumer: Consumer, client: ClientConfig, deadline: Deadline) -> None:
    """Leave for good; where that cannot be said, the log says so. Close, whatever is raised. The client's thread."""
    if client.protocol is not GroupProtocol.CONSUMER:
        # It leaves once its partitions are given back, in a poll; then it has no member id any more. While it joins for
        # the first time it has none yet, and nothing to leave with.
        if not consumer.memberid():
            _log.warning(
                "%s stops before %s has let it in: if it comes in yet, others wait for its session",
                client.static_id,
                client.group,
            )
        try:
            consumer.unsubscribe()
            while consumer.memberid() and not deadline.passed:
                consumer.poll(_LOOK_S)
        finally:
            consumer.close()
        return
    member = StaticMember(client.group, consumer.memberid() or "", client.static_id or "")
    consumer.close()
    try:
        leave_for_good(client.conf, member, deadline)
    except Failed as error:
        _log.warning(
            "%s cannot leave %s for good: %s; others wait for its session", member.static_id, member.group, error
        )


def leave_for_good(conf: Mapping[str, object], member: StaticMember, deadline: Deadline) -> None:
    """Say it to the group's coordinator. Blocks until the deadline at most. Raises Failed."""
    if (why := cannot(conf)) is not None:
        raise Failed(why)
    context = tls.context(conf) if tls.uses_tls(conf) else None
    failure = "no address"
    for host, port in bootstrap(conf):
        try:
            share = Deadline(deadline.left_s(at_most=_ADDRESS_S))  # one that is silent leaves time for the next
            coordinator = _find(host, port, context, member.group, share)
            reply = exchange(*coordinator, context, encode_leave(member), deadline)
        except (OSError, Malformed, UnicodeError) as error:
            failure = f"{host}:{port}: {error}"
            continue
        error_code = decode_leave(reply)
        if error_code and error_code not in _GONE:
            raise Failed(f"the coordinator answers with error {error_code}")
        return
    raise Failed(failure)


def _find(host: str, port: int, context: ssl.SSLContext | None, group: str, deadline: Deadline) -> tuple[str, int]:
    return decode_coordinator(exchange(host, port, context, encode_find(group), deadline))


# ---- bytes
def encode_find(group: str) -> bytes:
    """FindCoordinator, version 0: the group's name and nothing else."""
    name = group.encode()
    return request(_FIND_COORDINATOR, 0, struct.pack(">h", len(name)) + name)


def decode_coordinator(payload: bytes) -> tuple[str, int]:
    """Read the coordinator's address. Raises Malformed."""
    reader = answer(payload)
    if error := reader.int16():
        raise Malformed(f"the broker answers FindCoordinator with error {error}")
    reader.int32()  # the node's id
    host = reader.take(reader.int16()).decode("utf-8", "replace")
    return host, reader.int32()


def encode_leave(member: StaticMember) -> bytes:
    """ConsumerGroupHeartbeat, version 0, with the epoch that ends a membership."""
    body = (
        b"\0"  # tagged fields of the header
        + compact(member.group)
        + compact(member.member_id)
        + struct.pack(">i", _LEAVE_FOR_GOOD)
        + compact(member.static_id)
        + b"\0"  # rack: null
        + struct.pack(">i", -1)  # rebalance timeout: as it was
        + b"\0\0\0"  # topics, assignor, partitions: null, as they were
        + b"\0"  # tagged fields
    )
    return request(_HEARTBEAT, 0, body)


def decode_leave(payload: bytes) -> int:
    """The error code; 0 = done. Raises Malformed."""
    reader = answer(payload)
    reader.skip_tags()
    reader.int32()  # throttle time
    return reader.int16()
