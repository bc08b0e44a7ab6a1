"""The identity of topics: a topic that was deleted and made again has another id (KIP-516, brokers 2.8 and later).

And of their cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.kafka._client import TopicCollection
from holdfast.adapters.kafka.admin import MOST_S, Admin, of_mocks
from holdfast.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from holdfast.records import Partition
    from holdfast.timing import Deadline

# How a broker that gives no ids says so: the UUID of zeros, in Kafka's base64.
_NO_ID = "A" * 22


def position_name(group: str, partition: Partition, topic_id: str, cluster: str) -> str:
    """The store's name of a group's position in a partition: a topic that was made again begins with nothing known, and
    so does one of that name in another cluster. Where topics have no ids, the cluster's keeps two clusters apart."""
    return f"{group}/{partition.topic}/{topic_id or cluster}/{partition.number}"


class TopicIds:
    """Asks for ids with the consumer's credentials (DESCRIBE on the topic, which READ includes). One thread at a time.

    Raises SettingError where librdkafka refuses the configuration.
    """

    def __init__(self, conf: Mapping[str, object]) -> None:
        self._conf = conf
        self._admin: Admin | None = None
        self._first: dict[str, str] = {}
        #: The cluster's id, as of when topics were last asked for; "" = it has none, or is librdkafka's for tests.
        self.cluster = ""

    def admin(self) -> Admin:
        """The client that asks; made at the first call. Raises SettingError."""
        if self._admin is None:
            self._admin = Admin(self._conf)
        return self._admin

    def close(self) -> None:
        """Let the client go, in this thread. Where Python's collector of cycles finds it, that may be while it hands
        an answer over, in its own thread: then librdkafka aborts the process."""
        self._admin = None

    def of(self, topics: Collection[str], deadline: Deadline) -> dict[str, str]:
        """Topic -> id, the same for as long as the topic lives; "" for all where the cluster gives none.

        Blocks until the deadline at most. An id that could not be learnt raises; it is never "".

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
        """The id of each topic; what goes wrong with one topic stands in its place. Raises what is about all of
        them."""
        if not topics:
            return {}
        admin = self.admin()
        cluster = admin.reach(deadline)
        if of_mocks(cluster):  # a topic cannot be deleted there
            return {topic: self._as_first(topic, "") for topic in topics}
        self.cluster = self._as_first("", cluster)  # which is no topic's name
        asked = admin.client.describe_topics(
            TopicCollection(sorted(topics)), request_timeout=max(0.001, deadline.left_s(at_most=MOST_S))
        )
        found: dict[str, str | SourceError] = {}
        for topic, future in sorted(asked.items()):
            try:
                found[topic] = str(admin.answer(future, deadline, f"asking for the id of {topic}").topic_id)
            except SourceError as error:
                if not future.done():
                    raise  # no answer, or credentials that are refused: that is about all of them
                found[topic] = error
        errors = [answer for answer in found.values() if isinstance(answer, SourceError)]
        if len(errors) == len(found):
            raise errors[0]
        # During an upgrade from below 2.8 brokers differ: a mixture is "none", so that no topic seems to have changed
        # only because another broker answered.
        none = _NO_ID in found.values()
        return {
            topic: answer if isinstance(answer, SourceError) else self._as_first(topic, "" if none else answer)
            for topic, answer in found.items()
        }

    def _as_first(self, topic: str, answer: str) -> str:
        """Ids that appear (the brokers were upgraded) or disappear make no topic another one, and no cluster: what this
        process was told first holds until it ends. Only from one id to another it has changed."""
        first = self._first.get(topic)
        if first is None or (first and answer):
            self._first[topic] = answer
        return self._first[topic]
