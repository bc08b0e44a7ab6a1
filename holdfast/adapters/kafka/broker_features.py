"""The brokers' features, found by asking the brokers.

librdkafka does not report them: with group.protocol=consumer and brokers below 4.0 it looks for another coordinator for
ever (rd_kafka_ConsumerGroupHeartbeatRequest), without an error and without a member. A probe that joins would need a
right on some group and leave that group behind, or disturb the user's own. The request used here is therefore the first
one of every client.

The answer does not tell two things: whether the configuration of a 4.x broker switches the protocol off for all groups
(group.coordinator.rebalance.protocols), and whether a *running classic* group lets members of the consumer protocol in
(group.consumer.migration.policy: bidirectional by default, then members change over one by one). In these cases the
join itself is refused, and the client ends with `_FATAL`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from holdfast.adapters.kafka import tls
from holdfast.adapters.kafka._client import libversion
from holdfast.adapters.kafka.admin import Admin
from holdfast.adapters.kafka.api_versions import CONSUMER_GROUP_HEARTBEAT, fetch
from holdfast.adapters.kafka.properties import DEFAULT_PORT, addresses
from holdfast.adapters.kafka.wire import Malformed
from holdfast.timing import Deadline

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

    from holdfast.adapters.kafka.api_versions import ApiVersions

# librdkafka speaks version 1 of the heartbeat, which is that of Kafka 4.0 (KIP-848, general availability).
_HEARTBEAT_VERSION = 1
_FEATURE = "group.version"
# librdkafka 2.12.0 is its first release in which the consumer protocol is more than a preview (its CHANGELOG).
_GENERAL_AVAILABILITY = 0x020C0000
# How long to wait for an answer: librdkafka has just got one, so a broker that takes longer will not answer.
_ANSWER_S = 5.0
# Addresses to ask at most: any broker knows the answer.
_AT_ONCE = 8


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
        context = tls.context(conf) if tls.uses_tls(conf) else None
    except (tls.CannotSay, OSError, ValueError) as error:
        return _not_asked(str(error))
    found = _first_answer(bootstrap(conf), context, Deadline(deadline.left_s(at_most=_ANSWER_S)))
    return _not_asked(found) if isinstance(found, str) else judge(found)


def judge(answer: ApiVersions) -> BrokerFeatures:
    """Read the features from a broker's answer."""
    highest = answer.ranges.get(CONSUMER_GROUP_HEARTBEAT, (0, -1))[1]
    if highest < _HEARTBEAT_VERSION:
        return BrokerFeatures(consumer_protocol=False, why="the broker is older than 4.0 and has no consumer protocol")
    if answer.features is not None and answer.features.get(_FEATURE, 0) < 1:
        return BrokerFeatures(
            consumer_protocol=False, why="the cluster has the consumer protocol off (group.version=0)"
        )
    return BrokerFeatures(consumer_protocol=True, why="the broker has the consumer protocol (KIP-848)")


def bootstrap(conf: Mapping[str, object]) -> list[tuple[str, int]]:
    """The addresses of bootstrap.servers as librdkafka reads them: [proto://]host[:port], [v6]:port."""
    found = []
    for each in addresses(conf).split(","):
        address = each.strip().rpartition("://")[2]
        if not address:
            continue
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdecimal() or (":" in host and not host.endswith("]")):
            host, port = address, str(DEFAULT_PORT)  # no port, or an IPv6 address without brackets
        found.append((host.strip("[]"), int(port)))
    return found


def _first_answer(
    addresses: Sequence[tuple[str, int]], context: ssl.SSLContext | None, deadline: Deadline
) -> ApiVersions | str:
    """Ask all at the same time. Returns the first answer, so that a silent address costs no time; or the error of the
    last one."""
    answers: SimpleQueue[ApiVersions | str] = SimpleQueue()

    def one(host: str, port: int) -> None:
        try:
            answers.put(_fetch(host, port, context, deadline))
        except (OSError, Malformed) as error:  # another may answer; librdkafka found one that does
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


def _fetch(host: str, port: int, context: ssl.SSLContext | None, deadline: Deadline) -> ApiVersions:
    try:
        return fetch(host, port, context, deadline)
    except UnicodeError as error:  # a host name that no name server could have
        raise OSError(str(error)) from error


def _not_asked(why: str) -> BrokerFeatures:
    return BrokerFeatures(
        consumer_protocol=False, why=f"whether the broker has the consumer protocol is not known ({why})", asked=False
    )
