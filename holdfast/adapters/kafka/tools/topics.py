"""Reads topics from outside of a group: partitions, position names, ends of logs. Joins no group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.adapters.kafka import faults
from holdfast.adapters.kafka._client import Consumer, KafkaError, KafkaException
from holdfast.adapters.kafka.admin import Admin, refused, request_s
from holdfast.adapters.kafka.callbacks import client_log
from holdfast.adapters.kafka.offsets import EARLIEST, LATEST, offsets_at
from holdfast.adapters.kafka.properties import addresses, for_helpers
from holdfast.adapters.kafka.quirks.shielding import Shield
from holdfast.adapters.kafka.topic_ids import TopicIds, position_name
from holdfast.records import Partition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.timing import Deadline

#: A consumer's properties that decide which records of a log it can read.
_SEEING = ("isolation.level", "fetch.message.max.bytes", "max.partition.fetch.bytes", "fetch.max.bytes")


class TopicView:
    """Partitions and offsets of topics. One thread.

    Args:
        conf: of a client: addresses and credentials are taken from it; most properties of consumers are ignored.
        group: the group.id of the requests; nothing joins the group.

    Raises:
        SettingError: librdkafka refuses the configuration.
    """

    def __init__(self, conf: Mapping[str, object], group: str) -> None:
        self.group = group
        self.where = addresses(conf)
        self.errors: list[KafkaError] = []
        self._shield = Shield()
        self.admin = Admin(conf)
        self._ids = TopicIds(self.admin)
        own: dict[str, Any] = {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": False,
            "error_cb": self.errors.append,
            "logger": client_log(conf, self._shield),
        }
        try:
            self.consumer = Consumer(
                {**for_helpers(conf), **{name: conf[name] for name in _SEEING if name in conf}, **own}
            )
        except KafkaException as error:
            raise refused(error) from error

    def partitions(self, topic: str, deadline: Deadline) -> Sequence[Partition]:
        """All partitions of a topic. Raises UnknownTopic and other SourceErrors."""
        self.admin.reach(deadline)
        what = f"looking for {topic} at {self.where}"
        try:
            found = self.admin.client.list_topics(topic, timeout=request_s(deadline)).topics[topic]
        except KafkaException as error:
            raise faults.as_source_error(error.args[0], what) from error
        if found.error is not None:
            raise faults.as_source_error(found.error, what)
        return [Partition(topic, number) for number in sorted(found.partitions)]

    def position_names(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, str]:
        """Names of positions in the store."""
        ids = self._ids.of(sorted({partition.topic for partition in partitions}), deadline)
        cluster = self._ids.cluster
        return {each: position_name(self.group, each, ids[each.topic], cluster) for each in partitions}

    def first_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        """The first offset that each log still has."""
        return self._list_offsets(partitions, EARLIEST, deadline)

    def last_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        """The ends of the logs; with isolation.level=read_committed (the default) the last stable offsets."""
        return self._list_offsets(partitions, LATEST, deadline)

    def offsets_at(self, partitions: Sequence[Partition], when_ms: int, deadline: Deadline) -> Mapping[Partition, int]:
        """The offset of the first record at or after that time, by its timestamp; the log's end if there is none."""
        found = self._list_offsets(partitions, when_ms, deadline)
        none = [partition for partition, offset in found.items() if offset < 0]
        return {**found, **self.last_offsets(none, deadline)}

    def _list_offsets(self, partitions: Sequence[Partition], when: int, deadline: Deadline) -> Mapping[Partition, int]:
        if not partitions:
            return {}
        return offsets_at(self.consumer, partitions, when, deadline, f"asking for offsets at {self.where}")

    def close(self) -> None:
        """Give the connections back."""
        self.consumer.close()
