"""Retry: when a failed record is tried again. tenacity computes the wait; the engine's timers do the waiting."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import tenacity

from holdfast.errors import SettingError, Unretriable
from holdfast.plugin.setting_names import check_number, known
from holdfast.runtime import MACHINE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

#: A delay as text: "10s".
DELAY = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}


@known
@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A policy of attempts with exponential backoff, jitter and a cap.

    While a record waits for its next attempt, only records of its key (or of its partition, as `Settings.ordering`
    says) wait behind it.

    Raises:
        SettingError: a value that cannot work.
    """

    #: Attempts in all, the first one included.
    attempts: int = 3
    #: Seconds before the second attempt; each further wait is `multiplier` times longer, up to `wait_max_s`.
    wait_initial_s: float = 0.2
    wait_max_s: float = 30.0
    multiplier: float = 2.0
    #: A random number of seconds up to this is added, so that records that failed together are not tried together.
    jitter_s: float = 0.1
    #: Errors that are tried again; all others fail the record at once.
    retry_on: tuple[type[Exception], ...] = (Exception,)
    #: Exceptions to `retry_on`. `Unretriable` is always one.
    give_up_on: tuple[type[Exception], ...] = ()
    #: Kafka: delays ("10s", "1min", seconds, a timedelta), a retry topic for each. When the attempts are used up, the
    #: record goes to the first retry topic and is tried again after its delay, then to the next. Other records do not
    #: wait for it, so it loses its place in the order.
    topics: Sequence[str | float | timedelta] = ()
    #: The name of a retry topic. It has the group, so that groups that fail on the same record do not share topics.
    topic_name: str = "{topic}.{group}.retry.{delay}"

    @property
    def delays_s(self) -> tuple[float, ...]:
        """The delays of the retry topics, in seconds."""
        return tuple(map(seconds_of, self.topics))

    def __post_init__(self) -> None:
        check_number("attempts", self.attempts, 1, "use 1 for no retries, 2 or more for some", whole=True)
        for name in ("wait_initial_s", "wait_max_s", "jitter_s"):
            check_number(name, getattr(self, name), 0, "use 0 or more seconds", endless=name == "wait_max_s")
        check_number("multiplier", self.multiplier, 1, "use 1 (constant waits) or more")
        for name in ("retry_on", "give_up_on"):
            object.__setattr__(self, name, _errors(name, getattr(self, name)))
        if not isinstance(self.topic_name, str):
            raise SettingError("topic_name", self.topic_name, "use text, with {topic} and {delay} in it")
        if isinstance(self.topics, str) or not isinstance(self.topics, Iterable):
            raise SettingError("topics", self.topics, f"name a list of delays: [{self.topics!r}]")
        object.__setattr__(self, "topics", tuple(self.topics))
        if len(set(self.delays_s)) < len(self.delays_s):
            raise SettingError(
                "topics", self.topics, "each delay is a topic of its own: let them differ, or raise attempts"
            )

    def may_cure(self, error: Exception) -> bool:
        """Whether a record that failed with this error may be tried again."""
        return not isinstance(error, (Unretriable, *self.give_up_on)) and isinstance(error, self.retry_on)

    def wait_s(self, attempt: int, error: Exception, chance: Random = MACHINE.random) -> float | None:
        """Seconds to wait before the next attempt; None: do not try again. Any thread.

        Args:
            attempt: the number of the failed attempt: 1, 2, ...
            error: the error that it raised.
            chance: draws the jitter.
        """
        if not self.may_cure(error):
            return None
        state = tenacity.RetryCallState(retry_object=_NOTHING, fn=None, args=(), kwargs={})
        state.attempt_number = attempt
        if tenacity.stop_after_attempt(self.attempts)(state):
            return None
        # Not wait_exponential_jitter: tenacity renamed its argument for the first wait, with a warning at each use.
        wait = tenacity.wait_exponential(multiplier=self.wait_initial_s, max=self.wait_max_s, exp_base=self.multiplier)
        # Beyond 1,024 attempts the power overflows, and tenacity returns the longest wait.
        waits_s = float(wait(state)) if self.wait_initial_s else 0.0
        return min(waits_s + chance.uniform(0, self.jitter_s), self.wait_max_s)


def seconds_of(delay: str | float | timedelta) -> float:
    """A delay in seconds. Raises SettingError: not a delay, or below a millisecond."""
    if isinstance(delay, timedelta):
        seconds = delay.total_seconds()
    elif isinstance(delay, str):
        found = DELAY.fullmatch(delay.strip())
        seconds = float(found[1]) * _UNITS_S[found[2]] if found else 0.0
    else:
        try:
            seconds = float(delay)
        except TypeError:
            seconds = 0.0
    if not 0.001 <= seconds < float("inf"):
        raise SettingError("topics", delay, 'name delays: "10s", "1min", "2h", seconds, or a timedelta; 1 ms or more')
    return seconds


def _errors(name: str, given: object) -> tuple[type[BaseException], ...]:
    """One class of errors or several, as a tuple. Raises SettingError here rather than at the first failed record."""
    found = (given,) if isinstance(given, type) else tuple(given) if isinstance(given, list | tuple) else ()
    if not all(isinstance(each, type) and issubclass(each, BaseException) for each in found) or (
        not found and given not in ((), [])
    ):
        raise SettingError(name, given, "give classes of exceptions: (ConnectionError, TimeoutError)")
    return found


_NOTHING = tenacity.Retrying()
#: For holdfast's own calls, which are repeated until they succeed: dead letters, the store, the broker.
BACKOFF = Retry(attempts=1_000_000_000, wait_initial_s=0.1, wait_max_s=5.0, jitter_s=0.1)
