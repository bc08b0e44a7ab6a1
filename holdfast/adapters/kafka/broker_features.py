"""The brokers' features, found by asking the brokers.

librdkafka does not report them: with group.protocol=consumer and brokers below 4.0 it looks for another coordinator for
ever (rd_kafka_ConsumerGroupHeartbeatRequest), without an error and without a member. A probe that joins would need a
right on some group and leave that group behind, or disturb the user's own. The request used here is therefore the first
one of every client.

That request is ApiVersions (key 18; Kafka's ApiVersionsRequest.json and ApiVersionsResponse.json; versions 0 and 3).
librdkafka sends it on every connection, and has no call for the answer. Brokers answer it before authentication and
without any access right; it names no group.

The answer does not tell two things: whether the configuration of a 4.x broker switches the protocol off for all groups
(group.coordinator.rebalance.protocols), and whether a *running classic* group lets members of the consumer protocol in
(group.consumer.migration.policy: bidirectional by default, then members change over one by one). In these cases the
join itself is refused, and the client ends with `_FATAL`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.kafka import wire
from holdfast.adapters.kafka._client import libversion
from holdfast.adapters.kafka.admin import Admin
from holdfast.adapters.kafka.wire import Malformed
from holdfast.timing import Deadline

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

_CONSUMER_GROUP_HEARTBEAT = 68

_API_VERSIONS = 18
_UNSUPPORTED_VERSION = 35
_FINALIZED_FEATURES = 2  # the tag of that field
# librdkafka speaks version 1 of the heartbeat, which is that of Kafka 4.0 (KIP-848, general availability).
_HEARTBEAT_VERSION = 1
_FEATURE = "group.version"
# librdkafka 2.12.0 is its first release in which the consumer protocol is more than a preview (its CHANGELOG).
_GENERAL_AVAILABILITY = 0x020C0000
# How long to wait for an answer: librdkafka has just got one, so a broker that takes longer will not answer.
_ANSWER_S = 5.0
# Addresses to ask at most: any broker knows the answer.
_AT_ONCE = 8


class ApiVersions(NamedTuple):
    """A broker's answer."""

    #: API key -> (lowest, highest) version.
    ranges: Mapping[int, tuple[int, int]]
    #: Feature -> level in force for the whole cluster; None = not in the answer (below 2.7, mock cluster).
    features: Mapping[str, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFeatures:
    """The features that were found. `why` is a clause for logs and for the reasons of settings."""

    consumer_protocol: bool
    why: str
    #: False: the brokers answer librdkafka, but this request could not be sent; `consumer_protocol` is then False.
    asked: bool = True


NOT_ASKED = BrokerFeatures(consumer_protocol=False, why="the configuration does not depend on it", asked=False)


def ask(conf: Mapping[str, object], deadline: Deadline) -> BrokerFeatures:
    """Ask the cluster; blocks until the deadline at most. Touches no group and needs no access right.

    Raises:
        SourceUnavailable: no broker answers.
        NotAuthorised: the brokers refuse the credentials, or TLS is not agreed on.
        SettingError: librdkafka refuses the configuration.
    """
    # First by librdkafka, which uses all security settings of the user: an unreachable broker or a refused password
    # raises here, and is not confused with a request that only this module cannot send.
    Admin(conf).reach(deadline)
    if libversion()[1] < _GENERAL_AVAILABILITY:
        return BrokerFeatures(
            consumer_protocol=False,
            why=f"librdkafka {libversion()[0]} has the consumer protocol only as a preview (2.12.0 has it)",
        )
    try:
        context = wire.tls_context(conf) if wire.uses_tls(conf) else None
    except (wire.TlsUnsupported, OSError, ValueError) as error:
        return _not_asked(str(error))
    found = _first_answer(wire.bootstrap(conf), context, Deadline(deadline.left_s(at_most=_ANSWER_S)))
    return _not_asked(found) if isinstance(found, str) else judge(found)


def judge(said: ApiVersions) -> BrokerFeatures:
    """Read the features from a broker's answer."""
    highest = said.ranges.get(_CONSUMER_GROUP_HEARTBEAT, (0, -1))[1]
    if highest < _HEARTBEAT_VERSION:
        return BrokerFeatures(consumer_protocol=False, why="the broker is older than 4.0 and has no consumer protocol")
    if said.features is not None and said.features.get(_FEATURE, 0) < 1:
        return BrokerFeatures(
            consumer_protocol=False, why="the cluster has the consumer protocol off (group.version=0)"
        )
    return BrokerFeatures(consumer_protocol=True, why="the broker has the consumer protocol (KIP-848)")


def _first_answer(
    addresses: Sequence[tuple[str, int]], context: ssl.SSLContext | None, deadline: Deadline
) -> ApiVersions | str:
    """Ask all at the same time. Returns the first answer, so that a silent address costs no time; or the error of the
    last one."""
    answers: SimpleQueue[ApiVersions | str] = SimpleQueue()

    def one(host: str, port: int) -> None:
        try:
            answers.put(fetch(host, port, context, deadline))
        # UnicodeError: a host name that no name server could have. Another address may answer; librdkafka found one.
        except (OSError, Malformed, UnicodeError) as error:
            answers.put(f"{host}:{port}: {error}")

    asked = addresses[:_AT_ONCE]
    for host, port in asked:
        threading.Thread(target=one, args=(host, port), name=f"holdfast-asks-{host}", daemon=True).start()
    found: ApiVersions | str = "no address"
    for _ in asked:
        try:
            found = answers.get(timeout=max(0.001, deadline.left_s(_ANSWER_S)))
        except Empty:
            break
        if not isinstance(found, str):
            break
    return found


def _not_asked(why: str) -> BrokerFeatures:
    return BrokerFeatures(
        consumer_protocol=False, why=f"whether the broker has the consumer protocol is not known ({why})", asked=False
    )


# ---- the request
def fetch(host: str, port: int, tls: ssl.SSLContext | None, deadline: Deadline) -> ApiVersions:
    """Ask one broker. Blocks until the deadline at most. Raises OSError: no answer; Malformed: it cannot be read."""
    found = decode(wire.exchange(host, port, tls, encode(3), deadline), 3)
    if found is None:  # "use version 0": brokers below 2.4, and the mock cluster
        found = decode(wire.exchange(host, port, tls, encode(0), deadline), 0)
    if found is None:
        raise Malformed("the broker refuses version 0 of ApiVersions, which all brokers have")
    return found


def encode(version: int) -> bytes:
    """Encode a request, with its length in front."""
    # Version 3: tagged fields of the header; name and version of the software; tagged fields.
    body = b"\0" + wire.compact(wire.CLIENT.decode()) + wire.compact("0") + b"\0" if version >= 3 else b""
    return wire.request(_API_VERSIONS, version, body)


def decode(payload: bytes, version: int) -> ApiVersions | None:
    """Decode an answer without its length; None = the broker wants version 0. Raises Malformed."""
    reader = wire.answer(payload)
    error = reader.int16()
    if error == _UNSUPPORTED_VERSION and version > 0:
        return None
    if error != 0:
        raise Malformed(f"the broker answers ApiVersions with error {error}")
    flexible = version >= 3
    ranges = {}
    for _ in range(reader.varint() - 1 if flexible else reader.int32()):
        key, lowest, highest = reader.int16(), reader.int16(), reader.int16()
        ranges[key] = (lowest, highest)
        if flexible:
            reader.skip_tags()
    if not flexible:
        return ApiVersions(ranges, None)
    reader.int32()  # throttle time
    tags = {reader.varint(): reader.take(reader.varint()) for _ in range(reader.varint())}
    return ApiVersions(ranges, _features(tags[_FINALIZED_FEATURES]) if _FINALIZED_FEATURES in tags else None)


def _features(field: bytes) -> dict[str, int]:
    reader, levels = wire.Reader(field), {}
    for _ in range(reader.varint() - 1):
        name = reader.take(reader.varint() - 1).decode("utf-8", "replace")
        levels[name] = reader.int16()
        reader.int16()  # the lowest level
        reader.skip_tags()
    return levels
