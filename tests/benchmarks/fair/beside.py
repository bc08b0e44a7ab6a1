"""Rows: how long fresh records of one partition wait beside the backlog of another."""

from __future__ import annotations

import math
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from confluent_kafka import Consumer, TopicPartition

from tests.benchmarks.costs import output_of
from tests.benchmarks.fair import consumers, rocketmq
from tests.benchmarks.fair.fresh import BACKLOG, FRESH, Plan, told
from tests.benchmarks.lab import value
from tests.benchmarks.peers.environments import ARROYO, QUIX_STREAMS, ROOT, python_of
from tests.benchmarks.registry import Goal, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.benchmarks.fair.fresh import Waits
    from tests.benchmarks.lab import Lab

_TOPIC = "fair-beside"
_BACKLOG = 1_000_000
#: An answer of this broker has 32 messages, so that no client has fetched much of it.
_BACKLOG_ON_ROCKETMQ = 100_000
_SECONDS = 12.0
_EVERY_S = 0.1
_PATIENCE_S = 300.0
#: What a wait may last beyond two handler times.
_SLACK_S = 0.5
#: Calls of poll or consume that a loop of one's own may make until it gets a fresh record.
_POLLS = 2
#: A client that is tuned so that its partitions take turns.
_TUNING = {"queued.min.messages": 100, "max.partition.fetch.bytes": 16_384}
_TUNED = "poll(), queued.min.messages=100, fetches of 16 kB"
_VALUES = [value(number) for number in range(1_000)]


class _Variant(NamedTuple):
    measure: Callable[[Lab, Plan], Waits]
    workers: int
    handler_ms: int
    #: Whose goal counts calls of poll.
    by_polls: bool = False
    ours: bool = True
    on_rocketmq: bool = False
    #: Said before everything else.
    note: str = ""


def _app(lab: Lab, plan: Plan) -> Waits:
    return lab.in_child(consumers.app, plan, lab.emptied_redis())  # type: ignore[no-any-return]


def _own_loop(lab: Lab, plan: Plan, *, messages: int) -> Waits:
    return lab.in_child(consumers.own_loop, plan, lab.emptied_redis(), messages)  # type: ignore[no-any-return]


def _bare(lab: Lab, plan: Plan, *, messages: int, more: dict[str, Any]) -> Waits:
    return lab.in_child(consumers.bare, plan, messages, more)  # type: ignore[no-any-return]


def _peer(_: Lab, plan: Plan, *, module: str, requirement: str) -> Waits:
    """Raises: OSError, RuntimeError, TimeoutExpired: it cannot be installed, or does not run."""
    python = python_of(module, requirement)
    command = [str(python), "-m", "tests.benchmarks.peers.fresh", module, plan.to_json()]
    return told(output_of(command, _PATIENCE_S, {"PYTHONPATH": str(ROOT)}))


def _rocketmq_app(lab: Lab, plan: Plan) -> Waits:
    return lab.in_child(rocketmq.app, plan, lab.emptied_redis())  # type: ignore[no-any-return]


def _rocketmq_bare(lab: Lab, plan: Plan) -> Waits:
    return lab.in_child(rocketmq.bare, plan)  # type: ignore[no-any-return]


def _variants() -> dict[str, _Variant]:
    found = {
        f"app, {workers} workers x {ms} ms": _Variant(_app, workers, ms)
        for ms in (20, 100, 500)
        for workers in (2, 16, 64)
    }
    for messages, ms in ((1, 20), (1, 100), (20, 20)):
        own, called = partial(_own_loop, messages=messages), "poll()" if messages == 1 else f"consume({messages})"
        found[f"loop around KafkaConsumer, {called}, {ms} ms"] = _Variant(own, 1, ms, by_polls=True)
    for messages, called, more in ((1, "poll()", {}), (20, "consume(20)", {}), (1, _TUNED, _TUNING)):
        loop = partial(_bare, messages=messages, more=more)
        found[f"bare loop, {called}, 20 ms"] = _Variant(loop, 1, 20, by_polls=True, ours=False)
    arroyo = partial(_peer, module="sentry_arroyo", requirement=ARROYO)
    quix = partial(_peer, module="quix_streams", requirement=QUIX_STREAMS)
    found |= {
        "arroyo, RunTask, 20 ms": _Variant(arroyo, 1, 20, ours=False, note=ARROYO),
        "arroyo, RunTaskInThreads, 16 threads x 20 ms": _Variant(arroyo, 16, 20, ours=False, note=ARROYO),
        "quix-streams, update(), 20 ms": _Variant(quix, 1, 20, ours=False, note=QUIX_STREAMS),
    }
    for workers, ms in ((2, 100), (16, 20), (64, 500)):
        name = f"RocketMQ, pull source, app, {workers} workers x {ms} ms"
        found[name] = _Variant(_rocketmq_app, workers, ms, on_rocketmq=True)
    found["RocketMQ, bare pull loop, 20 ms"] = _Variant(_rocketmq_bare, 1, 20, ours=False, on_rocketmq=True)
    return found


