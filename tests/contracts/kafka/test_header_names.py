"""Headers whose names are no UTF-8, as other languages' producers may write them: a record like any other."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from holdfast import Holdfast, MemoryClaims, Settings, header
from holdfast.adapters.kafka import KafkaConsumer, KafkaSource
from holdfast.adapters.kafka.tools.dead_letters import KafkaDeadLetterTool
from holdfast.records import Partition
from tests.harness.kafka_brokers import mock_cluster
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["mock_cluster"]

#: librdkafka's names for what `rd_kafka_producev` is given (rdkafka.h, rd_kafka_vtype_t).
_END, _TOPIC, _PARTITION, _VALUE, _FLAGS, _HEADER, _COPY = (ctypes.c_int(each) for each in (0, 1, 3, 4, 7, 9, 2))
SAID = [("first", b"1"), ("\ufffd", b"2"), ("last", b"3")]
#: So many records without such a name come before: Python's own calls are other ones once they are warm.
BEFORE = 100


@pytest.fixture
def topic(mock_cluster: str) -> str:
    """One record with a header whose name is Latin-1, behind others."""
    name = f"names-{uuid.uuid4().hex[:8]}"
    confluent_kafka.Producer({"bootstrap.servers": mock_cluster}).list_topics(name, timeout=10)
    said = [(b"first", b"1"), ("caf\u00e9".encode("latin-1"), b"2"), (b"last", b"3")]
    produce(mock_cluster, name, [[(b"last", b"before %d" % number)] for number in range(BEFORE)] + [said])
    return name


def produce(bootstrap: str, topic: str, records: Sequence[Sequence[tuple[bytes, bytes]]]) -> None:
    """By librdkafka itself: Python's binding takes only text for a name."""
    [found] = Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka*")
    library, error = ctypes.CDLL(str(found)), ctypes.create_string_buffer(512)
    library.rd_kafka_conf_new.restype = library.rd_kafka_new.restype = ctypes.c_void_p
    conf = ctypes.c_void_p(library.rd_kafka_conf_new())
    library.rd_kafka_conf_set(conf, b"bootstrap.servers", bootstrap.encode(), error, ctypes.c_size_t(512))
    client = ctypes.c_void_p(library.rd_kafka_new(ctypes.c_int(0), conf, error, ctypes.c_size_t(512)))
    for headers in records:
        said: list[Any] = [_TOPIC, topic.encode(), _PARTITION, ctypes.c_int32(0), _VALUE, b"v", ctypes.c_size_t(1)]
        for name, value in headers:
            said += [_HEADER, name, value, ctypes.c_ssize_t(len(value))]
        assert library.rd_kafka_producev(client, *said, _FLAGS, _COPY, _END) == 0
    assert library.rd_kafka_flush(client, ctypes.c_int(20_000)) == 0
    library.rd_kafka_destroy(client)


def conf_of(mock_cluster: str) -> dict[str, Any]:
    return {"bootstrap.servers": mock_cluster, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}


def test_an_app_handles_it(mock_cluster: str, topic: str) -> None:
    conf = conf_of(mock_cluster) | {"partition.assignment.strategy": "cooperative-sticky"}
    app = Holdfast(KafkaSource(conf), claims=MemoryClaims())
    handled: list[Any] = []
    app.handler(topic, key=header("last"))(lambda record: handled.append(list(record.headers)))
    app.start()
    until(lambda: len(handled) > BEFORE)
    app.stop(wait=True)
    assert SAID in handled


def test_a_loop_gets_it_and_its_key(mock_cluster: str, topic: str) -> None:
    with KafkaConsumer(conf_of(mock_cluster), claims=MemoryClaims(), key=header("last"), assignment="keep") as consumer:
        consumer.subscribe([topic])
        got: list[Any] = []
        while len(got) <= BEFORE:
            got += consumer.consume(1, 0.1)
    assert [message.headers() for message in got[BEFORE:]] == [SAID]


def test_a_letter_with_it_is_read(mock_cluster: str, topic: str) -> None:
    with contextlib.closing(KafkaDeadLetterTool({"bootstrap.servers": mock_cluster})) as box:
        where = Partition(topic, 0)
        read = box.read({where: 0}, {where: BEFORE + 1}, 20)
        assert [list(each.headers) for batch in read for each in batch][BEFORE:] == [SAID]


def test_headers_weigh_in_what_may_be_in_the_process(mock_cluster: str) -> None:
    """100 records of 40 kB of headers each, and a bound of 0.8 MB: a loop that ends none of them holds no more. The
    mock keeps 5 MB of a log."""
    name = f"heavy-{uuid.uuid4().hex[:8]}"
    confluent_kafka.Producer({"bootstrap.servers": mock_cluster}).list_topics(name, timeout=10)
    produce(mock_cluster, name, [[(b"h", b"x" * 40_000)]] * 100)
    settings = Settings(max_in_flight_bytes=800_000, poll_batch=10)
    released = threading.Event()
    app = Holdfast(
        KafkaSource(conf_of(mock_cluster) | {"partition.assignment.strategy": "cooperative-sticky"}),
        claims=MemoryClaims(),
        settings=settings,
    )
    app.handler(name)(lambda record: released.wait(30))
    app.start()
    until(lambda: app.snapshot().load.in_flight_bytes > 400_000)
    assert app.snapshot().load.in_flight < 40
    released.set()
    app.stop(wait=True)
    with KafkaConsumer(
        conf_of(mock_cluster), claims=MemoryClaims(), settings=settings, assignment="keep", done_when="explicit"
    ) as consumer:
        consumer.subscribe([name])
        got: list[Any] = []
        while consumer.snapshot().load.in_flight_bytes <= 800_000:
            got += consumer.consume(1, 0.1)
        assert len(got) < 60  # of a loop one message in 16 is weighed, until one has headers
