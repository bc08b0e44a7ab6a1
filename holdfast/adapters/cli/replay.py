"""Replay: letters go back to where they were born, each once. Its steps are `run`'s; what is sent is noted after each
hundred, so a process that is killed in between has its successor send at most that many again.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.adapters.cli.letters import StoredLetter
from holdfast.adapters.cli.output import shown
from holdfast.errors import NotAuthorised, StoreError, UnknownTopic
from holdfast.records import Partition
from holdfast.timing import Deadline
from holdfast.tools.ports import Outgoing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.adapters.cli.interrupt import Interrupt
    from holdfast.adapters.cli.letters import Wanted
    from holdfast.adapters.cli.progress import Progress
    from holdfast.adapters.cli.replayed import Replayed
    from holdfast.tools.ports import DeadLetterTool

#: Letters that a killed replay may have sent without noting it.
CHUNK = 100
#: What Kafka and RocketMQ take for a topic's name.
_TOPIC = re.compile(r"[A-Za-z0-9._%|-]{1,249}")
#: How many sentences are told, at most: letters may name any number of topics.
_SENTENCES = 20
#: The client gives a letter up after 30 s; its answer then still has to arrive.
_ANSWER_S = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Where letters go."""

    #: A topic for all of them; None = each to its origin.
    to: str | None
    #: The topics that a letter may name as its origin. Whoever writes to the dead letter topic writes its headers: they
    #: choose among what a person has named, and nothing else.
    origins: frozenset[str]
    #: Choose the partition by the key, instead of the origin's number.
    by_key: bool

    @property
    def targets(self) -> frozenset[str]:
        """All topics that letters may go to."""
        return self.origins if self.to is None else frozenset((self.to,))

    def of(self, letter: StoredLetter) -> str | None:
        """The topic that a letter goes to, if it may; None = it says none."""
        return self.to or letter.origin_topic


@dataclass(slots=True)
class Result:
    """The result of a replay, letter by letter."""

    #: Sent and acknowledged; in a dry run, those that would be sent. By topic.
    sent: Counter[str] = field(default_factory=Counter)
    #: By offsets: gaps in the log count too.
    already: int = 0
    not_wanted: int = 0
    #: Sentences, and of how many letters they are true.
    refused: Counter[str] = field(default_factory=Counter)
    #: Sent without an answer, or not noted: another run sends them again.
    unknown: int = 0
    #: Ended before everything was looked at.
    stopped: str | None = None


