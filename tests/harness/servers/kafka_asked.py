"""What tests ask of a Kafka, whoever has started it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic  # admin does not export them to type checkers

from tests.harness.processes import ServerFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_CALL_S = 60.0
#: What a broker answers about a topic that it is just about to have.
_NOT_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
)


class AskedKafka:
    """Its address, and clients for tests that live as long as this."""

    def __init__(self, bootstrap: str, brokers: int) -> None:
        self.bootstrap, self._brokers = bootstrap, brokers
        self._admin: AdminClient | None = None
        self._groups: dict[str, Consumer] = {}

    @property
    def admin(self) -> AdminClient:
        """An admin client; one for the server's life."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admin

    def create_topic(self, name: str, partitions: int = 8, config: Mapping[str, str] | None = None) -> None:
        """With a replica on each broker. Returns when the topic has its leaders. Raises KafkaException."""
        topic = NewTopic(name, num_partitions=partitions, replication_factor=self._brokers, config=dict(config or {}))
        self.admin.create_topics([topic], request_timeout=_CALL_S)[name].result(_CALL_S)
        self._await_partitions(name, partitions)

    def delete_topic(self, name: str) -> None:
        """Returns when the broker no longer lists the topic."""
        self.admin.delete_topics([name], request_timeout=_CALL_S)[name].result(_CALL_S)
        self._await_partitions(name, 0)

    def set_session(self, group: str, timeout_ms: int) -> None:
        """How long the broker waits for members of a group of the consumer protocol."""
        self.set_group(group, {"consumer.session.timeout.ms": str(timeout_ms)})

    def set_group(self, group: str, settings: Mapping[str, str]) -> None:
        """Change settings of a group, of whatever kind it is."""
        changes = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
        ]
        what = ConfigResource(ResourceType.GROUP, group, incremental_configs=changes)
        self.admin.incremental_alter_configs([what], request_timeout=_CALL_S)[what].result(_CALL_S)

    def add_partitions(self, topic: str, total: int) -> None:
        """Let the topic grow to `total` partitions."""
        self.admin.create_partitions([NewPartitions(topic, total)], request_timeout=_CALL_S)[topic].result(_CALL_S)
        self._await_partitions(topic, total)

    def forbid(
        self, kind: Literal["topic", "group"], name: str, operation: AclOperation = AclOperation.DESCRIBE
    ) -> None:
        """Nobody may do this with it any more; without DESCRIBE, nothing else. Brokers hear of it a moment later."""
        what = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}[kind]
        whom = (ResourcePatternType.LITERAL, "User:ANONYMOUS", "*")
        rules = [AclBinding(what, name, *whom, operation, AclPermissionType.DENY)]
        if operation is not AclOperation.DESCRIBE:
            # Where nothing has a rule, all is allowed; where one thing has, nothing else is.
            rules.append(AclBinding(what, name, *whom, AclOperation.ALL, AclPermissionType.ALLOW))
        for each in self.admin.create_acls(rules, request_timeout=_CALL_S).values():
            each.result(_CALL_S)

    def allow(self, user: str, kind: Literal["topic", "group"], name: str, operation: AclOperation) -> None:
        """A user may do that with it."""
        what = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}[kind]
        whom = (ResourcePatternType.LITERAL, f"User:{user}", "*")
        rule = AclBinding(what, name, *whom, operation, AclPermissionType.ALLOW)
        self.admin.create_acls([rule], request_timeout=_CALL_S)[rule].result(_CALL_S)

    def add_user(self, name: str, password: str) -> None:
        """Or another password of one that there is: by SCRAM-SHA-512."""
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(name, how, password.encode())
        self.admin.alter_user_scram_credentials([change], request_timeout=_CALL_S)[name].result(_CALL_S)

    def set_broker(self, number: int, name: str, value: str) -> None:
        """Change a setting of a broker that runs."""
        to = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        what = ConfigResource(ResourceType.BROKER, str(number), incremental_configs=[to])
        self.admin.incremental_alter_configs([what], request_timeout=_CALL_S)[what].result(_CALL_S)

    def partitions(self, topic: str) -> list[int]:
        """The topic's partitions; none = there is no such topic."""
        return sorted(self.admin.list_topics(timeout=_CALL_S).topics[topic].partitions) if self._has(topic) else []

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Partition -> committed offset; partitions without one are absent."""
        return {each.partition: each.offset for each in self.committed_raw(group, topic) if each.offset >= 0}

    def committed_raw(self, group: str, topic: str) -> list[TopicPartition]:
        """As the broker has it, with the metadata."""
        asked = [TopicPartition(topic, number) for number in self.partitions(topic)]
        return self._group(group).committed(asked, timeout=_CALL_S) if asked else []

    def end_offsets(self, topic: str, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> dict[int, int]:
        """Partition -> offset that the next record will get; or up to which committed records are read."""
        return self._ends(topic, self.partitions(topic), isolation)

    def reset(self, group: str, offsets: Iterable[TopicPartition]) -> None:
        """Set a group's offsets as an operator does; refused by the broker while the group has members."""
        self._group(group).commit(offsets=list(offsets), asynchronous=False)

    def _close_clients(self) -> None:
        for consumer in self._groups.values():
            consumer.close()
        self._groups.clear()
        self._admin = None

    def _group(self, group: str) -> Consumer:
        # A consumer that never subscribes joins nothing; it may ask and, while the group is empty, set. Kept. (2.16.1's
        # AdminClient.list_consumer_group_offsets kills a process that asks before there is `__consumer_offsets`.)
        if group not in self._groups:
            self._groups[group] = Consumer(
                {"bootstrap.servers": self.bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
            )
        return self._groups[group]

    def _has(self, topic: str) -> bool:
        return topic in self.admin.list_topics(timeout=_CALL_S).topics

    def _ends(
        self,
        topic: str,
        partitions: Iterable[int],
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[int, int]:
        # The admin client asks each time who leads. A consumer keeps what it knew: it never finds the new partitions.
        newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, number): newest for number in partitions}
        end_at = time.monotonic() + _CALL_S
        while asked:
            try:
                answers = self.admin.list_offsets(asked, isolation_level=isolation, request_timeout=_CALL_S)
                return {each.partition: answer.result(_CALL_S).offset for each, answer in answers.items()}
            except KafkaException as error:
                if error.args[0].code() not in _NOT_YET or time.monotonic() > end_at:
                    raise
                time.sleep(0.05)
        return {}

    def _await_partitions(self, topic: str, count: int) -> None:
        end_at = time.monotonic() + _CALL_S
        while time.monotonic() < end_at:
            found = self.admin.list_topics(timeout=_CALL_S).topics.get(topic)
            if (found is None and count == 0) or (
                found is not None
                and len(found.partitions) == count
                and all(each.leader >= 0 for each in found.partitions.values())
            ):
                self._ends(topic, range(count))  # a leader is named a moment before it knows that it is one
                return
            time.sleep(0.05)
        msg = f"{topic} has not got {count} partitions within {_CALL_S} s"
        raise ServerFailed(msg)