def rows(lab: Lab) -> list[Row]:
    """One partition has a backlog that lasts for the whole measurement; another gets a fresh record each 100 ms, or
    fewer: at most half of what its turns at the workers can handle. A peer that cannot be installed, or does not run,
    is a row that says so."""
    found = []
    for name, variant in _variants().items():
        if not lab.wants(name):
            continue
        plan = _plan(lab, variant)
        try:
            found.append(_row(name, variant, plan, variant.measure(lab, plan)))
        except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
            if not variant.note:
                raise
            said = str(error).strip().splitlines()[-1]
            found.append(Row(what=name, figure=float("nan"), unit=" s", note=f"{variant.note}: {said}"))
    return found


def _plan(lab: Lab, variant: _Variant) -> Plan:
    handler_s = variant.handler_ms / 1000
    group = f"fair-{uuid4().hex[:8]}"
    (_begin_on_rocketmq if variant.on_rocketmq else _begin)(lab, group)
    return Plan(
        bootstrap=lab.rocketmq.namesrv if variant.on_rocketmq else lab.kafka.bootstrap,
        topic=_TOPIC,
        group=group,
        handler_s=handler_s,
        every_s=max(_EVERY_S, 4 * handler_s / variant.workers),
        seconds=_SECONDS / 3 if lab.quick else _SECONDS,
        bound_s=2 * handler_s + _SLACK_S,
        workers=variant.workers,
    )


def _begin(lab: Lab, group: str) -> None:
    """The group is to read the backlog from its start, and the other partition from its end."""
    if not lab.kafka.partitions(_TOPIC):
        lab.kafka.create_topic(_TOPIC, 2)
        producer = lab.producer(_BACKLOG)
        for number in range(_BACKLOG):
            producer.produce(_TOPIC, key=b"%d" % number, value=_VALUES[number % len(_VALUES)], partition=BACKLOG)
        if producer.flush(120):
            raise RuntimeError("the broker did not take all messages")
    end = lab.kafka.end_offsets(_TOPIC)[FRESH]
    consumer = Consumer({"bootstrap.servers": lab.kafka.bootstrap, "group.id": group, "log_level": 0})
    offsets = [TopicPartition(_TOPIC, BACKLOG, 0), TopicPartition(_TOPIC, FRESH, end)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def _begin_on_rocketmq(lab: Lab, group: str) -> None:
    namesrv = lab.rocketmq.namesrv
    if not rocketmq.filled(namesrv, _TOPIC):
        rocketmq.fill(namesrv, _TOPIC, _BACKLOG_ON_ROCKETMQ)
    rocketmq.begin(namesrv, _TOPIC, group)


def _row(name: str, variant: _Variant, plan: Plan, waits: Waits) -> Row:
    p50, p99, most = (at(waits.seconds, share) for share in (0.5, 0.99, 1.0))
    note = f"{waits.started} of {len(waits.seconds)} fresh records handled, {waits.backlog:,} of the backlog"
    note = f"{variant.note}; {note}" if variant.note else note
    what = f"fresh records beside a backlog, wait at p99: {name}"
    if variant.by_polls:
        goal = Goal(value=_POLLS, at_least=False, unit=" polls") if variant.ours else None
        note = f"at most {max(waits.polls)} polls; p50 {p50:.2f} s, p99 {p99:.2f} s, most {most:.2f} s; {note}"
        return Row(what=what, figure=at(waits.polls, 0.99), unit=" polls", goal=goal, note=note)
    goal = Goal(value=plan.bound_s, at_least=False, unit=" s") if variant.ours else None
    return Row(what=what, figure=p99, unit=" s", goal=goal, note=f"p50 {p50:.2f} s, most {most:.2f} s; {note}")


def at(values: Sequence[float], share: float) -> float:
    """The value that this share of all values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
