"""Calls that a KafkaConsumer passes on to the client unchanged, one at a time."""

from __future__ import annotations

from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any

from holdfast.adapters.kafka._client import partition_of
from holdfast.adapters.kafka.loop_arguments import partitions_given
from holdfast.adapters.kafka.loop_errors import as_the_clients

if TYPE_CHECKING:
    from collections.abc import Iterator
    from threading import Condition

    from holdfast.adapters.kafka._client import TopicPartition
    from holdfast.adapters.kafka.loop_offsets import LoopOffsets
    from holdfast.adapters.kafka.messages import MessageSource
    from holdfast.plugin.own_loop.driven import Driven

#: How long a call waits at most for threads that asked for their turn before it. A thread that has not taken its turn
#: by then was interrupted.
_TURN_WAIT_S = 0.1


class ClientCalls:
    """The methods of a `KafkaConsumer` that do not concern the engine."""

    _source: MessageSource
    _driven: Driven
    _offsets: LoopOffsets
    _closed: bool
    #: Threads whose call waits for its turn.
    _waiting: set[int]
    #: Guards `_waiting`, and is notified when one of them has got its turn.
    _turn_taken: Condition

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """The log's low and high offsets, as the client knows them."""
        with self._turn():
            return self._source.client.get_watermark_offsets(partition, timeout=timeout, cached=cached)

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """The offsets by time, as the client finds them."""
        with self._turn():
            return self._source.client.offsets_for_times(partitions, timeout=timeout)

    def assignment(self) -> list[TopicPartition]:
        """The assignment, as the client has it; empty while a new client is made, since a fatal error has finished
        the old one. Without the partitions that on_assign has left out."""
        with self._turn():
            left_out = self._offsets.left_out
            return [one for one in self._source.assignment() if partition_of(one) not in left_out]

    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """The committed offsets, as the client reads them: without our mark in the metadata, and without an offset that
        holdfast has committed only because the group begins there."""
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
        """The group's metadata, as the client has it, for a producer's transactions. From then on offsets that these
        transactions commit are taken for done."""
        with self._turn():
            self._driven.family.partitions.commits.others_commit = True
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
        """Run calls in the order of their requests. Otherwise a loop that polls again at once would take the lock
        before a waiting thread has woken up, again and again, as long as no record comes."""
        waiting, me = self._waiting, get_ident()
        with self._turn_taken:
            self._turn_taken.wait_for(lambda: not waiting or self._driven.inside, timeout=_TURN_WAIT_S)
            waiting.add(me)
        try:
            with self._driven.lock:
                self._has_its_turn(me)
                with self._driven.whole():
                    yield
        finally:
            self._has_its_turn(me)

    def _has_its_turn(self, thread: int) -> None:
        if thread in self._waiting:
            with self._turn_taken:
                self._waiting.discard(thread)
                self._turn_taken.notify_all()

    # ---- calls that a client needs, and that are not needed here
    def unassign(self) -> None:
        """Do nothing: after on_revoke and on_lost the partitions are unassigned without this call."""
        with self._turn():
            pass

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Do nothing, as `unassign`."""
        with self._turn():
            partitions_given(partitions)
