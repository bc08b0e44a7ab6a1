"""The ids of topics and of their cluster: a topic that was deleted and made again has another id (KIP-516, brokers 2.8
and later)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.kafka._client import TopicCollection
from holdfast.adapters.kafka.admin import MOST_S, of_mocks
from holdfast.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Collection

    from holdfast.adapters.kafka.admin import Admin
    from holdfast.records import Partition
    from holdfast.timing import Deadline

# The id from a broker without topic ids: the UUID of zeros, in Kafka's base64.
_NO_ID = "A" * 22


def position_name(group: str, partition: Partition, topic_id: str, cluster: str) -> str:
    """The store's name of a group's position in a partition. A topic that was made again has a new, empty position, and
    so has a topic of that name in another cluster. Without topic ids the cluster's id keeps two clusters apart."""
    return f"{group}/{partition.topic}/{topic_id or cluster}/{partition.number}"


class TopicIds:
    """Asks for ids with the consumer's credentials (DESCRIBE on the topic, which READ includes). One thread at a time.

    Raises SettingError: librdkafka refuses the configuration.
    """

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._first: dict[str, str] = {}
        #: The cluster's id at the last request for topics; "" = it has none, or is librdkafka's mock cluster.
        self.cluster = ""

    def of(self, topics: Collection[str], deadline: Deadline) -> dict[str, str]:
        """Topic -> id, the same for as long as the topic lives; "" for all if the cluster gives none.

        Blocks until the deadline at most. An id that could not be read raises; it is never "".

        Raises:
            SourceUnavailable: no answer.
            UnknownTopic: one of them does not exist.
            NotAuthorised: one of them may not be described, or the credentials are refused.
        """
        found = {}
        for topic, answer in self.of_each(topics, deadline).items():
            if isinstance(answer, SourceError):
                raise answer
            found[topic] = answer
        return found

    def of_each(self, topics: Collection[str], deadline: Deadline) -> dict[str, str | SourceError]:
        """The id of each topic, or its error. Raises errors about all of them."""
        if not topics:
            return {}
        cluster = self._admin.reach(deadline)
        if of_mocks(cluster):  # a topic cannot be deleted there
            return {topic: self._as_first(topic, "") for topic in topics}
        self.cluster = self._as_first("", cluster)  # "" is no name of a topic
        asked = self._admin.client.describe_topics(
            TopicCollection(sorted(topics)), request_timeout=max(0.001, deadline.left_s(at_most=MOST_S))
        )
        found: dict[str, str | SourceError] = {}
        for topic, future in sorted(asked.items()):
            try:
                found[topic] = str(self._admin.answer(future, deadline, f"asking for the id of {topic}").topic_id)
            except SourceError as error:
                if not future.done():
                    raise  # no answer, or refused credentials: an error about all topics
                found[topic] = error
        errors = [answer for answer in found.values() if isinstance(answer, SourceError)]
        if len(errors) == len(found):
            raise errors[0]
        # During an upgrade from below 2.8 brokers differ: if some ids are missing, all count as missing, so that no
        # topic seems to have changed because another broker answered.
        none = _NO_ID in found.values()
        return {
            topic: answer if isinstance(answer, SourceError) else self._as_first(topic, "" if none else answer)
            for topic, answer in found.items()
        }

    def _as_first(self, topic: str, answer: str) -> str:
        """Return the id to use for a topic or a cluster. An id that appears (the brokers were upgraded) or disappears
        is no change: the first answer counts until the process ends. Only another id is a change."""
        first = self._first.get(topic)
        if first is None or (first and answer):
            self._first[topic] = answer
        return self._first[topic]
