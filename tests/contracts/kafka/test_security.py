"""Brokers that ask for passwords, tokens and certificates, and let nobody do more than the page on security says."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]  # not in its __all__

from holdfast import Holdfast, RedisClaims, Retry, Settings
from holdfast.adapters.kafka import KafkaSource
from holdfast.errors import NotAuthorised
from tests.harness.group.config import KAFKA
from tests.harness.group.story import Story
from tests.harness.servers.certificates import Certificates
from tests.harness.servers.kafka import KafkaServer
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from holdfast.records import Record
    from tests.harness.group.config import Protocol
    from tests.harness.group.field import Field
    from tests.harness.servers.redis import RedisServer

pytestmark = pytest.mark.full

_PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "kafka-security.md"
_MODULES = "org.apache.kafka.common.security"
_SCRAM = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "app",
    "sasl.password": "s3cret",
}
_TOKENS = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "enable.sasl.oauthbearer.unsecure.jwt": True,
    "sasl.oauthbearer.config": "principal=app",
}
#: Whom the plain listener takes everybody for may do everything: brokers among each other, and the tests.
_RULES = {"super.users": "User:ANONYMOUS", "allow.everyone.if.no.acl.found": "false"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def guarded(certificates: Certificates) -> Iterator[KafkaServer]:
    properties = {
        **_RULES,
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.scram.scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
        "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.tokens.oauthbearer.sasl.jaas.config": (
            f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        ),
        "listener.name.both.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.both.scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
        **{
            f"listener.name.{each}.ssl.keystore.{name}": value
            for each in ("tls", "both")
            for name, value in (("type", "PEM"), ("location", str(certificates.server_file)))
        },
    }
    listeners = {"SCRAM": "SASL_PLAINTEXT", "TOKENS": "SASL_PLAINTEXT", "TLS": "SSL", "BOTH": "SASL_SSL"}
    with KafkaServer(listeners=listeners, properties=properties) as server:
        server.add_user("app", "s3cret")
        yield server


def produce(kafka: KafkaServer, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert not producer.flush(30)


def rights() -> list[tuple[Any, str, AclOperation]]:
    """The page's first table: kind, name, operation."""
    table = _PAGE.read_text(encoding="utf-8").partition("## The least rights")[2].partition("These are enough")[0]
    rows = re.findall(r"^\| (topic|group) \| `([\w.]+)` \| (\w+) \|", table, re.MULTILINE)
    assert len(rows) == 3
    return [(kind, name, AclOperation[operation.upper()]) for kind, name, operation in rows]


def _in(field: Field) -> dict[str, str]:
    assert field.dead_letters is not None
    return {"billing": field.group, "orders": field.topic, "orders.dlq": field.dead_letters}


def _at_work(field: Field) -> None:
    """Two members, letters, one leaves."""
    field.add_dead_letters()
    for kind, name, operation in rights():
        field.kafka.allow("app", kind, _in(field)[name], operation)
    a, b = field.start("a"), field.start("b")
    field.flow()
    field.until_spread(a, b)
    hopeless = field.send_slow(1.0, fail_at=("*",), own_lane=True)
    field.until_dead_letters(len(hopeless))
    field.stop(a)
    field.until_spread(b)


def _holds(
    play: Callable[[Field], None],
    server: KafkaServer,
    redis: RedisServer,
    home: Path,
    protocol: Protocol,
    **config: Any,
) -> None:
    story = Story(name="guarded", play=play, config={"attempts": 2, **config})
    assert not story.faults(story.tell(server, redis.url, home, protocol, 1))


@pytest.mark.parametrize("protocol", KAFKA)
def test_with_the_least_rights_a_group_works_hands_over_and_writes_letters(
    guarded: KafkaServer, redis_server: RedisServer, tmp_path: Path, protocol: Protocol
) -> None:
    _holds(_at_work, guarded, redis_server, tmp_path, protocol, bootstrap=guarded.address("SCRAM"), conf=_SCRAM)


def test_by_tokens_too(guarded: KafkaServer, redis_server: RedisServer, tmp_path: Path) -> None:
    _holds(_at_work, guarded, redis_server, tmp_path, "consumer", bootstrap=guarded.address("TOKENS"), conf=_TOKENS)


def test_by_a_password_over_tls_too(
    guarded: KafkaServer, redis_server: RedisServer, tmp_path: Path, certificates: Certificates
) -> None:
    conf = _SCRAM | {"security.protocol": "SASL_SSL", "ssl.ca.location": str(certificates.ca_file)}
    _holds(_at_work, guarded, redis_server, tmp_path, "consumer", bootstrap=guarded.address("BOTH"), conf=conf)


