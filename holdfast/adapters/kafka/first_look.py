"""A look at where a loop's group begins, in a thread of its own: like the client's, subscribe() waits for no broker.

The look begins before the client joins the group. Its result is needed when partitions are assigned; `wait` waits for
it. The requests are those of `StartingOffsets.look`, sent by an admin client that lives as long as the look.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from holdfast.adapters.kafka._client import ConsumerGroupTopicPartitions
from holdfast.adapters.kafka.admin import Admin
from holdfast.adapters.kafka.topic_ids import TopicIds
from holdfast.errors import SettingError, SourceError, SourceUnavailable
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from holdfast.adapters.kafka._client import TopicPartition
    from holdfast.adapters.kafka.starting_offsets import StartingOffsets

#: How long one try may take, and the pause after one that failed.
_TRY_S, _REST_S = 10.0, 0.5


class FirstLook:
    """The look of one group. The loop's thread calls `begin`, `end` and `wait`."""

    def __init__(self, group: str, conf: Mapping[str, object], starting: StartingOffsets) -> None:
        self._group, self._conf, self._starting = group, conf, starting
        self._topics: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        #: `_seen`: set while there is nothing left to look at.
        self._seen, self._ended = threading.Event(), threading.Event()
        self._seen.set()
        self._failed: Exception | None = None

    def begin(self, topics: Collection[str]) -> None:
        """Look at these, too. Returns at once."""
        if not self._starting.has_to_look(topics):
            return
        with self._lock:
            self._topics |= set(topics)
            idle = self._seen.is_set()
            self._seen.clear()
        if idle:
            threading.Thread(target=self._look, name=f"holdfast-{self._group}-look", daemon=True).start()

    def end(self) -> None:
        """Stop: the result is not needed any more."""
        self._ended.set()

    def wait(self, deadline: Deadline) -> None:
        """Wait until the look is over. Raises SourceError: it is not over by the deadline."""
        if self._seen.wait(deadline.left_s()):
            return
        if isinstance(self._failed, SourceError):
            raise self._failed
        raise SourceUnavailable(f"looking where the group {self._group} begins: no answer yet")

    def _look(self) -> None:
        """Look until all topics are seen."""
        admin = Admin(self._conf)
        asked, ids = _AdminReader(self._group, admin), TopicIds(admin)
        while not self._ended.is_set():
            topics = self._topics
            try:
                self._starting.look(asked, topics, Deadline(_TRY_S, SYSTEM_CLOCK), ids)
            except (SourceError, SettingError) as error:  # a file of its configuration may be missing for a moment
                self._failed = error
                self._ended.wait(_REST_S)
                continue
            with self._lock:
                if topics == self._topics:
                    self._seen.set()
                    return


class _AdminReader:
    """An admin client with the methods of a consumer that `StartingOffsets` calls."""

    def __init__(self, group: str, admin: Admin) -> None:
        self._group, self._admin = group, admin

    def list_topics(self, *, timeout: float) -> Any:  # noqa: ANN401 - as the client has it
        """The cluster's topics."""
        return self._admin.client.list_topics(timeout=timeout)

    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """The group's offsets."""
        wanted = ConsumerGroupTopicPartitions(self._group, partitions)
        reply, *_ = self._admin.client.list_consumer_group_offsets([wanted], request_timeout=timeout).values()
        found: list[TopicPartition] = reply.result().topic_partitions
        return found
