"""Rules for the times of a consumer group, which must fit each other. Pure; with Kafka's names and milliseconds.

Each rule is a function that returns a Misfit, or None if the rule holds. The checks of a configuration, the advice for
one and the doctor use the same rules. Limits and defaults are those of Kafka 4.3 (GroupCoordinatorConfig,
ConsumerConfig) and of librdkafka 2.16 (CONFIGURATION.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import NamedTuple

from holdfast.errors import SettingError

SESSION = "session.timeout.ms"
HEARTBEAT = "heartbeat.interval.ms"
MAX_POLL = "max.poll.interval.ms"
#: The same under the consumer protocol: settings of the group at the broker, not of its clients.
GROUP_SESSION = "consumer.session.timeout.ms"
GROUP_HEARTBEAT = "consumer.heartbeat.interval.ms"

DEFAULT_SESSION_MS = 45_000
DEFAULT_HEARTBEAT_MS = 3_000
DEFAULT_GROUP_HEARTBEAT_MS = 5_000
DEFAULT_MAX_POLL_MS = 300_000

#: A session has room for this many heartbeats, so that two may be lost.
HEARTBEATS_A_SESSION = 3
#: The brokers' default limits for classic sessions (group.min and group.max.session.timeout.ms). A join with a value
#: outside is answered by INVALID_SESSION_TIMEOUT.
SESSION_RANGE_MS = (6_000, 1_800_000)
#: The same under the consumer protocol (group.consumer.min and group.consumer.max.session.timeout.ms).
GROUP_SESSION_RANGE_MS = (45_000, 60_000)
#: The largest value that librdkafka accepts; Java accepts more.
LONGEST_POLL_MS = 86_400_000

#: Time between the end of a drain and the next poll: for a bounded commit, which took up to 1.4 s on a real broker in
#: the second phase of a cooperative rebalance, and the poll itself.
COMMIT_S = 2.0
#: The default drain, and the largest part of the available time that a default drain may take.
DEFAULT_DRAIN_S = 10.0
_OF_THE_ROOM = 0.8
#: Most restarts take longer: a process ends, is scheduled and pulled, starts and imports.
SHORT_RESTART_MS = 10_000


class Misfit(NamedTuple):
    """Two times that do not fit. The texts name both, and the remedy."""

    field: str
    value: object
    #: The consequence.
    effect: str
    remedy: str

    def error(self) -> SettingError:
        """The misfit as an error."""
        return SettingError(self.field, self.value, self.remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class PollBudget:
    """The work of a member between two polls.

    Raises:
        SettingError: an impossible value.
    """

    #: The longest time of one record.
    handler_s: float
    #: Records that are handled at the same time.
    workers: int = 1
    #: Records of one poll, which are all done before the next.
    batch: int = 500
    #: How long a hand-over waits for running handlers.
    drain_s: float = 0.0
    commit_s: float = COMMIT_S
    #: The client is polled while handlers run, as holdfast does: then only a hand-over lies between two polls.
    polls_meanwhile: bool = False

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "polls_meanwhile":
                continue
            whole = each.name in ("workers", "batch")
            if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
                raise SettingError(each.name, value, f"use a {'whole ' if whole else ''}number")
            if not (1 if whole else 0) <= value < math.inf:
                raise SettingError(
                    each.name, value, f"use {'1 or more' if whole else 'a number of seconds, 0 or more'}"
                )

    @property
    def batch_s(self) -> float:
        """The time for a poll's records, if each takes the longest time."""
        return 0.0 if self.polls_meanwhile else math.ceil(self.batch / self.workers) * self.handler_s

    @property
    def total_s(self) -> float:
        """The time for batch, drain and commit."""
        return self.batch_s + self.drain_s + self.commit_s

    def largest_batch(self, limit_s: float) -> int:
        """The largest batch whose total stays below the limit; 0: not even one record."""
        rest_s = self.drain_s + self.commit_s
        if rest_s >= limit_s or self.handler_s == 0 or self.polls_meanwhile:
            return 0 if rest_s >= limit_s else self.batch
        rounds = math.floor((limit_s - rest_s) / self.handler_s) + 1
        while rounds * self.handler_s + self.drain_s + self.commit_s >= limit_s:  # rounded as in total_s
            rounds -= 1
        return rounds * self.workers

    def shortest_limit_ms(self) -> int:
        """The lowest limit in whole milliseconds that the total stays below."""
        limit_ms = math.floor(self.total_s * 1000)
        while limit_ms / 1000 <= self.total_s:  # compared as turn_fits does: 2.01 * 1000 is less than 2010
            limit_ms += 1
        return limit_ms

    def __str__(self) -> str:
        parts = []
        if not self.polls_meanwhile:
            at_once = f", {self.workers} at a time," if self.workers > 1 else ""
            parts.append(f"a batch of {self.batch:,} records{at_once} of {self.handler_s:g} s each: {self.batch_s:g} s")
        parts += [f"drain: {self.drain_s:g} s", f"commit: {self.commit_s:g} s"]
        return f"{' + '.join(parts)} = {self.total_s:g} s"


