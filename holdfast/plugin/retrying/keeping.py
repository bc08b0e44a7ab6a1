"""Whether topics keep the failed records in them: a retry topic until they are due, a dead letter topic for people.

Pure. The adapter that asks the broker passes a topic's `Keeping`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from holdfast.plugin.retrying.retry_topics import name_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from holdfast.timing import Deadline

#: A retention that is shorter than the delay and this gets a warning: while no member runs, due records are not read.
_SPARE_S = 3_600.0


class Keeping(NamedTuple):
    """How a topic keeps its records, as its broker reports it."""

    #: Whether compaction deletes all but the last record of each key.
    compacted: bool = False
    #: Seconds that a record is kept; None: age deletes nothing.
    kept_s: float | None = None
    #: Bytes of a partition that are kept; None: no limit.
    kept_bytes: int | None = None
    #: The largest record that the topic accepts, in bytes as stored; None: not known.
    most_bytes: int | None = None


class Flaw(NamedTuple):
    """Something that is wrong with a topic."""

    topic: str
    #: True: records are certain to be lost. False: they may be.
    fatal: bool
    #: The topic's setting, as `name=value`.
    found: str
    why: str
    remedy: str

    def __str__(self) -> str:
        """The flaw in one sentence, for a log or an error."""
        return f"{self.topic} has {self.found}: {self.why}; {self.remedy}"


@runtime_checkable
class KeepsRecords(Protocol):
    """Dead letters that can check whether their topics keep the records."""

    def check_keeping(
        self, delays: Mapping[str, float], origins: Mapping[str, Collection[str]], deadline: Deadline
    ) -> None:
        """Check the topics, at the start, after `check`. Flaws that are not fatal are logged.

        Args:
            delays: each retry topic -> the seconds that a record waits in it.
            origins: each retry and dead letter topic -> the topics whose records go there; patterns are left out.
            deadline: of the start.

        Raises:
            TopicUnfit: a retry topic loses records before they are due.
            SourceUnavailable: the broker cannot be asked now.
        """
        ...


def flaws_of_retries(topic: str, delay_s: float, keeping: Keeping) -> Iterator[Flaw]:
    """Find settings that make a retry topic of this delay lose records that wait in it."""
    if keeping.compacted:
        why = "compaction deletes all but the last record of a key, and the others are never tried again"
        yield Flaw(topic, True, "cleanup.policy=compact", why, "set cleanup.policy=delete")
    if keeping.kept_s is not None and keeping.kept_s < delay_s + _SPARE_S:
        found, fatal = f"retention.ms={keeping.kept_s * 1000:.0f}", keeping.kept_s <= _read_after_s(delay_s)
        wait = f"records wait there for {name_of(delay_s)}"
        if fatal:
            why = f"{wait}, and may be deleted before they are tried again"
        else:
            why = f"{wait}, and are deleted if no member runs for {keeping.kept_s - delay_s:.0f} s longer"
        yield Flaw(topic, fatal, found, why, "raise it to the delay and your longest downtime, such as a week more")
    if keeping.kept_bytes is not None:
        why = "when more records fail than fit, the oldest are deleted before they are tried again"
        yield Flaw(topic, False, f"retention.bytes={keeping.kept_bytes}", why, "set it to -1, and let time decide")


def flaws_of_letters(topic: str, keeping: Keeping) -> Iterator[Flaw]:
    """Find settings that make a dead letter topic lose letters before they are read."""
    if keeping.compacted:
        why = "of the dead letters of one key only the last one stays, and those without a key are refused"
        yield Flaw(topic, False, "cleanup.policy=compact", why, "set cleanup.policy=delete")


def flaws_of_size(topic: str, keeping: Keeping, origins: Mapping[str, Keeping]) -> Iterator[Flaw]:
    """Find whether an origin accepts larger records than this topic. `origins`: the topics whose records go there."""
    larger = {name: each.most_bytes for name, each in origins.items() if each.most_bytes is not None}
    if keeping.most_bytes is not None and larger and (most := max(larger.values())) > keeping.most_bytes:
        origin = min(name for name, each in larger.items() if each == most)
        why = f"{origin} takes records of up to {most}, and one that is larger is refused here"
        yield Flaw(topic, False, f"max.message.bytes={keeping.most_bytes}", why, f"raise it to {most} and some kB more")


def _read_after_s(delay_s: float) -> float:
    """The latest time at which a running member reads the record: see `plugin.engine.partition.delays`."""
    return delay_s + min(delay_s / 20, 1.0)
