"""Avro, Protobuf and JSON Schema: confluent-kafka's deserialisers behind `value=`. Schemas are in its mock registry;
what goes wrong on the way to one, at a small HTTP server."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, assert_type

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from holdfast import make_record
from holdfast.adapters.kafka import Avro, JsonSchema, Protobuf
from holdfast.errors import MissingExtraError, RecordUnreadable, RegistryUnavailable, SettingError
from holdfast.plugin.handling.values import Reading
from holdfast.plugin.retrying.dead_letter import headers_of
from holdfast.records import Partition
from holdfast.testing.brokers.logs import Stored
from tests.harness.engine import Bench, Letters
from tests.harness.protobuf_order import order_class

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast import Record

pytest.importorskip("confluent_kafka.schema_registry.avro")
AVRO = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "order_id", "type": "long"}]})
SCHEMA = json.dumps({"title": "Order", "type": "object", "properties": {"order_id": {"type": "integer"}}})


class Order(BaseModel):
    order_id: int


def mock() -> Any:
    from confluent_kafka.schema_registry import SchemaRegistryClient  # noqa: PLC0415 - of an extra

    return SchemaRegistryClient.new_client({"url": "mock://"})


def avro(client: Any, number: int, **conf: Any) -> Record:
    from confluent_kafka.schema_registry.avro import AvroSerializer  # noqa: PLC0415 - as above
    from confluent_kafka.serialization import MessageField, SerializationContext  # noqa: PLC0415 - as above

    headers: list[tuple[str, Any]] = []
    context = SerializationContext("orders", MessageField.VALUE, headers)
    raw = AvroSerializer(client, AVRO, conf=conf)({"order_id": number}, context)
    return make_record(raw, topic="orders", offset=42, headers=headers)


class Registry(BaseHTTPRequestHandler):
    """Answers as it is told to, where it is asked for a schema."""

    status, said = 200, json.dumps({"schema": AVRO}).encode()

    def do_GET(self) -> None:
        asked = self.path.startswith("/schemas/ids/")
        status, said = (self.status, self.said) if asked else (404, b'{"error_code": 40401, "message": "no subject"}')
        self.send_response(status)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def registry(status: int = 200, said: bytes = Registry.said) -> Iterator[dict[str, Any]]:
    """The configuration of a client for it."""
    answers = type("Answers", (Registry,), {"status": status, "said": said})
    with ThreadingHTTPServer(("127.0.0.1", 0), answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield {"url": f"http://name:secret@127.0.0.1:{server.server_port}", "max.retries": 0}
        server.shutdown()
        thread.join()


def test_avro_is_a_dictionary_or_what_a_function_makes_of_it() -> None:
    client = mock()
    record = avro(client, 17)
    plain, model = Avro(client), Avro(client, from_dict=Order.model_validate)
    assert_type(plain, Avro[dict[str, Any]])
    assert_type(model, Avro[Order])
    assert plain.deserialize(record) == {"order_id": 17}
    assert model.deserialize(record) == Order(order_id=17)


def test_a_schema_of_ones_own_reads_what_others_have_written() -> None:
    client = mock()
    fields = [{"name": "order_id", "type": "long"}, {"name": "note", "type": "string", "default": "none"}]
    reader = json.dumps({"type": "record", "name": "Order", "fields": fields})
    assert Avro(client, schema=reader).deserialize(avro(client, 17)) == {"order_id": 17, "note": "none"}


def test_the_schema_may_be_named_by_a_header() -> None:
    from confluent_kafka.schema_registry import header_schema_id_serializer  # noqa: PLC0415 - as above

    client = mock()
    # The client takes no value that is shorter than the frame, also where it is in the header.
    record = avro(client, 2**60, **{"schema.id.serializer": header_schema_id_serializer})
    assert Avro(client).deserialize(record) == {"order_id": 2**60}
    with pytest.raises(RecordUnreadable) as caught:
        Avro(client).deserialize(record._replace(value=b"\xff" * 12))
    assert caught.value.schema_id == (record.header("__value_schema_id") or b"")[1:].hex()


def test_json_is_held_against_its_schema() -> None:
    from confluent_kafka.schema_registry.json_schema import JSONSerializer  # noqa: PLC0415 - as above
    from confluent_kafka.serialization import MessageField, SerializationContext  # noqa: PLC0415 - as above

    client = mock()
    raw = JSONSerializer(SCHEMA, client)({"order_id": 17}, SerializationContext("orders", MessageField.VALUE)) or b""
    assert JsonSchema(client).deserialize(make_record(raw, topic="orders")) == {"order_id": 17}
    made = JsonSchema(client, from_dict=Order.model_validate).deserialize(make_record(raw, topic="orders"))
    assert made == Order(order_id=17)
    for broken in (raw.replace(b"17", b'"x"'), raw[:-1]):
        with pytest.raises(RecordUnreadable, match=r"JsonSchema\(MockSchemaRegistryClient\)") as caught:
            JsonSchema(client).deserialize(make_record(broken, topic="orders"))
        assert caught.value.schema_id == "1"


def test_protobuf_is_the_generated_class() -> None:
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer  # noqa: PLC0415 - as above
    from confluent_kafka.serialization import MessageField, SerializationContext  # noqa: PLC0415 - as above

    client, generated = mock(), order_class()
    make = ProtobufSerializer(generated, client, {"use.deprecated.format": False})
    raw = make(generated(order_id=17), SerializationContext("orders", MessageField.VALUE)) or b""
    for each in (Protobuf(generated), Protobuf(generated, client)):
        found = each.deserialize(make_record(raw, topic="orders"))
        assert (type(found), found.order_id) == (generated, 17)
        with pytest.raises(RecordUnreadable) as caught:
            each.deserialize(make_record(raw + b"\xff", topic="orders"))
        assert caught.value.schema_id == "1"
    assert repr(Protobuf(generated)) == "Protobuf(Order)"


@pytest.mark.parametrize(
    ("raw", "schema"),
    [(b"", None), (b"without a frame", None), (b"\0\0\0\0\x63abc", "99"), (b"\0\0\0\0\1" + b"\xff" * 20, "1")],
)
def test_what_is_none_of_it_is_unreadable_and_names_its_schema(raw: bytes, schema: str | None) -> None:
    client = mock()
    record = avro(client, 17)._replace(value=raw)
    with pytest.raises(RecordUnreadable, match="at orders, partition 0, offset 42 cannot be decoded by Avro") as caught:
        Avro(client).deserialize(record)
    assert caught.value.schema_id == schema


@given(raw=st.binary(max_size=30) | st.binary(max_size=30).map(lambda raw: b"\0\0\0\0\1" + raw))
def test_bytes_are_a_value_or_unreadable(raw: bytes) -> None:
    client = mock()
    record = avro(client, 17)._replace(value=raw)
    with suppress(RecordUnreadable):
        Reading(Avro(client), tombstones=False).read(record)


def test_a_registry_that_is_asked_by_http() -> None:
    with registry() as conf:
        assert Avro(conf).deserialize(avro(mock(), 17)) == {"order_id": 17}


@pytest.mark.parametrize(
    ("status", "said", "error"),
    [
        (500, b'{"error_code": 50001, "message": "its store"}', RegistryUnavailable),
        (401, b"", RegistryUnavailable),
        (404, b"<html>a proxy</html>", RegistryUnavailable),
        (404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}', RegistryUnavailable),
        (404, b'{"error_code": 40403, "message": "Schema not found"}', RecordUnreadable),
    ],
)
def test_what_the_registry_says_of_itself_is_no_fault_of_the_record(
    status: int, said: bytes, error: type[Exception]
) -> None:
    with registry(status, said) as conf, pytest.raises(error) as caught:
        Avro(conf).deserialize(avro(mock(), 17))
    assert "secret" not in str(caught.value)


def test_a_registry_that_does_not_answer_is_no_fault_of_the_record() -> None:
    with registry() as conf:
        pass
    with pytest.raises(RegistryUnavailable, match="ConnectError"):
        Avro(conf).deserialize(avro(mock(), 17))


@pytest.mark.parametrize("url", ["http://name:secret@host:8081", "http://a:secret@h1,https://b:secret@h2/x"])
def test_credentials_are_in_no_repr(url: str) -> None:
    for each in (Avro(url), Avro({"url": url}), JsonSchema(url)):
        assert "secret" not in repr(each)
        assert "***@h" in repr(each)


def test_a_configuration_that_cannot_work_is_told_without_credentials() -> None:
    with pytest.raises(SettingError, match=r"registry=.*Invalid url") as caught:
        Avro("name:secret@host")
    assert "secret" not in str(caught.value)
    with pytest.raises(SettingError, match=r"conf=.*Unrecognized properties: no\.such\.one"):
        Avro("http://host", conf={"no.such.one": 1})


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry.avro", None)
    with pytest.raises(MissingExtraError, match=r"holdfast-mq\[schema-registry\]"):
        Avro("http://host")


@pytest.mark.parametrize("is_async", [False, True])
def test_in_an_app_the_registrys_outage_is_tried_again_and_a_broken_record_is_a_letter(is_async: bool) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryError  # noqa: PLC0415 - as above

    client, handled, refused = mock(), list[int](), list[int]()
    records = [avro(client, 0).value, b"\0\0\0\0\x63abc", avro(client, 2).value]

    class Flaky:
        """Does not answer at first."""

        def __getattr__(self, name: str) -> Any:
            return getattr(client, name)

        def get_schema(self, *args: Any, **others: Any) -> Any:
            if not refused:
                refused.append(1)
                raise SchemaRegistryError(503, 50301, "starting")
            return client.get_schema(*args, **others)

    def plain(value: Order) -> None:
        handled.append(value.order_id)

    async def coroutine(value: Order) -> None:
        handled.append(value.order_id)

    with Bench() as bench:
        letters = Letters(bench.changed)
        bench.broker.store(Partition("orders", 0), *(Stored(None, each, ()) for each in records))
        bench.member(
            dead_letter="dlq",
            dead_letters=letters,
            handler=coroutine if is_async else plain,
            value=Avro(Flaky(), from_dict=Order.model_validate),
        )
        bench.wait_committed(3)
    assert (sorted(handled), refused) == ([0, 2], [1])
    [letter] = letters.sent
    assert letter.record.value == records[1]
    assert dict(headers_of(letter))["holdfast-schema-id"] == b"99"
