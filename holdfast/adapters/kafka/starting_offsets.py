"""Where the group begins in a partition without a committed offset: by auto.offset.reset, or at its first record."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.kafka import faults
from holdfast.adapters.kafka._client import KafkaException
from holdfast.adapters.kafka.admin import request_s
from holdfast.adapters.kafka.commit_mark import is_marked
from holdfast.adapters.kafka.offsets import EARLIEST, LATEST, committed
from holdfast.errors import SourceError
from holdfast.plugin.event_line import ranges_of
from holdfast.records import Partition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from holdfast.adapters.kafka.offsets import OffsetReader
    from holdfast.adapters.kafka.topic_ids import TopicIds
    from holdfast.timing import Deadline

_log = logging.getLogger("holdfast.kafka")

_NAME = "auto.offset.reset"
_POLICIES = {
    "earliest": EARLIEST, "smallest": EARLIEST, "beginning": EARLIEST,
    "latest": LATEST, "largest": LATEST, "end": LATEST,
}  # fmt: skip


class Default(NamedTuple):
    """The policy if the configuration has none."""

    policy: str
    why: str


#: An app is written for holdfast, and must not lose records; a loop was written for the client.
APP_DEFAULT = Default("earliest", "holdfast's default: the client's own, latest, would skip what is there")
LOOP_DEFAULT = Default("latest", "the client's default")


class StartingOffsets:
    """The starting offsets of one group. One thread.

    "latest" applies to partitions that exist when the group begins. Partitions that are found later (added partitions,
    a topic that a pattern matches, a topic that was made again) are read from their first record: records that were
    sent there before the group noticed are not old.
    """

    def __init__(self, group: str, conf: Mapping[str, object], default: Default, ids: TopicIds) -> None:
        self._group, self._ids = group, ids
        said = conf.get(_NAME)
        self._policy = str(said) if said is not None else default.policy
        self._why = f"{_NAME}={self._policy}" if said is not None else f"{_NAME} is not set, and this is {default.why}"
        self._when = _POLICIES.get(self._policy.lower())
        #: Partitions to which "latest" applies: they existed before the group was joined, and it had read nothing of
        #: their topics. With the topic's id: "latest" does not apply to a topic that was made again.
        self._never_read: dict[Partition, str] = {}
        self._looked_at: set[str] = set()
        #: Partitions whose beginning was logged.
        self._logged: set[Partition] = set()
        #: Topics that begin at their first record, whatever the configuration.
        self.read_from_first: frozenset[str] = frozenset()

    @property
    def chosen(self) -> bool:
        """Whether there is a policy; with auto.offset.reset=error a partition without an offset is an error."""
        return self._when is not None

    def has_to_look(self, topics: Collection[str]) -> bool:
        """Whether `look` has to ask about one of these topics."""
        return bool(self._unseen(topics))

    def _unseen(self, topics: Collection[str]) -> set[str]:
        new = {topic for topic in topics if topic not in self._looked_at and topic not in self.read_from_first}
        return new if self._when == LATEST else set()

    def look(
        self, consumer: OffsetReader, topics: Collection[str], deadline: Deadline, ids: TopicIds | None = None
    ) -> None:
        """Find the partitions to which "latest" applies: at the beginning, and for topics that are subscribed to later.
        One thread at a time. Raises SourceError.

        Args:
            consumer: sends the requests.
            topics: names and patterns.
            deadline: of the whole look.
            ids: reads the topics' ids; None = the one from the constructor.
        """
        if not (new := self._unseen(topics)):
            return
        partitions = _partitions(consumer, new, deadline)
        replies = committed(consumer, partitions, deadline, "looking where the group begins")
        # A commit without our mark is of a loop without holdfast, which commits nothing in partitions without records:
        # other partitions of the topic need not be new. holdfast commits in each partition that it begins, so a
        # partition without a commit is new there.
        ours = {reply.topic for reply in replies if reply.offset >= 0 and is_marked(reply)}
        known = (ids or self._ids).of({partition.topic for partition in partitions}, deadline)
        self._never_read |= {each: known[each.topic] for each in partitions if each.topic not in ours}
        self._looked_at |= new

    def of(self, partitions: Sequence[Partition], ids: Mapping[str, str]) -> Mapping[int, Sequence[Partition]]:
        """The partitions that begin at the log's start (EARLIEST), and those that begin at its end (LATEST).

        Args:
            partitions: those in which the group has no offset.
            ids: the current ids of their topics, as far as they are known.

        Raises:
            SourceError: auto.offset.reset=error forbids to choose.
        """
        chosen = [partition for partition in partitions if partition.topic not in self.read_from_first]
        if self._when is None and chosen:
            raise SourceError(
                f"the group {self._group} has committed no offset for {', '.join(map(str, chosen))} and "
                f"{_NAME}={self._policy} forbids to choose one: commit one, or use earliest or latest"
            )
        never = self._never_read
        late = [each for each in chosen if each in never and ids.get(each.topic, never[each]) == never[each]]
        early = [partition for partition in partitions if partition not in late]
        self._tell(early, "at the first record")
        self._tell(late, "at the end")
        return {when: some for when, some in ((EARLIEST, early), (LATEST, late)) if some}

    def _tell(self, partitions: Sequence[Partition], where: str) -> None:
        """Log where the group begins, once for each partition."""
        if new := [each for each in partitions if each not in self._logged and each.topic not in self.read_from_first]:
            self._logged.update(new)
            why = self._why
            if self._when == LATEST and where != "at the end":
                why = f"{why}, which applies to partitions that were there before"
            said = f"the group {self._group} has no offset in {ranges_of(new)}: it begins {where} ({why})"
            _log.info("%s", said)


def _partitions(consumer: OffsetReader, topics: Collection[str], deadline: Deadline) -> list[Partition]:
    """All existing partitions of these names and patterns. Raises SourceError."""
    try:
        known = consumer.list_topics(timeout=request_s(deadline)).topics
    except KafkaException as error:
        raise faults.as_source_error(error.args[0], "looking where the group begins") from error
    return [
        Partition(name, number)
        for name, topic in sorted(known.items())
        if topic.error is None and any(_matches(name, each) for each in topics)
        for number in sorted(topic.partitions)
    ]


def _matches(name: str, topic: str) -> bool:
    if not topic.startswith("^"):
        return name == topic
    if "[:" in topic:
        return True
    try:
        return re.match(topic, name) is not None
    except re.error:  # the client's patterns are POSIX ones: one that Python cannot read is taken to match
        return True
