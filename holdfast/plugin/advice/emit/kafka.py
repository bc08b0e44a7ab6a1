"""Kafka: the configuration of confluent-kafka and of the Java client, and what a group's brokers are told."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from holdfast.errors import SettingError
from holdfast.plugin import budget
from holdfast.plugin.advice.emit.sheet import Choice, Sheet

if TYPE_CHECKING:
    from holdfast.plugin.advice.emit.workload import Workload

#: Java's too: in a mixed group the strategy, and how long the others wait, have to be right at all members.
Client = Literal["confluent-kafka", "java"]
Protocol = Literal["consumer", "cooperative"]

COOPERATIVE = {
    "confluent-kafka": "cooperative-sticky",
    "java": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
_READY = {
    client: f"The consumer protocol is ready in {client_version} and later; it takes no session.timeout.ms, "
    "heartbeat.interval.ms or partition.assignment.strategy."
    for client, client_version in (("confluent-kafka", "confluent-kafka 2.12"), ("java", "kafka-clients 4.0"))
}
#: A member that is dead is noticed after that time, where members are killed as a rule. Above what a long pause of a
#: garbage collector or of a virtual machine takes, and above the least that brokers allow.
_CRASH_SESSION_MS = 10_000
#: Records that a poll of the Java client brings by itself (max.poll.records), and a usual `consume(500)`.
_BATCH = 500

#: What librdkafka does unless told otherwise was the cause of a skip, a stall or a spike. KafkaSource sets the same.
START = Choice(
    "auto.offset.reset",
    "earliest",
    "librdkafka's default, largest, skips what is there at a group's first start; say latest if that is meant",
)
FETCHING = (
    Choice(
        "queued.min.messages",
        10_000,
        "100,000 by default, for each partition: what is fetched ahead is thrown away and fetched again by every pause "
        "and by every partition that moves",
    ),
    Choice(
        "queued.max.messages.kbytes", 32_768, "bounds the same in bytes, for all partitions together; 64 MiB by default"
    ),
    Choice(
        "fetch.queue.backoff.ms",
        50,
        "by default the client looks again only 1 s after a queue was full, which a small queue feels as a stall",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaBrokers:
    """The features of the brokers: asked, or known from their version."""

    consumer_protocol: bool
    #: A clause for reasons: "the brokers are 4.1".
    why: str
    static_members: bool = True

    @classmethod
    def of_version(cls, version: str) -> KafkaBrokers:
        """From "3.9", "4.3.1". Raises SettingError."""
        found = re.fullmatch(r"(\d+)\.(\d+)(\.\d+)*", version.strip())
        if found is None:
            raise SettingError("broker version", version, "write it as 3.9 or 4.3.1")
        number = int(found[1]), int(found[2])
        if number < (0, 11):
            raise SettingError("broker version", version, "today's clients need brokers of 0.11 or later")
        can = number >= (4, 0)
        has = "have the consumer protocol (KIP-848)" if can else "have no consumer protocol, which came with 4.0"
        return cls(consumer_protocol=can, why=f"brokers of {version.strip()} {has}", static_members=number >= (2, 3))


def for_kafka(
    workload: Workload,
    brokers: KafkaBrokers,
    *,
    clients: tuple[Client, ...] = ("confluent-kafka", "java"),
    protocol: Protocol | None = None,
) -> list[Sheet]:
    """A sheet for each client, and one for the group at its brokers where these have a word in it.

    Args:
        workload: what is known of the work.
        brokers: what they can.
        clients: which sheets are wanted.
        protocol: None = the consumer protocol where the brokers have it, else cooperative-sticky.

    Raises:
        SettingError: times that do not fit; it names them, and what to change.
    """
    if protocol == "consumer" and not brokers.consumer_protocol:
        raise SettingError("protocol", protocol, f"{brokers.why}: leave it out, or bring the brokers to 4.0")
    if workload.static_id is not None and not brokers.static_members:
        raise SettingError("static_id", workload.static_id, "static members need brokers of 2.3 or later")
    consumer = brokers.consumer_protocol if protocol is None else protocol == "consumer"
    session_ms = _group_session_ms(workload) if consumer else _session_ms(workload)
    sheets = []
    for client in clients:
        choices = [
            *_assignment(client, brokers, consumer=consumer),
            *_times(workload, client, session_ms, consumer=consumer),
            *_offsets(client),
            *(FETCHING if client == "confluent-kafka" else ()),
        ]
        sheets.append(
            Sheet(
                name=client,
                where="for confluent_kafka.Consumer" if client == "confluent-kafka" else "for Java's KafkaConsumer",
                form="dict" if client == "confluent-kafka" else "properties",
                choices=tuple(choices),
                notes=_notes(client, workload, consumer=consumer),
            )
        )
    if consumer:
        sheets.append(_group(workload, session_ms))
    return sheets


def _assignment(client: Client, brokers: KafkaBrokers, *, consumer: bool) -> list[Choice]:
    if consumer:
        return [
            Choice("group.protocol", "consumer", f"{brokers.why}: they assign, and only what moves stops"),
            Choice("group.remote.assignor", "uniform", "evens out over all topics and moves as little as it can"),
        ]
    why = "of the classic strategies only this one stops no more than what moves; alone: one eager beside it in the "
    return [Choice("partition.assignment.strategy", COOPERATIVE[client], f"{why}list makes the whole group eager")]


def _times(workload: Workload, client: Client, session_ms: int, *, consumer: bool) -> list[Choice]:
    found = []
    turn = workload.turn(_BATCH)
    max_poll_ms = round(workload.patience_s * 1000)
    if (misfit := budget.turn_fits(turn, max_poll_ms)) is not None:
        raise misfit.error()
    why = f"{turn}, with {workload.patience_s - turn.total_s:g} s to spare; the group goes on without who takes longer"
    if not consumer and max_poll_ms < session_ms:
        max_poll_ms, why = session_ms, f"{turn}; no less than the session, or librdkafka makes no consumer"
    if max_poll_ms > budget.LONGEST_POLL_MS:
        raise SettingError("patience_s", workload.patience_s, f"use {budget.LONGEST_POLL_MS // 1000} s (a day) at most")
    if workload.static_id is not None:
        found.append(
            Choice(
                "group.instance.id",
                workload.static_id,
                "a static member: a restart within the session moves nothing. Each member's own, and the same after a "
                "restart; two that have one name keep each other out",
            )
        )
    if not consumer:
        heartbeat_ms = budget.heartbeat_for(session_ms)
        found += [
            Choice(budget.SESSION, session_ms, _session_reason(workload, session_ms)),
            Choice(budget.HEARTBEAT, heartbeat_ms, "at most a third of the session, so that two may be lost"),
        ]
    found.append(Choice(budget.MAX_POLL, max_poll_ms, why))
    if client == "java":
        found.append(Choice("max.poll.records", turn.batch, "the batch that the poll interval is reckoned for"))
    return found


def _offsets(client: Client) -> list[Choice]:
    found = [
        Choice(
            "enable.auto.commit",
            False,
            "commit by yourself, after the work and before a partition goes: the client commits what it has read",
        )
    ]
    if client == "java":
        why = "Java's default, latest, skips what is there at a group's first start; say latest if that is meant"
        return [*found, Choice(START.key, START.value, why)]
    # Without automatic commits nothing is done with stored offsets, but for a commit without arguments.
    why = "otherwise a commit without arguments commits all that was read; commit with offsets"
    return [*found, Choice("enable.auto.offset.store", False, why), START]


def _session_ms(workload: Workload) -> int:
    """Of a classic group. Raises SettingError."""
    if workload.static_id is None:
        return _CRASH_SESSION_MS if workload.restarts == "crash" else budget.DEFAULT_SESSION_MS
    session_ms = max(budget.DEFAULT_SESSION_MS, workload.static_session_ms)
    if (misfit := budget.session_allowed(session_ms)) is not None:
        raise SettingError(
            "restart_s",
            workload.restart_s,
            f"a static member's session has to outlast its restart ({session_ms} ms, with half as much to spare), and "
            f"{misfit.effect}; raise that at the brokers, restart quicker, or do without static names",
        )
    return session_ms


def _session_reason(workload: Workload, session_ms: int) -> str:
    if workload.static_id is not None:
        return f"a restart takes {workload.restart_s:g} s at the longest: within the session nothing moves"
    if workload.restarts == "crash":
        return (
            f"so long nobody has what a killed member had; shorter than the default of {budget.DEFAULT_SESSION_MS} "
            "since members are killed, and longer than a pause of a process that lives"
        )
    return f"so long nobody has what a dead member had; one that stops says so, and does not wait for {session_ms}"


def _group_session_ms(workload: Workload) -> int:
    """Of a group under the consumer protocol. Raises SettingError."""
    least_ms, most_ms = budget.GROUP_SESSION_RANGE_MS
    if workload.static_id is None:
        return least_ms
    if (misfit := budget.restart_fits(most_ms, workload.restart_s, session=budget.GROUP_SESSION)) is not None:
        raise SettingError(
            "restart_s",
            workload.restart_s,
            f"{misfit.effect}; under the consumer protocol brokers allow {most_ms} ms unless their "
            f"group.consumer.max.session.timeout.ms says more: restart quicker, do without static names, or stay "
            f"classic, where {budget.SESSION_RANGE_MS[1]} ms are allowed (cooperative)",
        )
    return min(most_ms, max(least_ms, workload.static_session_ms))


def _group(workload: Workload, session_ms: int) -> Sheet:
    if workload.static_id is not None:
        why = f"a restart takes {workload.restart_s:g} s at the longest: within the session a static member's "
        why += "partitions wait for it"
    else:
        why = "so long nobody has what a dead member had; the least that brokers allow by default"
    heartbeat_ms = budget.heartbeat_for(session_ms, budget.DEFAULT_GROUP_HEARTBEAT_MS)
    notes = []
    if workload.restarts == "crash" and workload.static_id is None:
        notes.append(
            f"Members are killed as a rule: {_CRASH_SESSION_MS} would be better than {session_ms}. Brokers allow it "
            "when their group.consumer.min.session.timeout.ms (and ...min.heartbeat.interval.ms) is lowered."
        )
    return Sheet(
        name="kafka-group",
        where="for the group, at the brokers: kafka-configs.sh --alter --entity-type groups --entity-name GROUP "
        "--add-config KEY=VALUE,...",
        form="properties",
        choices=(
            Choice(budget.GROUP_SESSION, session_ms, f"{why}; the brokers' to say, no client's"),
            Choice(
                budget.GROUP_HEARTBEAT,
                heartbeat_ms,
                "at most a third of the session, so that two may be lost; by its answers members learn what to give up "
                "and what to take, so a hand-over takes one or two of it",
            ),
        ),
        notes=tuple(notes),
    )


def _notes(client: Client, workload: Workload, *, consumer: bool) -> tuple[str, ...]:
    found = []
    if consumer:
        found.append(_READY[client])
    if workload.static_id is not None and workload.restarts == "crash":
        found.append(
            "What a crashed member had waits until it is back, or its session has ended: the price of static names."
        )
    return tuple(found)
