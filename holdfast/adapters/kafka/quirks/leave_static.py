"""A static member that is closed: it comes back, or it leaves for good and its partitions go to others at once.

- What the client does: in the classic protocol librdkafka sends LeaveGroup at `unsubscribe`, and nothing at `close`. In
  the consumer protocol its `close` always announces a return (epoch -2, KIP-848). Before its first join is answered (a
  classic group collects its members, or waits for one that drains) it sends nothing in either protocol, though the
  broker has the member already.
- Seen with librdkafka 2.16 on Kafka 4.3.1. No issue of the client was found.
- What holdfast does: it sends the missing request by hand. For good: LeaveGroup by the static id (classic), or
  epoch -1 (consumer protocol). To come back during a first join: epoch -2, or the next start would be refused for a
  session; a classic successor takes the place of a member that is joining. Over SASL nothing can be sent by hand.
- Requests: FindCoordinator, key 10, and ConsumerGroupHeartbeat, key 68, both version 0; LeaveGroup, key 13, version 3
  (Kafka 2.4), which names a member by its static id alone. Layouts: Kafka's message definitions.
- It can go when the client has a call for each of the two.
- Tests: tests/contracts/kafka/test_static_members.py, tests/unit/test_kafka_static_members.py.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.kafka import wire
from holdfast.adapters.kafka.config import GroupProtocol
from holdfast.adapters.kafka.joining import is_member
from holdfast.adapters.kafka.wire import Malformed
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from holdfast.adapters.kafka._client import Consumer
    from holdfast.adapters.kafka.emission import ClientConfig

_log = logging.getLogger("holdfast.kafka")

_FIND_COORDINATOR, _LEAVE_GROUP, _HEARTBEAT = 10, 13, 68
_LEAVE_FOR_GOOD, _COME_BACK = -1, -2
#: Errors that count as success: the member is not in the group (any more), or another member has its static id.
_GONE = frozenset({25, 69, 82})  # UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND, FENCED_INSTANCE_ID
#: The timeout of one poll of a client that is leaving.
_LOOK_S = 0.02
# How long one address may take to tell the group's coordinator.
_ADDRESS_S = 2.0
#: How long a request to join may still be on its way after its connection was closed.
_ON_ITS_WAY_S = 0.2


class Failed(Exception):
    """The coordinator was not told; the message is a clause that says why."""


class StaticMember(NamedTuple):
    """A static member as the broker knows it."""

    group: str
    #: The id that the client has given itself (with another one the broker refuses); "" = in a classic group, where it
    #: is not known yet.
    member_id: str
    static_id: str


def why_unsendable(conf: Mapping[str, object]) -> str | None:
    """Why no request can be sent by hand with this configuration; None = it can."""
    if str(conf.get("security.protocol", "plaintext")).strip().lower().startswith("sasl"):
        return "requests by hand do not speak SASL"
    try:
        if wire.uses_tls(conf):
            wire.tls_context(conf)
    except (wire.TlsUnsupported, OSError, ValueError) as error:
        return str(error)
    return None


def close(consumer: Consumer, client: ClientConfig, deadline: Deadline, *, leave: bool) -> None:
    """Close a static member that has subscribed, and tell the coordinator whether it leaves for good. If that is not
    possible, the log says so. The client is closed whatever is raised. In the client's thread.

    Args:
        consumer: the member's client.
        client: its configuration.
        deadline: of the whole call.
        leave: whether it leaves for good.
    """
    classic = client.protocol is not GroupProtocol.CONSUMER
    member = StaticMember(client.group, consumer.memberid() or "", client.static_id or "")
    joining = not member.member_id if classic else is_member(consumer) is False
    try:
        if leave and classic:
            _unsubscribe(consumer, deadline)
    finally:
        consumer.close()
    if (leave and joining) if classic else (leave or joining):
        _say(client.conf, member, deadline, leave=leave, twice=joining)


def _unsubscribe(consumer: Consumer, deadline: Deadline) -> None:
    """Unsubscribe, and poll until the partitions are given back: then the client has no member id any more."""
    consumer.unsubscribe()
    while consumer.memberid() and not deadline.passed:
        consumer.poll(_LOOK_S)


def _say(conf: Mapping[str, object], member: StaticMember, deadline: Deadline, *, leave: bool, twice: bool) -> None:
    try:
        if not tell(conf, member, deadline, leave=leave) and twice:
            SYSTEM_CLOCK.sleep(deadline.left_s(at_most=_ON_ITS_WAY_S))
            tell(conf, member, deadline, leave=leave)
    except Failed as error:
        if leave:
            _log.warning(
                "%s cannot leave %s for good: %s; other members wait for its session",
                member.static_id,
                member.group,
                error,
            )
        else:
            _log.warning(
                "%s stops before %s has let it in, and cannot say that it comes back: %s; its next start may have to "
                "wait for its session",
                member.static_id,
                member.group,
                error,
            )


def tell(conf: Mapping[str, object], member: StaticMember, deadline: Deadline, *, leave: bool) -> bool:
    """Tell the group's coordinator that the member leaves for good, or comes back. Blocks until the deadline at most.
    Raises Failed.

    Returns: False = the coordinator knows no such member.
    """
    if (why := why_unsendable(conf)) is not None:
        raise Failed(why)
    context = wire.tls_context(conf) if wire.uses_tls(conf) else None
    if member.member_id:
        asked, read = encode_heartbeat(member, leave=leave), decode_heartbeat
    else:
        asked, read = encode_leave(member), decode_leave
    failure = "no address"
    for host, port in wire.bootstrap(conf):
        try:
            share = Deadline(deadline.left_s(at_most=_ADDRESS_S))  # a silent address leaves time for the next one
            coordinator = _find(host, port, context, member.group, share)
            error_code = read(wire.exchange(*coordinator, context, asked, deadline))
        except (OSError, Malformed, UnicodeError) as error:
            failure = f"{host}:{port}: {error}"
            continue
        if error_code and error_code not in _GONE:
            raise Failed(f"the coordinator answers with error {error_code}")
        return not error_code
    raise Failed(failure)


def _find(host: str, port: int, context: ssl.SSLContext | None, group: str, deadline: Deadline) -> tuple[str, int]:
    return decode_coordinator(wire.exchange(host, port, context, encode_find(group), deadline))


# ---- bytes
def encode_find(group: str) -> bytes:
    """FindCoordinator, version 0: the group's name and nothing else."""
    name = group.encode()
    return wire.request(_FIND_COORDINATOR, 0, struct.pack(">h", len(name)) + name)


