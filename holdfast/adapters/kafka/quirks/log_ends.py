"""The ends of logs, asked on a connection of their own.

- What the client does: a question on the consumer's connection stands behind the fetch that waits there for records:
  some 200 ms with librdkafka's default fetch.wait.max.ms of 500, and now and then longer than 500 ms.
- No issue of the client was found.
- What holdfast does: an admin client asks on its own connection, and no call waits for the answer.
- It can go when the client asks its questions on another connection than its fetches.
- Test: tests/unit/test_kafka_questions.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.adapters.kafka._client import IsolationLevel, KafkaException, OffsetSpec, TopicPartition, partition_of
from holdfast.adapters.kafka.faults import as_source_error

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from concurrent.futures import Future

    from holdfast.adapters.kafka._client import AdminClient
    from holdfast.adapters.kafka.admin import Admin
    from holdfast.records import Partition

#: The timeout of one request.
_REQUEST_S = 5.0


class LogEnds:
    """One question at a time. One thread.

    Args:
        admin: asks.
        conf: the consumer's: its isolation.level decides where a log ends for it.
    """

    def __init__(self, admin: Admin, conf: Mapping[str, object]) -> None:
        self._admin = admin
        committed = str(conf.get("isolation.level", "read_committed")) == "read_committed"
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        self._asked: dict[TopicPartition, Future[Any]] = {}
        #: The client that was asked, kept alive for its answer: `Admin` may replace it meanwhile.
        self._of: AdminClient | None = None

    def close(self) -> None:
        """Drop outstanding questions."""
        self._asked, self._of = {}, None

    def look(self, partitions: Collection[Partition]) -> Mapping[Partition, int] | None:
        """Ask, or take the answer to the question before, once. None = there is no answer yet.

        Raises:
            SourceError: the broker refuses, or gave no answer.
        """
        try:
            if not self._asked:
                latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
                wanted = {TopicPartition(one.topic, one.number): latest for one in partitions}
                self._of = self._admin.client
                self._asked = self._of.list_offsets(wanted, isolation_level=self._isolation, request_timeout=_REQUEST_S)
            if not all(future.done() for future in self._asked.values()):
                return None
            asked, self._asked, self._of = self._asked, {}, None
            return {partition_of(one): future.result().offset for one, future in asked.items()}
        except KafkaException as error:
            self._admin.doubt(error.args[0])
            raise as_source_error(error.args[0], "asking for the ends of the logs") from error
