"""Names: of positions in the store, of this process, of what a group subscribes to. Pure."""

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

#: In our client ids, so that others of our kind are recognised in a broker's list.
_OURS = "#holdfast#"
#: What brokers make for themselves (TopicValidator of 5.5.0): a pattern does not mean these.
_SYSTEM = re.compile(
    r"%|rmq_sys_|rmq_sys_wheel_timer$|TBW102$|SCHEDULE_TOPIC_XXXX$|BenchmarkTest$|RMQ_SYS_|SELF_TEST_TOPIC$|OFFSET_MOVED_EVENT$"
)


def position_name(group: str, partition: Partition) -> str:
    """The name of a queue's position in the store."""
    return f"{group}/{partition.topic}/{partition.broker}/{partition.number}"


def retry_topic(group: str) -> str:
    """Where a group's failed messages come again."""
    return RETRY + group


def pop_retry_topics(group: str, topic: str) -> tuple[str, str]:
    """Where brokers put what they have given out one by one (POP, as to gRPC clients) and nobody has acknowledged, of a
    topic: as RocketMQ 5 names it by default, and with enableRetryTopicV2 (KeyBuilder of 5.5.0)."""
    return f"{RETRY}{group}_{topic}", f"{RETRY}{group}+{topic}"


def popped_from(group: str, name: str) -> str | None:
    """The topic of which that is such a retry topic, if the group is the one that the name begins with; else None. With
    "_" between, the name alone does not tell whether it is."""
    prefix = RETRY + group
    rest = name.removeprefix(prefix)
    return rest[1:] if name.startswith(prefix) and rest[:1] in ("_", "+") else None


def leased_record(group: str, topic: str) -> str:
    """Under which the members of a group that read a topic by LeasedSource are in the store of claims."""
    return f"{group} (LeasedSource, {topic})"


def push_record(group: str) -> str:
    """The record of those that read by PushSource."""
    return f"{group} (PushSource)"


def client_id(instance_name: str | None) -> str:
    """Such as 10.0.0.7@web1-4711#holdfast#9f86d081: as RocketMQ's own, address and instance, then what makes it one
    start of one process. A broker counts members by it."""
    return f"{client_address()}@{instance_name or process_name()}{_OURS}{secrets.token_hex(4)}"


def is_ours(other: str) -> bool:
    """Whether a client id was made here."""
    return _OURS in other


def client_address() -> str:
    """The address of this machine as others see it. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # of a range that is for documentation (RFC 5737)
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
    """A member's subscription, as one text that is equal for those who subscribe alike."""
    return ", ".join(f"{topic}:{canonical(expressions.get(topic, EVERYTHING))}" for topic in sorted(set(topics)))


def check_subscribed(name: str, expressions: Iterable[str], topics: Collection[str]) -> None:
    """Each topic of a setting is one that somebody handles, by its name or by a pattern. Raises SettingError: a name
    that was misspelled would let all messages of the right one through.

    Args:
        name: the setting.
        expressions: its topics.
        topics: names and patterns (^...) that handlers have.
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
    """The topics that patterns (^...) mean: those of users alone."""
    found = [re.compile(pattern) for pattern in patterns]
    return {topic for topic in topics if not _SYSTEM.match(topic) and any(each.search(topic) for each in found)}


def no_patterns(pattern: str) -> SourceError:
    """Of clients that know no patterns."""
    return SourceError(f"this client subscribes to names alone, not to patterns such as {pattern!r}")
