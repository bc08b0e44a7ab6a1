"""Retry topics: where a record goes when its attempts in place have failed, and how long it waits there. Pure.

The topic's name alone determines the handler of its records, the scope of their business keys, how often they were
tried, and the next topic. No header decides any of that (`docs/explanation/trust.md`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from holdfast.errors import SettingError
from holdfast.plugin.retrying.retry import DELAY, Retry, seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: The units in names, the largest first: the first that divides the delay is used.
_NAMES_MS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))
_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One retry topic."""

    topic: str
    #: The origin topic of its records.
    born_in: str
    #: Seconds that a record waits there before it is handled again.
    delay_s: float
    #: Attempts that a record has had when it arrives there.
    attempts_before: int


def delay_in(topic: str, group: str) -> float | None:
    """The delay in seconds that the name of a group's retry topic has, if it follows the default of `Retry.topic_name`;
    None: the topic is none of them."""
    _, between, delay = topic.rpartition(f".{group}.retry.")
    return seconds_of(delay) if between and DELAY.fullmatch(delay) else None


def name_of(seconds: float) -> str:
    """A delay as a topic's name has it: `10s`, `10min`."""
    ms = round(seconds * 1000)
    unit, factor = next(each for each in _NAMES_MS if ms % each[1] == 0)
    return f"{ms // factor}{unit}"


def steps_of(topics: Sequence[str], retry: Retry, group: str) -> list[Step]:
    """The retry topics of one handler, for each of its topics in the order of the delays.

    Raises:
        SettingError: a pattern among its topics, or a name that Kafka does not accept.
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
    """Check a handler's retry policy when it is registered.

    Args:
        topics: the handler's topics.
        retry: its policy.
        group: the consumer group.
        able: whether the source supports retry topics.
        letters: the application's `dead_letters`; None: the source's own brokers get them.

    Raises:
        SettingError: the source or `letters` does not allow retry topics; or as `steps_of`.
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
    """All retry topics of an app."""

    #: Name of a retry topic -> its step.
    steps: Mapping[str, Step]
    #: Topic in which a record has failed (a retry topic or its origin) -> the topic that it goes to.
    following: Mapping[str, str]

    @classmethod
    def of(cls, handlers: Iterable[tuple[Sequence[str], Retry]], group: str, taken: Iterable[str]) -> RetryTopics:
        """Build them from all handlers' topics and policies. `taken`: names that a retry topic must not have.

        Raises:
            SettingError: two retry topics have the same name, or a name is taken.
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
        """The origin topic of records read from `topic`: the topic itself, unless it is a retry topic."""
        step = self.steps.get(topic)
        return topic if step is None else step.born_in

    def attempts_before(self, topic: str) -> int:
        """How often records of this topic were tried before they came here."""
        step = self.steps.get(topic)
        return 0 if step is None else step.attempts_before


#: For an app without retry topics.
NO_RETRY_TOPICS = RetryTopics(MappingProxyType({}), MappingProxyType({}))