def decode_coordinator(payload: bytes) -> tuple[str, int]:
    """Read the coordinator's address. Raises Malformed."""
    reader = wire.answer(payload)
    if error := reader.int16():
        raise Malformed(f"the broker answers FindCoordinator with error {error}")
    reader.int32()  # the node's id
    host = reader.take(reader.int16()).decode("utf-8", "replace")
    return host, reader.int32()


def encode_heartbeat(member: StaticMember, *, leave: bool) -> bytes:
    """ConsumerGroupHeartbeat, version 0, with the epoch that ends a membership, or that keeps its place for a
    successor."""
    body = (
        b"\0"  # tagged fields of the header
        + wire.compact(member.group)
        + wire.compact(member.member_id)
        + struct.pack(">i", _LEAVE_FOR_GOOD if leave else _COME_BACK)
        + wire.compact(member.static_id)
        + b"\0"  # rack: null
        + struct.pack(">i", -1)  # rebalance timeout: as it was
        + b"\0\0\0"  # topics, assignor, partitions: null, as they were
        + b"\0"  # tagged fields
    )
    return wire.request(_HEARTBEAT, 0, body)


def decode_heartbeat(payload: bytes) -> int:
    """Read the error code; 0 = success. Raises Malformed."""
    reader = wire.answer(payload)
    reader.skip_tags()
    reader.int32()  # throttle time
    return reader.int16()


def encode_leave(member: StaticMember) -> bytes:
    """LeaveGroup, version 3, of one member. Without a member id it is about the current holder of the static id."""
    group, member_id, static_id = (text.encode() for text in member)
    body = b"".join(
        (
            struct.pack(">h", len(group)) + group,
            struct.pack(">i", 1),  # number of members
            struct.pack(">h", len(member_id)) + member_id,
            struct.pack(">h", len(static_id)) + static_id,
        )
    )
    return wire.request(_LEAVE_GROUP, 3, body)


def decode_leave(payload: bytes) -> int:
    """Read the error code of the request, or of its one member; 0 = success. Raises Malformed."""
    reader = wire.answer(payload)
    reader.int32()  # throttle time
    if (error := reader.int16()) or reader.int32() < 1:
        return error
    reader.text(), reader.text()  # its two ids
    return reader.int16()
