"""Rules over a live group: its retry topics. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.plugin.retrying.keeping import flaws_of_retries
from holdfast.plugin.retrying.retry_topics import delay_in
from holdfast.tools.advice.rules.finding import Effect, Rule, Seen, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.tools.advice.rules.watched import Watched


def _losing(watched: Watched) -> Iterator[Seen]:
    for topic, keeping in watched.now.keeping.items():
        delay_s = delay_in(topic, watched.now.group)
        for flaw in () if delay_s is None else flaws_of_retries(topic, delay_s, keeping):
            yield Seen(topic, flaw.found, flaw.why, flaw.remedy, None if flaw.fatal else Severity.WARNING)


RULES = (
    Rule(
        name="retry-topic-loses",
        severity=Severity.ERROR,
        effect=Effect.SKIPS,
        title="Kafka: a retry topic (`<topic>.<group>.retry.<delay>`) that is compacted, or keeps its records for too "
        "short a time",
        look=_losing,
        also=((Severity.WARNING, "lost only while no member runs, or when many fail"),),
    ),
)
