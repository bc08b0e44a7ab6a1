"""Letters that `send` has given up, and that the client may still deliver: while a topic has too few in-sync replicas,
the client holds them, and would take each new try for one more letter."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from holdfast.timing import Deadline

if TYPE_CHECKING:
    from holdfast.adapters.kafka._client import KafkaError, Message
    from holdfast.records import Partition

#: How long an answer is kept: longer than the client keeps a letter (message.timeout.ms), and than the engine waits
#: between two tries. Not longer than that: a record that is replayed on purpose, and fails again, gets a letter of its
#: own.
_COUNTS_S = 60.0


class LetterName(NamedTuple):
    """The identity of a letter over several tries. `form`: bytes of its value, and number of its headers."""

    topic: str
    origin: Partition
    offset: int
    form: tuple[int, int]


class Answer:
    """The broker's answer to one letter."""

    def __init__(self) -> None:
        self.known = threading.Event()
        self.error: KafkaError | None = None
        self.counts = Deadline(_COUNTS_S)

    def told(self, error: KafkaError | None, _: Message) -> None:
        """Note the answer. Called in the producer's thread."""
        self.error = error
        self.known.set()


class UnderWay:
    """The letters of one producer that were given up. Any thread; one letter is sent by one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[LetterName, Answer] = {}

    def give_up(self, name: LetterName, answer: Answer) -> None:
        """Keep the answer of a letter for which the caller waits no more."""
        with self._lock:
            self._answers = {each: kept for each, kept in self._answers.items() if not kept.counts.passed}
            self._answers[name] = answer

    def take_up(self, name: LetterName) -> Answer | None:
        """Return the answer to an earlier try, if it is outstanding or says that the letter is delivered; None = send
        the letter."""
        with self._lock:
            answer = self._answers.pop(name, None)
        if answer is None or answer.counts.passed or (answer.known.is_set() and answer.error is not None):
            return None
        return answer