class Replay:
    """One pass over a topic's letters. One thread.

    Args:
        box: where they lie.
        notes: what was sent before; where that is dry, nothing is sent.
        way: where they go.
        wanted: which.
        limit: how many at most.
        interrupt: Ctrl-C, which waits for the end of the chunk at hand.
        progress: told how far it is.
        result: takes what becomes of them; it is true also where `run` raises.
    """

    def __init__(
        self,
        box: DeadLetterTool,
        notes: Replayed,
        *,
        way: Way,
        wanted: Wanted,
        limit: int | None,
        interrupt: Interrupt,
        progress: Progress,
        result: Result,
    ) -> None:
        self._box, self._notes = box, notes
        self._way, self._wanted, self._limit = way, wanted, limit
        self._interrupt, self._progress = interrupt, progress
        self._targets: dict[str, frozenset[Partition]] = {}
        self._in_vain = 0
        self.result = result

    def run(self, firsts: Mapping[Partition, int], ends: Mapping[Partition, int], timeout_s: float) -> Result:
        """Read, choose, send, note. Raises SourceError, DeadLetterError, StoreError."""
        looked, starts = 0, self._notes.open(firsts, Deadline(timeout_s))
        self.result.already = sum(starts[partition] - first for partition, first in firsts.items())
        for records in self._box.read(starts, ends, timeout_s):
            chosen = [letter for letter in map(StoredLetter.of, records) if self._is_chosen(letter)]
            for at in range(0, len(chosen), CHUNK):
                with self._interrupt.held():
                    self._send(self._within_limit(chosen[at : at + CHUNK]), timeout_s)
                self._progress.at(looked, f"{self.result.sent.total():,} sent")
                if self._has_ended():
                    return self.result
            looked += len(records)
            self._progress.at(looked, f"{self.result.sent.total():,} sent")
            if self._has_ended():
                return self.result
        with self._interrupt.held():
            for partition, end in ends.items():
                self._notes.read_to(partition, end)
            self._notes.note((), Deadline(timeout_s))
        return self.result

    def _is_chosen(self, letter: StoredLetter) -> bool:
        if self._way.of(letter) in self._notes.came(letter.record):
            self.result.already += 1
            return False
        if not self._wanted(letter):
            self.result.not_wanted += 1
            return False
        return True

    def _within_limit(self, chunk: Sequence[StoredLetter]) -> Sequence[StoredLetter]:
        return chunk if self._limit is None else chunk[: self._limit - self.result.sent.total()]

    def _has_ended(self) -> bool:
        if self._interrupt.asked:
            self.result.stopped = "interrupted"
        elif self._limit is not None and self.result.sent.total() >= self._limit:
            self.result.stopped = "limit"
        return self.result.stopped is not None

    def _send(self, chunk: Sequence[StoredLetter], timeout_s: float) -> None:
        """One chunk, as a whole or up to the first trouble."""
        outgoing = [found for letter in chunk if (found := self._address(letter)) is not None]
        if self._notes.dry:
            self.result.sent.update(each.topic for each in outgoing)
            return
        if not outgoing:
            return
        self._notes.check()
        self.result.unknown = len(outgoing)
        answers = self._box.send(outgoing, Deadline(_ANSWER_S))
        self.result.unknown = sum(answer is not None and answer.retriable for answer in answers)
        sent = [each for each, answer in zip(outgoing, answers, strict=True) if answer is None]
        self.result.sent.update(each.topic for each in sent)
        try:
            self._notes.note([(each.letter, each.topic) for each in sent], Deadline(timeout_s))
        except StoreError as error:
            self.result.unknown += len(sent)
            raise type(error)(
                f"{len(sent)} letters were sent and could not be noted, so another run may send them again: {error}"
            ) from error
        self._in_vain = 0 if sent else self._in_vain + len(outgoing)
        for answer in answers:
            # One that the target will never take does not keep the others back; one without an answer ends the run, and
            # so does a target that takes nothing.
            if answer is not None and (answer.retriable or self._in_vain >= CHUNK):
                raise answer
            if answer is not None:
                self._refuse(str(answer))

    def _address(self, letter: StoredLetter) -> Outgoing | None:
        """Where a letter goes; None = it is refused, and stays open."""
        if letter.left_out is not None:
            self._refuse(
                "without their value, which was too large for the dead letter topic: it is where the record was born, "
                "as long as it is kept there (ORIGIN of `holdfast dead-letters list`)"
            )
            return None
        topic = self._way.of(letter)
        if topic is None or _TOPIC.fullmatch(topic) is None:
            self._refuse("without a topic in holdfast-origin-topic, so of another tool: name a topic with --to")
            return None
        if self._way.to is None and topic not in self._way.origins:
            name = shown(topic, 249)
            self._refuse(f"from {name} by their headers: if you mean that topic, name it with --origin {name}")
            return None
        if topic == letter.record.topic:
            self._refuse(f"from {shown(topic)} itself: name another topic with --to")
            return None
        there = self._partitions_of(topic)
        if not there:
            self._refuse(f"from {shown(topic)}, which does not exist or refuses this user: name a topic with --to")
            return None
        born = Partition(
            topic, -1 if letter.origin_partition is None else letter.origin_partition, letter.origin_broker
        )
        free = self._way.to is not None or self._way.by_key or born not in there
        return Outgoing(letter.record, topic, None if free else born)

    def _refuse(self, why: str) -> None:
        known = self.result.refused
        known[why if why in known or len(known) < _SENTENCES else "for more reasons like these"] += 1

    def _partitions_of(self, topic: str) -> frozenset[Partition]:
        """None of them = there is no such topic, or none for us."""
        if topic not in self._targets:
            try:
                self._targets[topic] = frozenset(self._box.partitions(topic, Deadline(_ANSWER_S)))
            except (UnknownTopic, NotAuthorised):
                self._targets[topic] = frozenset()
        return self._targets[topic]
