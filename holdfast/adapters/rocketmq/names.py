"""Names of positions in the store, of this process, of topics and of subscriptions. Pure."""

from __future__ import annotations

import re
import secrets
import socket
from typing import TYPE_CHECKING

from holdfast.errors import SettingError, SourceError
from holdfast.process_name import process_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from holdfast.records import Partition

RETRY, DLQ = "%RETRY%", "%DLQ%"
#: All messages of a topic.
EVERYTHING = "*"

#: A part of the client ids that holdfast makes, by which its members are recognised in a broker's list.
_OURS = "#holdfast#"
#: Topics that brokers create for themselves (TopicValidator of 5.5.0). No pattern matches them.
_SYSTEM = re.compile(
    r"%|rmq_sys_|rmq_sys_wheel_timer$|TBW102$|SCHEDULE_TOPIC_XXXX$|BenchmarkTest$|RMQ_SYS_|SELF_TEST_TOPIC$|OFFSET_MOVED_EVENT$"
)


def position_name(group: str, partition: Partition) -> str:
    """The name of a queue's position in the store."""
    return f"{group}/{partition.topic}/{partition.broker}/{partition.number}"


def retry_topic(group: str) -> str:
    """The topic in which a group's failed messages are delivered again."""
    return RETRY + group


def pop_retry_topics(group: str, topic: str) -> tuple[str, str]:
    """The topics for messages of `topic` that were given out by POP (as to gRPC clients) and not acknowledged: the name
    that RocketMQ 5 uses by default, and the one with enableRetryTopicV2 (KeyBuilder of 5.5.0)."""
    return f"{RETRY}{group}_{topic}", f"{RETRY}{group}+{topic}"


def popped_from(group: str, name: str) -> str | None:
    """The topic whose POP retry topic for the group has this name; None: the name is none of the group's. With "_"
    between group and topic, the name is ambiguous: another group may have a name that is longer by "_..."."""
    prefix = RETRY + group
    rest = name.removeprefix(prefix)
    return rest[1:] if name.startswith(prefix) and rest[:1] in ("_", "+") else None


def leased_record(group: str, topic: str) -> str:
    """The name in the store of claims for the members of a group that read a topic by LeasedSource."""
    return f"{group} (LeasedSource, {topic})"


def push_record(group: str) -> str:
    """The name in the store of claims for the members of a group that read by PushSource."""
    return f"{group} (PushSource)"


def client_id(instance_name: str | None) -> str:
    """A client id, such as 10.0.0.7@web1-4711#holdfast#9f86d081: address and instance as in RocketMQ's own clients,
    then a random number for this start of the process. Brokers tell members apart by it."""
    return f"{client_address()}@{instance_name or process_name()}{_OURS}{secrets.token_hex(4)}"


def is_ours(other: str) -> bool:
    """Whether `client_id` above has made a client id, in any process."""
    return _OURS in other


def client_address() -> str:
    """The address of this machine as other hosts see it. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address reserved for documentation (RFC 5737)
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def tags_of(expression: str) -> frozenset[str] | None:
    """The tags that an expression such as "TagA || TagB" lets through; None = all messages. Raises SettingError."""
    tags = [tag.strip() for tag in expression.split("||")]
    if tags == [EVERYTHING]:
        return None
    if not all(tags) or EVERYTHING in tags or any(re.search(r"\s", tag) for tag in tags):
        raise SettingError("subscriptions", expression, 'use tags parted by ||, such as "TagA || TagB", or "*" for all')
    return frozenset(tags)


def canonical(expression: str) -> str:
    """Write expressions that mean the same in the same way. Raises SettingError."""
    tags = tags_of(expression)
    return EVERYTHING if tags is None else " || ".join(sorted(tags))


def subscription_text(topics: Collection[str], expressions: Mapping[str, str]) -> str:
    """A member's subscription as text: equal for members that subscribe to the same topics and tags."""
    return ", ".join(f"{topic}:{canonical(expressions.get(topic, EVERYTHING))}" for topic in sorted(set(topics)))


def check_subscribed(name: str, expressions: Iterable[str], topics: Collection[str]) -> None:
    """Check that each topic of a setting has a handler, by its name or by a pattern. Raises SettingError: with a
    misspelled name, all messages of the intended topic would pass.

    Args:
        name: the setting's name.
        expressions: its topics.
        topics: names and patterns (^...) of the handlers.
    """
    patterns = [topic for topic in topics if topic.startswith("^")]
    for topic in expressions:
        if topic not in topics and not matching([topic], patterns):
            raise SettingError(
                name,
                topic,
                f"no handler has this topic: mend its name, or leave it out; handlers have {sorted(topics)}",
            )


def matching(topics: Iterable[str], patterns: Iterable[str]) -> set[str]:
    """The topics that patterns (^...) match, without those that brokers create for themselves."""
    found = [re.compile(pattern) for pattern in patterns]
    return {topic for topic in topics if not _SYSTEM.match(topic) and any(each.search(topic) for each in found)}


def no_patterns(pattern: str) -> SourceError:
    """The error of a client that does not support patterns."""
    return SourceError(f"this client subscribes to names alone, not to patterns such as {pattern!r}")
