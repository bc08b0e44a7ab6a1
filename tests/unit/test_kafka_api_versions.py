"""ApiVersions: the bytes of the question and of its answers, and what follows from them."""

from __future__ import annotations

import ssl
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.kafka.broker_features import ApiVersions, decode, encode, judge
from holdfast.adapters.kafka.wire import Malformed, TlsUnsupported, bootstrap, tls_context, uses_tls
from holdfast.errors import SettingError

# As a Kafka 4.3.1 answered, with two of its requests and two of its features left in.
ANSWER_V3 = (
    struct.pack(">ih", 1, 0)
    + b"\x03" + struct.pack(">hhh", 18, 0, 4) + b"\0" + struct.pack(">hhh", 68, 0, 1) + b"\0"
    + struct.pack(">i", 0)
    + b"\x03"
    + b"\x00\x17" + b"\x02\x11metadata.version\x00\x07\x00\x1e\x00"
    + b"\x01\x08" + struct.pack(">q", 897)
    + b"\x02\x2a" + b"\x03\x0egroup.version\x00\x01\x00\x01\x00\x11metadata.version\x00\x1e\x00\x1e\x00"
)  # fmt: skip
ANSWER_V0 = struct.pack(">ihi", 1, 0, 1) + struct.pack(">hhh", 68, 1, 1)
USE_V0 = struct.pack(">ih", 1, 35) + b"anything"


def test_an_answer_with_features_is_read() -> None:
    answer = decode(ANSWER_V3, 3)
    assert answer == ApiVersions({18: (0, 4), 68: (0, 1)}, {"group.version": 1, "metadata.version": 30})


def test_an_answer_of_an_old_broker_is_read() -> None:
    assert decode(ANSWER_V0, 0) == ApiVersions({68: (1, 1)}, None)


def test_a_broker_that_wants_the_first_version_is_understood() -> None:
    assert decode(USE_V0, 3) is None
    with pytest.raises(Malformed):
        decode(USE_V0, 0)


def test_an_answer_to_another_question_is_refused() -> None:
    with pytest.raises(Malformed):
        decode(struct.pack(">ihi", 2, 0, 0), 0)


@pytest.mark.parametrize("length", range(len(ANSWER_V3)))
def test_an_answer_that_is_cut_short_is_never_half_believed(length: int) -> None:
    with pytest.raises(Malformed):
        decode(ANSWER_V3[:length], 3)


@given(st.binary(max_size=200), st.sampled_from([0, 3]))
def test_any_bytes_are_an_answer_or_malformed(payload: bytes, version: int) -> None:
    try:
        decode(struct.pack(">ih", 1, 0) + payload, version)
    except Malformed:
        return


@pytest.mark.parametrize("version", [0, 3])
def test_a_question_says_its_length(version: int) -> None:
    question = encode(version)
    assert struct.unpack(">ihhi", question[:12]) == (len(question) - 4, 18, version, 1)


@pytest.mark.parametrize(
    ("heartbeat", "features", "can"),
    [
        ((0, 1), {"group.version": 1}, True),
        ((0, 2), {"group.version": 2}, True),
        ((1, 1), None, True),  # the mock cluster
        ((0, 1), {"metadata.version": 30}, False),  # 4.x with the feature off
        ((0, 1), {}, False),
        ((0, 0), {"group.version": 1}, False),  # 3.7 to 3.9: an early version that librdkafka does not speak
        (None, {"metadata.version": 14}, False),  # 3.x
        (None, None, False),
    ],
)
def test_what_a_broker_can_follows_from_its_answer(
    heartbeat: tuple[int, int] | None, features: dict[str, int] | None, *, can: bool
) -> None:
    answer = judge(ApiVersions({} if heartbeat is None else {68: heartbeat}, features))
    assert answer.consumer_protocol is can
    assert answer.asked


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("broker", [("broker", 9092)]),
        ("a:1, b:2 ,", [("a", 1), ("b", 2)]),
        ("SASL_SSL://broker:9093", [("broker", 9093)]),
        ("[::1]:9094", [("::1", 9094)]),
        ("::1", [("::1", 9092)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_addresses_are_read_as_librdkafka_reads_them(said: str, found: list[tuple[str, int]]) -> None:
    assert bootstrap({"bootstrap.servers": said}) == found


# -- its TLS ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("protocol", "tls_"), [("ssl", True), ("SASL_SSL", True), ("plaintext", False), (None, False)])
def test_tls_is_spoken_where_the_configuration_says_so(protocol: str | None, *, tls_: bool) -> None:
    assert uses_tls({} if protocol is None else {"security.protocol": protocol}) is tls_


def test_brokers_are_verified_unless_the_user_says_otherwise() -> None:
    strict = tls_context({})
    assert strict.verify_mode is ssl.CERT_REQUIRED
    assert strict.check_hostname
    nameless = tls_context({"ssl.endpoint.identification.algorithm": "none"})
    assert nameless.verify_mode is ssl.CERT_REQUIRED
    assert not nameless.check_hostname
    assert tls_context({"enable.ssl.certificate.verification": "false"}).verify_mode is ssl.CERT_NONE
    with pytest.raises(SettingError):
        tls_context({"enable.ssl.certificate.verification": "perhaps"})


@pytest.mark.parametrize("name", ["ssl.keystore.location", "ssl.key.pem", "ssl.engine.location"])
def test_what_python_cannot_say_is_named_and_its_value_is_not(name: str) -> None:
    with pytest.raises(TlsUnsupported) as caught:
        tls_context({name: "hunter2"})
    assert name in str(caught.value)
    assert "hunter2" not in str(caught.value)