def _token(seconds: float) -> tuple[str, float]:
    """One that the broker takes from everybody, and when it runs out."""
    ends = time.time() + seconds
    claims = {"sub": "app", "iat": time.time(), "exp": ends}
    parts = (base64.urlsafe_b64encode(json.dumps(each).encode()).decode() for each in ({"alg": "none"}, claims))
    return f"{'.'.join(part.rstrip('=') for part in parts)}.", ends


def test_by_tokens_of_a_function_of_the_application_which_is_asked_again_before_they_run_out(
    guarded: KafkaServer, redis_url: str
) -> None:
    topic, letters = "by-function", "by-function.dlq"
    for each in (topic, letters):
        guarded.create_topic(each, 1)
    for kind, name, operation in rights():
        guarded.allow("app", kind, {"billing": topic, "orders": topic, "orders.dlq": letters}[name], operation)
    asked, handled = [0], list[bytes | None]()

    def oauth_cb(_: str) -> tuple[str, float]:
        asked[0] += 1
        return _token(5.0)

    conf = {
        "bootstrap.servers": guarded.address("TOKENS"),
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": oauth_cb,
    }
    with contextlib.closing(RedisClaims.from_url(redis_url)) as store:
        app = Holdfast(KafkaSource(conf, assignment="sticky"), claims=store)

        @app.handler(topic, name="handle", dead_letter=letters, retry=Retry(attempts=1))
        def handle(record: Record) -> None:
            if record.value == b"hopeless":
                raise ValueError("of this test")
            handled.append(record.value)

        app.start()
        produce(guarded, topic, b"hopeless", b"first")
        until(lambda: handled == [b"first"])
        until(lambda: app.snapshot().records.dead_lettered == 1)
        before = asked[0]
        until(lambda: asked[0] > before + 2)
        produce(guarded, topic, b"second")
        until(lambda: handled == [b"first", b"second"])
        app.stop(wait=True)


def test_a_certificate_that_is_renewed_under_load_costs_nothing(
    guarded: KafkaServer, redis_server: RedisServer, tmp_path: Path, certificates: Certificates
) -> None:
    def play(field: Field) -> None:
        a, b = field.start("a"), field.start("b")
        field.flow()
        field.until_spread(a, b)
        shown = guarded.certificate("TLS", certificates.client())
        certificates.renew()
        guarded.set_broker(1, "listener.name.tls.ssl.keystore.location", str(certificates.server_file))
        field.until(lambda: guarded.certificate("TLS", certificates.client()) != shown, "the broker shows the new one")
        for each in guarded.wires("TLS"):
            each.mend(reset=True)  # who is connected comes again, and meets it
        field.until_spread(a, b)
        c = field.start("c")
        field.until_spread(a, b, c)

    conf = {"security.protocol": "SSL", "ssl.ca.location": str(certificates.ca_file)}
    _holds(play, guarded, redis_server, tmp_path, "consumer", bootstrap=guarded.address("TLS"), conf=conf)


@pytest.mark.parametrize("missing", range(3))
def test_with_one_right_less_an_app_does_not_start_and_the_error_says_what_is_missing(
    guarded: KafkaServer, redis_url: str, missing: int
) -> None:
    names = {each: f"{each}-{missing}" for each in ("billing", "orders", "orders.dlq")}
    for each in ("orders", "orders.dlq"):
        guarded.create_topic(names[each], 1)
    for number, (kind, name, operation) in enumerate(rights()):
        if number != missing:
            guarded.allow("app", kind, names[name], operation)
    conf: Mapping[str, object] = {
        "bootstrap.servers": guarded.address("SCRAM"),
        "group.id": names["billing"],
        **_SCRAM,
    }
    with contextlib.closing(RedisClaims.from_url(redis_url)) as store:
        app = Holdfast(KafkaSource(conf, assignment="sticky"), claims=store, settings=Settings(startup_timeout_s=30))
        app.handler(names["orders"], name="handle", dead_letter=names["orders.dlq"])(lambda _: None)
        overdue = threading.Timer(60, app.stop)
        overdue.start()
        try:
            with pytest.raises(NotAuthorised) as raised:
                app.run()
        finally:
            overdue.cancel()
    kind, name, _ = rights()[missing]
    assert (names[name] if kind == "topic" else "READ on the group") in str(raised.value)
    assert "s3cret" not in str(raised.value)
