"""A Kafka broker without Java: librdkafka's own mock cluster, in a process of its own.

The mock cluster is part of every confluent-kafka wheel. It keeps its topics in memory, speaks Kafka's protocol on the
loopback, and knows consumer groups of both kinds (classic and KIP-848). librdkafka calls its interface experimental:
good enough to try things and to test, not a place to keep data.

This file knows nothing of the lab or of holdfast:

    with MockBroker({"orders": 8}, session_timeout_ms=2000) as broker:
        Consumer({"bootstrap.servers": broker.bootstrap_servers, ...})
"""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

import confluent_kafka

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_RD_KAFKA_PRODUCER = 0  # rd_kafka_type_t in rdkafka.h
_NEEDED = "rd_kafka_mock_set_group_consumer_session_timeout_ms"


class MockBrokerError(RuntimeError):
    """The embedded broker could not be started. The message says why."""


def librdkafka() -> ctypes.CDLL:
    """The librdkafka that confluent-kafka itself uses.

    Wheels bring their own, beside the package on Linux and inside it on macOS; a build from source uses the system's.

    Raises:
        MockBrokerError: no librdkafka was found, or one that is too old.
    """
    package = Path(confluent_kafka.__file__).parent
    bundled = [
        *package.parent.glob("confluent_kafka.libs/librdkafka*.so*"),
        *package.glob(".dylibs/librdkafka*.dylib"),
    ]
    path = str(bundled[0]) if bundled else ctypes.util.find_library("rdkafka")
    if path is None:
        raise MockBrokerError(f"no librdkafka beside {package} and none on the system: reinstall confluent-kafka")
    library = ctypes.CDLL(path)
    if not hasattr(library, _NEEDED):
        raise MockBrokerError(f"{path} has no {_NEEDED}: its librdkafka is too old, upgrade confluent-kafka")
    for name, result, arguments in (
        ("rd_kafka_conf_new", ctypes.c_void_p, []),
        (
            "rd_kafka_conf_set",
            ctypes.c_int,
            [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t],
        ),
        ("rd_kafka_new", ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]),
        ("rd_kafka_destroy", None, [ctypes.c_void_p]),
        ("rd_kafka_mock_cluster_new", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int]),
        ("rd_kafka_mock_cluster_destroy", None, [ctypes.c_void_p]),
        ("rd_kafka_mock_cluster_bootstraps", ctypes.c_char_p, [ctypes.c_void_p]),
        (
            "rd_kafka_mock_topic_create",
            ctypes.c_int,
            [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int],
        ),
        ("rd_kafka_mock_group_initial_rebalance_delay_ms", None, [ctypes.c_void_p, ctypes.c_int32]),
        ("rd_kafka_mock_set_group_consumer_session_timeout_ms", None, [ctypes.c_void_p, ctypes.c_int]),
        ("rd_kafka_mock_set_group_consumer_heartbeat_interval_ms", None, [ctypes.c_void_p, ctypes.c_int]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class MockCluster:
    """The mock cluster, in this process. It runs on librdkafka's threads until `close()`."""

    def __init__(self, brokers: int = 1) -> None:
        self._library = librdkafka()
        # A cluster needs some client to belong to. This one never connects anywhere; it lends its threads and its log.
        error = ctypes.create_string_buffer(512)
        configuration = self._library.rd_kafka_conf_new()
        # Errors only: the client would warn that it has no broker to connect to, which is as it should be.
        self._library.rd_kafka_conf_set(configuration, b"log_level", b"3", error, len(error))
        self._client = self._library.rd_kafka_new(_RD_KAFKA_PRODUCER, configuration, error, len(error))
        if not self._client:
            raise MockBrokerError(f"librdkafka gave no client: {error.value.decode()}")
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._client, brokers)
        if not self._cluster:
            raise MockBrokerError("librdkafka gave no mock cluster")

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect: `127.0.0.1:port`, a comma between brokers."""
        servers: bytes = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster)
        return servers.decode()

    def create_topic(self, name: str, partitions: int) -> None:
        """Make an empty topic. Topics that clients use without this have 4 partitions."""
        code = self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1)
        if code:
            raise MockBrokerError(f"the mock cluster refused topic {name!r}: code {code}")

    def set_group_times(self, *, session_timeout_ms: int, heartbeat_interval_ms: int, initial_delay_ms: int) -> None:
        """How long a silent member stays, how often members report, how long a new classic group waits for more."""
        self._library.rd_kafka_mock_set_group_consumer_session_timeout_ms(self._cluster, session_timeout_ms)
        self._library.rd_kafka_mock_set_group_consumer_heartbeat_interval_ms(self._cluster, heartbeat_interval_ms)
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, initial_delay_ms)

    def close(self) -> None:
        """Close all connections and forget all data."""
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)


class MockBroker:
    """A mock cluster in a process of its own, so that it shares no interpreter and no fate with its clients."""

    def __init__(
        self,
        topics: Mapping[str, int],
        *,
        session_timeout_ms: int = 2000,
        heartbeat_interval_ms: int = 200,
        initial_delay_ms: int = 200,
    ) -> None:
        """`topics`: name -> number of partitions. A real broker's times are 45000, 5000 and 3000."""
        self._order = json.dumps(
            {
                "topics": dict(topics),
                "times": {
                    "session_timeout_ms": session_timeout_ms,
                    "heartbeat_interval_ms": heartbeat_interval_ms,
                    "initial_delay_ms": initial_delay_ms,
                },
            }
        )
        self._process: subprocess.Popen[str] | None = None
        self.bootstrap_servers = ""

    def __enter__(self) -> Self:
        # -P: a file that is run must not put its own folder in front of the standard library.
        # A session of its own: Ctrl-C is for the process that owns this one, which then ends it in good order.
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, self._order],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.bootstrap_servers = self._process.stdout.readline().strip() if self._process.stdout is not None else ""
        if not self.bootstrap_servers:
            code = self._process.wait()
            raise MockBrokerError(f"the embedded broker ended at its start with code {code}; its reason is above")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        # Nothing in it needs saving, and clients that are still connected could hold up a polite end.
        self._process.kill()
        self._process.communicate()

    @property
    def alive(self) -> bool:
        """Whether the broker's process still runs."""
        return self._process is not None and self._process.poll() is None


def _serve(order: str) -> None:
    """The broker process: announce the address, live until the owner closes our input or dies."""
    wanted = json.loads(order)
    cluster = MockCluster()
    cluster.set_group_times(**wanted["times"])
    for name, partitions in wanted["topics"].items():
        cluster.create_topic(name, partitions)
    print(cluster.bootstrap_servers, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    try:
        _serve(sys.argv[1])
    except MockBrokerError as error:
        sys.exit(f"embedded broker: {error}")
