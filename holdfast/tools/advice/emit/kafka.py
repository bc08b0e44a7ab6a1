"""Kafka: the configuration of confluent-kafka and of the Java client, and what a group's brokers are told."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from holdfast.errors import SettingError
from holdfast.plugin import budget
from holdfast.plugin.choice import Choice
from holdfast.plugin.librdkafka import FETCHING, START
from holdfast.tools.advice.emit.sheet import Sheet, Value

if TYPE_CHECKING:
    from holdfast.tools.advice.emit.workload import Workload

#: Java's too: in a mixed group the strategy, and how long the others wait, have to be right at all members.
Client = Literal["confluent-kafka", "java"]
Protocol = Literal["consumer", "cooperative"]

COOPERATIVE = {
    "confluent-kafka": "cooperative-sticky",
    "java": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
_READY = {
    client: f"The consumer protocol is ready for production in {client_version} and later. The client then refuses "
    "session.timeout.ms, heartbeat.interval.ms and partition.assignment.strategy."
    for client, client_version in (("confluent-kafka", "confluent-kafka 2.12"), ("java", "kafka-clients 4.0"))
}
#: A member that is dead is noticed after that time, where members are killed as a rule. Above what a long pause of a
#: garbage collector or of a virtual machine takes, and above the least that brokers allow.
_CRASH_SESSION_MS = 10_000
#: Records that a poll of the Java client brings by itself (max.poll.records), and a usual `consume(500)`.
_BATCH = 500


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
        raise SettingError("protocol", protocol, f"{brokers.why}: leave it out, or upgrade the brokers to 4.0")
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


def _assignment(client: Client, brokers: KafkaBrokers, *, consumer: bool) -> list[Choice[Value]]:
    if consumer:
        return [
            Choice(
                "group.protocol",
                "consumer",
                f"{brokers.why}: the broker assigns, and only the partitions that move stop",
            ),
            Choice(
                "group.remote.assignor", "uniform", "balances over all topics and moves as few partitions as it can"
            ),
        ]
    why = "the only classic strategy that stops only the partitions that move; use it alone: an eager one in the same "
    return [Choice("partition.assignment.strategy", COOPERATIVE[client], f"{why}list makes the whole group eager")]


def _times(workload: Workload, client: Client, session_ms: int, *, consumer: bool) -> list[Choice[Value]]:
    found: list[Choice[Value]] = []
    turn = workload.turn(_BATCH)
    max_poll_ms = round(workload.patience_s * 1000)
    if (misfit := budget.turn_fits(turn, max_poll_ms)) is not None:
        raise misfit.error()
    spare_s = workload.patience_s - turn.total_s
    why = f"{turn}, with {spare_s:g} s to spare; a member that takes longer loses its membership"
    if not consumer and max_poll_ms < session_ms:
        max_poll_ms, why = session_ms, f"{turn}; not below the session timeout, or librdkafka does not start"
    if max_poll_ms > budget.LONGEST_POLL_MS:
        raise SettingError("patience_s", workload.patience_s, f"use {budget.LONGEST_POLL_MS // 1000} s (a day) at most")
    if workload.static_id is not None:
        found.append(
            Choice(
                "group.instance.id",
                workload.static_id,
                "a static member: a restart within the session timeout moves nothing. Each member needs its own id, "
                "the same after a restart; of two members with one id only one can stay in the group",
            )
        )
    if not consumer:
        heartbeat_ms = budget.heartbeat_for(session_ms)
        found += [
            Choice(budget.SESSION, session_ms, _session_reason(workload)),
            Choice(
                budget.HEARTBEAT,
                heartbeat_ms,
                "at most a third of the session timeout, so that two heartbeats may be lost",
            ),
        ]
    found.append(Choice(budget.MAX_POLL, max_poll_ms, why))
    if client == "java":
        found.append(Choice("max.poll.records", turn.batch, "the batch for which the poll interval was computed"))
    return found


def _offsets(client: Client) -> list[Choice[Value]]:
    found = [
        Choice(
            "enable.auto.commit",
            False,
            "commit yourself, when the work is done and before a partition is revoked; the client would commit all "
            "that it has returned",
        )
    ]
    if client == "java":
        why = "Java's default, latest, skips the records that are there at a group's first start"
        return [*found, Choice(START.key, START.value, why)]
    # Without automatic commits nothing is done with stored offsets, but for a commit without arguments.
    why = "otherwise a commit without arguments commits all that the client has returned; pass offsets to commit()"
    return [*found, Choice("enable.auto.offset.store", False, why), START]


def _session_ms(workload: Workload) -> int:
    """The session timeout of a classic group. Raises SettingError."""
    if workload.static_id is None:
        return _CRASH_SESSION_MS if workload.restarts == "crash" else budget.DEFAULT_SESSION_MS
    session_ms = max(budget.DEFAULT_SESSION_MS, workload.static_session_ms)
    if (misfit := budget.session_allowed(session_ms)) is not None:
        raise SettingError(
            "restart_s",
            workload.restart_s,
            f"a static member's session has to outlast its restart ({session_ms} ms, with half as much to spare), and "
            f"{misfit.effect}; raise that setting at the brokers, restart faster, or use no static id",
        )
    return session_ms


def _session_reason(workload: Workload) -> str:
    if workload.static_id is not None:
        return f"a restart takes at most {workload.restart_s:g} s, less than the session timeout: nothing moves"
    if workload.restarts == "crash":
        return (
            "the partitions of a killed member are not read for this long; below the default of "
            f"{budget.DEFAULT_SESSION_MS} because members are killed, above the pauses of a live process"
        )
    return "the partitions of a dead member are not read for this long; a member that stops leaves the group at once"


def _group_session_ms(workload: Workload) -> int:
    """The session timeout of a group under the consumer protocol. Raises SettingError."""
    least_ms, most_ms = budget.GROUP_SESSION_RANGE_MS
    if workload.static_id is None:
        return least_ms
    if (misfit := budget.restart_fits(most_ms, workload.restart_s, session=budget.GROUP_SESSION)) is not None:
        raise SettingError(
            "restart_s",
            workload.restart_s,
            f"{misfit.effect}; under the consumer protocol brokers allow {most_ms} ms unless their "
            "group.consumer.max.session.timeout.ms says more: restart faster, use no static id, or stay classic, "
            f"where {budget.SESSION_RANGE_MS[1]} ms are allowed (cooperative)",
        )
    return min(most_ms, max(least_ms, workload.static_session_ms))


def _group(workload: Workload, session_ms: int) -> Sheet:
    if workload.static_id is not None:
        why = f"a restart takes at most {workload.restart_s:g} s; within the session timeout a static member's "
        why += "partitions wait for it"
    else:
        why = "the partitions of a dead member are not read for this long; the least that brokers allow by default"
    heartbeat_ms = budget.heartbeat_for(session_ms, budget.DEFAULT_GROUP_HEARTBEAT_MS)
    notes = []
    if workload.restarts == "crash" and workload.static_id is None:
        notes.append(
            f"Members are usually killed: {_CRASH_SESSION_MS} would be better than {session_ms}. Brokers allow it "
            "after you lower their group.consumer.min.session.timeout.ms (and ...min.heartbeat.interval.ms)."
        )
    return Sheet(
        name="kafka-group",
        where="for the group, at the brokers: kafka-configs.sh --alter --entity-type groups --entity-name GROUP "
        "--add-config KEY=VALUE,...",
        form="properties",
        choices=(
            Choice(budget.GROUP_SESSION, session_ms, f"{why}; a setting of the group at the brokers, not of a client"),
            Choice(
                budget.GROUP_HEARTBEAT,
                heartbeat_ms,
                "at most a third of the session timeout, so that two heartbeats may be lost; members learn from the "
                "answers which partitions to give up and to take, so a hand-over takes one or two heartbeats",
            ),
        ),
        notes=tuple(notes),
    )


def _notes(client: Client, workload: Workload, *, consumer: bool) -> tuple[str, ...]:
    found = []
    if consumer:
        found.append(_READY[client])
    if workload.static_id is not None and workload.restarts == "crash":
        found.append("The partitions of a crashed static member wait until it is back or its session has ended.")
    return tuple(found)
