"""One request to a broker: which requests does it know, and which cluster features are on (ApiVersions, key 18).

librdkafka sends it on every connection, and has no call for the answer. It is the first request of the protocol,
answered before authentication and without any access right; it names no group. Layout: Kafka's ApiVersionsRequest.json
and ApiVersionsResponse.json; versions 0 and 3. Encoding and decoding are pure, `fetch` does the I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.kafka.wire import CLIENT, Malformed, Reader, answer, compact, exchange, request

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from holdfast.timing import Deadline

CONSUMER_GROUP_HEARTBEAT = 68

_API_VERSIONS = 18
_UNSUPPORTED_VERSION = 35
_FINALIZED_FEATURES = 2  # the tag of that field


class ApiVersions(NamedTuple):
    """A broker's answer."""

    #: API key -> (lowest, highest) version.
    ranges: Mapping[int, tuple[int, int]]
    #: Feature -> level in force for the whole cluster; None = not in the answer (below 2.7, mock cluster).
    features: Mapping[str, int] | None


def fetch(host: str, port: int, tls: ssl.SSLContext | None, deadline: Deadline) -> ApiVersions:
    """Ask one broker. Blocks until the deadline at most. Raises OSError: no answer; Malformed: it cannot be read."""
    found = decode(exchange(host, port, tls, encode(3), deadline), 3)
    if found is None:  # "use version 0": brokers below 2.4, and the mock cluster
        found = decode(exchange(host, port, tls, encode(0), deadline), 0)
    if found is None:
        raise Malformed("the broker refuses version 0 of ApiVersions, which all brokers have")
    return found


def encode(version: int) -> bytes:
    """Encode a request, with its length in front."""
    # Version 3: tagged fields of the header; name and version of the software; tagged fields.
    body = b"\0" + compact(CLIENT.decode()) + compact("0") + b"\0" if version >= 3 else b""
    return request(_API_VERSIONS, version, body)


def decode(payload: bytes, version: int) -> ApiVersions | None:
    """Decode an answer without its length; None = the broker wants version 0. Raises Malformed."""
    reader = answer(payload)
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
    reader, levels = Reader(field), {}
    for _ in range(reader.varint() - 1):
        name = reader.take(reader.varint() - 1).decode("utf-8", "replace")
        levels[name] = reader.int16()
        reader.int16()  # the lowest level
        reader.skip_tags()
    return levels
