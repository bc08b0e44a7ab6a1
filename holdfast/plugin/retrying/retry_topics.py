"""Retry topics: where a record goes that has failed in place, for how long it stays there, and whose it is. Pure.

What comes of such a topic is known by the topic's name alone: the handler, the scope of the business key, how often it
was tried and where it goes next. No header decides any of that (`docs/explanation/trust.md`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from holdfast.errors import SettingError
from holdfast.plugin.retrying.delay_names import name_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.plugin.retrying.retry import Retry

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One retry topic."""

    topic: str
    #: The topic whose records it brings again.
    born_in: str
    #: How long a record stays there before it is handed out.
    delay_s: float
    #: How often a record was tried that has come so far.
    attempts_before: int


def steps_of(topics: Sequence[str], retry: Retry, group: str) -> list[Step]:
    """The retry topics of one handler; of each of its topics in their order.

    Raises:
        SettingError: a pattern among its topics, or a name that Kafka does not take.
    """
    steps = []
    for topic in topics if retry.topics else ():
        if topic.startswith("^"):
            raise SettingError(
                "topics", topic, "retry topics go with names: what a pattern matches is not known at the start"
            )
        for number, delay_s in enumerate(retry.delays_s, 1):
            name = retry.topic_name.replace("{topic}", topic).replace("{group}", group)
            name = name.replace("{delay}", name_of(delay_s))
            if not _LEGAL.fullmatch(name):
                raise SettingError(
                    "topic_name",
                    name,
                    "Kafka takes no topic of that name (up to 249 of a-z, A-Z, 0-9, '.', '_', '-'): give "
                    "Retry(topic_name=...) with {topic}, {delay} and words of your own",
                )
            steps.append(Step(topic=name, born_in=topic, delay_s=delay_s, attempts_before=number * retry.attempts))
    return steps


def check_retry(topics: Sequence[str], retry: Retry, group: str, *, able: bool, letters: object) -> None:
    """When a handler is registered.

    Args:
        topics: its topics.
        retry: its policy.
        group: the consumer group.
        able: whether the source can have retry topics.
        letters: what the application has given for its dead letters; None = the source's own brokers get them.

    Raises:
        SettingError: retry topics cannot be had here, or see `steps_of`.
    """
    if retry.topics and not able:
        raise SettingError(
            "topics",
            list(retry.topics),
            "retry topics are for KafkaSource. RocketMQ's broker brings failed messages again by itself, after delays "
            'of its own: RocketMQSource(retry="broker"), LeasedSource, PushSource',
        )
    if retry.topics and letters is not None:
        raise SettingError(
            "dead_letters",
            letters,
            "retry topics are written to the brokers that they are read from: leave dead_letters=... out, and the "
            "source's own brokers get both",
        )
    steps_of(topics, retry, group)


@dataclass(frozen=True, slots=True)
class RetryTopics:
    """All of an app."""

    #: By the retry topic's name.
    steps: Mapping[str, Step]
    #: By the topic in which a record has failed, a retry topic or its origin: where it goes.
    following: Mapping[str, str]

    @classmethod
    def of(cls, handlers: Iterable[tuple[Sequence[str], Retry]], group: str, taken: Iterable[str]) -> RetryTopics:
        """Of all handlers' topics and policies. `taken`: topics that cannot be retry topics.

        Raises:
            SettingError: two of one name, or one whose name is taken.
        """
        steps: dict[str, Step] = {}
        following, known = dict[str, str](), set(taken)
        for topics, retry in handlers:
            for step in steps_of(topics, retry, group):
                if step.topic in known or step.topic in steps:
                    raise SettingError(
                        "topic_name",
                        step.topic,
                        f"the retry topic of {step.born_in} after {name_of(step.delay_s)} has the name of a handler's "
                        "topic, of a dead letter topic or of another retry topic: give Retry(topic_name=...) with "
                        "{topic} and {delay} in it",
                    )
                last = next((each for each in reversed(steps.values()) if each.born_in == step.born_in), None)
                following[step.born_in if last is None else last.topic] = step.topic
                steps[step.topic] = step
        return cls(steps, following)

    def __bool__(self) -> bool:
        return bool(self.steps)

    def born_in(self, topic: str) -> str:
        """The topic where what comes of that one was born: its own, unless it is a retry topic."""
        step = self.steps.get(topic)
        return topic if step is None else step.born_in

    def attempts_before(self, topic: str) -> int:
        """How often what comes of that topic was tried before."""
        step = self.steps.get(topic)
        return 0 if step is None else step.attempts_before


#: Of an app that has none.
NO_RETRY_TOPICS = RetryTopics(MappingProxyType({}), MappingProxyType({}))
