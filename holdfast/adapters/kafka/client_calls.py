"""Calls that a KafkaConsumer hands on to the client as they are, one at a time."""

from __future__ import annotations

from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any

from holdfast.adapters.kafka.loop_arguments import partitions_given
from holdfast.adapters.kafka.loop_errors import as_the_clients
from holdfast.records import Partition
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.adapters.kafka._client import TopicPartition
    from holdfast.adapters.kafka.loop_offsets import LoopOffsets
    from holdfast.adapters.kafka.messages import MessageSource
    from holdfast.plugin.own_loop.driven import Driven

#: How long a call waits in turn for others that asked before it, and how long at most: then one of them was torn.
_GIVEN_S, _TIMES = 0.001, 100


class ClientCalls:
    """The part of a `KafkaConsumer` that the engine has nothing to do with."""

    _source: MessageSource
    _driven: Driven
    _offsets: LoopOffsets
    _closed: bool
    #: Threads whose call waits for its turn.
    _asking: set[int]

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """The log's bounds, as the client knows them."""
        with self._turn():
            return self._source.client.get_watermark_offsets(partition, timeout=timeout, cached=cached)

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """The offsets by time, as the client finds them."""
        with self._turn():
            return self._source.client.offsets_for_times(partitions, timeout=timeout)

    def assignment(self) -> list[TopicPartition]:
        """The assignment, as the client has it; empty while another client is made, because this one was finished."""
        with self._turn():
            left_out = self._offsets.left_out
            return [one for one in self._source.assignment() if Partition(one.topic, one.partition) not in left_out]

    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """The committed offsets, as the client reads them: none where a group has only begun, and without our mark in
        the metadata."""
        with self._turn():
            return self._source.callbacks.commits.read(self._source.client.committed(partitions, timeout=timeout))

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:  # noqa: ANN401 - as the client has it
        """The cluster's topics, as the client lists them."""
        with self._turn():
            client = self._source.client
            return client.list_topics(timeout=timeout) if topic is None else client.list_topics(topic, timeout=timeout)

    def cluster_id(self, timeout: float = -1) -> str:
        """The cluster's id, in versions of the client that have it."""
        with self._turn():
            return self._source.client.cluster_id(timeout=timeout)

    def consumer_group_metadata(self) -> Any:  # noqa: ANN401 - as the client has it
        """The group's metadata, as the client has it, for a producer's transactions. From then on the offsets that
        these commit say what is done."""
        with self._turn():
            self._driven.family.ours.commits.others_commit = True
            return self._source.client.consumer_group_metadata()

    def memberid(self) -> str:
        """The member's id, as the client has it."""
        with self._turn():
            return self._source.client.memberid()

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Set credentials at the client."""
        with self._turn():
            self._source.client.set_sasl_credentials(username, password)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One call at a time, with the client's own kind of error."""
        with self._one_call():
            if self._closed:
                raise RuntimeError("Consumer closed")
            with as_the_clients():
                yield

    @contextmanager
    def _one_call(self) -> Iterator[None]:
        """Calls come in the order in which they were asked for: a loop that polls again at once would have the lock
        again before a thread that waits for it has woken up, and again, for as long as nothing comes."""
        asking, me = self._asking, get_ident()
        for _ in range(_TIMES):
            if not asking or self._driven.inside:
                break
            SYSTEM_CLOCK.sleep(_GIVEN_S)
        asking.add(me)
        try:
            with self._driven.lock:
                asking.discard(me)
                with self._driven.whole():
                    yield
        finally:
            asking.discard(me)

    # ---- what the client needs to be told, and this does by itself
    def unassign(self) -> None:
        """Nothing: on return from on_revoke and on_lost the partitions go by themselves."""
        with self._turn():
            pass

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Nothing, as in `unassign`."""
        with self._turn():
            partitions_given(partitions)