def heartbeat_fits(
    heartbeat_ms: int, session_ms: int, *, heartbeat: str = HEARTBEAT, session: str = SESSION
) -> Misfit | None:
    """A heartbeat interval is at most a third of the session. `heartbeat`, `session`: the names of the settings."""
    if 0 < heartbeat_ms * HEARTBEATS_A_SESSION <= session_ms:
        return None
    return Misfit(
        heartbeat,
        heartbeat_ms,
        "one or two late heartbeats end the membership, and the group rebalances without need",
        f"use at most {session_ms // HEARTBEATS_A_SESSION}, a third of {session}={session_ms}, so that two heartbeats "
        "may be lost",
    )


def session_below_poll(session_ms: int, max_poll_ms: int) -> Misfit | None:
    """The session is not longer than the poll interval: else librdkafka refuses to create a client; Java does not."""
    if session_ms <= max_poll_ms:
        return None
    return Misfit(
        MAX_POLL,
        max_poll_ms,
        "confluent-kafka refuses to create the consumer",
        f"use at least {SESSION}={session_ms}: librdkafka refuses less",
    )


def session_allowed(
    session_ms: int, allowed_ms: tuple[int, int] = SESSION_RANGE_MS, *, session: str = SESSION
) -> Misfit | None:
    """The session is within the brokers' default limits."""
    least_ms, most_ms = allowed_ms
    if least_ms <= session_ms <= most_ms:
        return None
    limits = "group.{}.session.timeout.ms" if session == SESSION else "group.consumer.{}.session.timeout.ms"
    low = session_ms < least_ms
    name, limit_ms, words = (
        (limits.format("min"), least_ms, "below") if low else (limits.format("max"), most_ms, "above")
    )
    return Misfit(
        session,
        session_ms,
        f"brokers refuse a session timeout {words} their {name}, {limit_ms} by default",
        f"use {limit_ms} or {'more' if low else 'less'}, unless your brokers allow this value",
    )


def restart_fits(session_ms: int, restart_s: float | None = None, *, session: str = SESSION) -> Misfit | None:
    """A static member comes back within its session. `restart_s`: how long a restart takes; None: not known."""
    least_ms = SHORT_RESTART_MS if restart_s is None else math.floor(restart_s * 1000) + 1
    if session_ms >= least_ms:
        return None
    takes = "a restart takes some seconds" if restart_s is None else f"a restart takes {restart_s:g} s"
    return Misfit(
        session,
        session_ms,
        "a static member (group.instance.id) keeps its partitions during a restart only until its session ends, and "
        f"{takes}",
        f"use {least_ms} or more, longer than a restart takes; the default is {DEFAULT_SESSION_MS}",
    )


def turn_fits(turn: PollBudget, max_poll_ms: int) -> Misfit | None:
    """Batch, drain and commit end before the group takes the member for stuck."""
    limit_s = max_poll_ms / 1000
    if turn.total_s < limit_s:
        return None
    ways = []
    if not turn.polls_meanwhile and (batch := turn.largest_batch(limit_s)) > 0:
        ways.append(f"take at most {batch:,} records a poll")
    if (room_s := limit_s - turn.batch_s - turn.commit_s) > 0:
        ways.append(f"drain for less than {room_s:g} s")
    if (wanted_ms := turn.shortest_limit_ms()) <= LONGEST_POLL_MS:
        ways.append(f"allow {wanted_ms} or more")
    if not turn.polls_meanwhile:
        ways.append("poll while handlers run")
    return Misfit(
        MAX_POLL,
        max_poll_ms,
        "the member loses its membership while it still works, and its records run again on another member, where "
        "they take as long",
        f"{turn}, which is not below {limit_s:g} s: {', or '.join(ways)}",
    )


def drain_fits(drain_s: float, max_poll_ms: int) -> Misfit | None:
    """Drain and commit fit into the poll interval, for a member that polls while handlers run."""
    turn = PollBudget(handler_s=0.0, drain_s=drain_s, polls_meanwhile=True)
    if (found := turn_fits(turn, max_poll_ms)) is None:
        return None
    limit_s = max_poll_ms / 1000
    return Misfit(
        "drain_timeout_s",
        drain_s,
        found.effect,
        f"a drain runs between two polls: {drain_s:g} s + {COMMIT_S:g} s for the commit reach {MAX_POLL}={max_poll_ms} "
        f"({limit_s:g} s), and this member would lose its membership; use less than "
        f"{max(0.0, limit_s - COMMIT_S):g} s, or a larger {MAX_POLL}",
    )


def fitting_drain_s(max_poll_interval_s: float) -> float:
    """The drain if none is set: the default, or 80 % of the time that the poll interval leaves; 0: it leaves none."""
    room_s = max_poll_interval_s - COMMIT_S
    return DEFAULT_DRAIN_S if room_s > DEFAULT_DRAIN_S else max(0.0, round(_OF_THE_ROOM * room_s, 3))


def heartbeat_for(session_ms: int, default_ms: int = DEFAULT_HEARTBEAT_MS) -> int:
    """The client's default heartbeat interval if it fits, else a third of the session."""
    return max(1, min(default_ms, session_ms // HEARTBEATS_A_SESSION))
