"""Rules over a Kafka client's configuration: what it reads, and when that counts as done. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.tools.advice.rules.conf import Client
from holdfast.tools.advice.rules.finding import Effect, Rule, Seen, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.tools.advice.rules.conf import ClientConf

COMMIT, STORE, INTERVAL = "enable.auto.commit", "enable.auto.offset.store", "auto.commit.interval.ms"
RESET, ISOLATION = "auto.offset.reset", "isolation.level"
QUEUED, BACKOFF = "queued.min.messages", "fetch.queue.backoff.ms"

#: librdkafka's default of auto.commit.interval.ms, and Java's: what a crash repeats of an even stream.
_USUAL_COMMIT_MS = 5_000
#: As many as a pause or a rebalance may throw away of each partition without being felt.
_MUCH_QUEUED = 10_000
_SLOW_BACKOFF_MS = 100
_LATE_METADATA_MS = 300_000


def _auto_commit(conf: ClientConf) -> Iterator[Seen]:
    if not conf.kafka or conf.flag(COMMIT) is not True or (conf.librdkafka and conf.flag(STORE) is False):
        return
    if conf.client is Client.HOLDFAST:
        why = "holdfast refuses it: holdfast commits records that are done, the client would commit all it has returned"
        remedy = "leave it out"
    else:
        why = (
            "the client commits offsets at fixed intervals. If other threads than the polling one do the work, it "
            "also commits records that are not done, and a crash loses them; records done since the last commit, up "
            f"to {(conf.number(INTERVAL) or _USUAL_COMMIT_MS) / 1000:g} s of work, run again after a crash"
        )
        remedy = f"set {COMMIT}=false and commit when the work is done, also before partitions are revoked"
        if conf.librdkafka:
            remedy += f"; or set {STORE}=false and store each offset when its record is done"
    refused = (Severity.ERROR, Effect.REFUSED) if conf.client is Client.HOLDFAST else (None, None)
    yield Seen(conf.spelled(COMMIT), conf.shown(COMMIT), why, remedy, *refused)


def _commit_interval(conf: ClientConf) -> Iterator[Seen]:
    interval_ms = conf.number(INTERVAL)
    if conf.kafka and conf.flag(COMMIT) is True and interval_ms is not None and interval_ms > _USUAL_COMMIT_MS:
        yield Seen(
            INTERVAL,
            conf.shown(INTERVAL),
            f"after a crash up to {interval_ms / 1000:g} s of work of each partition run again",
            f"use {_USUAL_COMMIT_MS}, the default, or less",
        )


def _offset_reset(conf: ClientConf) -> Iterator[Seen]:
    said = (conf.text(RESET) or "").lower()
    if conf.kafka and said in ("latest", "largest", "end"):
        yield Seen(
            RESET,
            conf.shown(RESET),
            "a group without an offset begins at the end: at its first start, in partitions that are added later, and "
            "after its offsets have expired or the log was truncated, it skips the records that are already there, "
            "without an error",
            f"set {RESET}=earliest; if that is too much, set the starting offset with `holdfast reset`, and let the "
            f"consumer fail without one: {RESET}={'error' if conf.librdkafka else 'none'}",
        )


def _isolation(conf: ClientConf) -> Iterator[Seen]:
    said = conf.text(ISOLATION)
    if not conf.kafka or said is None or said.lower() != "read_uncommitted":
        return
    yield Seen(
        ISOLATION,
        conf.shown(ISOLATION),
        "handlers get records of aborted transactions, and get them again when the producer sends them again",
        f"set {ISOLATION}=read_committed; it costs nothing if no producer uses transactions",
        None if conf.said(ISOLATION) else Severity.NOTE,
    )


def _prefetch(conf: ClientConf) -> Iterator[Seen]:
    queued = conf.number(QUEUED)
    if conf.librdkafka and queued is not None and queued > _MUCH_QUEUED:
        yield Seen(
            QUEUED,
            conf.shown(QUEUED),
            "the client fetches that many records ahead for each partition; at each pause, and whenever a partition "
            "moves, it discards them and fetches them again",
            f"use {_MUCH_QUEUED} and {BACKOFF}=50: that is enough for any handler",
        )


def _backoff(conf: ClientConf) -> Iterator[Seen]:
    queued, backoff_ms = conf.number(QUEUED), conf.number(BACKOFF)
    if not conf.librdkafka or queued is None or backoff_ms is None:
        return
    if queued <= _MUCH_QUEUED and backoff_ms > _SLOW_BACKOFF_MS:
        yield Seen(
            BACKOFF,
            conf.shown(BACKOFF),
            f"when {queued} records wait, the client fetches none for {backoff_ms / 1000:g} s; a fast handler "
            "finishes them sooner and then has nothing to do",
            f"use 10 to {_SLOW_BACKOFF_MS}",
        )


def _metadata(conf: ClientConf) -> Iterator[Seen]:
    name = "topic.metadata.refresh.interval.ms" if conf.librdkafka else "metadata.max.age.ms"
    age_ms = conf.number(name)
    if conf.kafka and age_ms is not None and (age_ms < 0 or age_ms > _LATE_METADATA_MS):
        often = "never looks" if age_ms < 0 else f"looks only every {age_ms / 1000:g} s"
        yield Seen(
            name,
            conf.shown(name),
            f"the client {often} for added partitions and new topics that match a pattern: meanwhile no member reads "
            f"them, and with {RESET}=latest their first records are skipped",
            f"use {_LATE_METADATA_MS}, the default, or less",
        )


RULES = (
    Rule(
        name="auto-commit",
        severity=Severity.WARNING,
        effect=Effect.REPEATS,
        title="`enable.auto.commit`, set or by default",
        look=_auto_commit,
        also=((Severity.ERROR, "holdfast refuses it"),),
    ),
    Rule(
        name="commit-interval-long",
        severity=Severity.WARNING,
        effect=Effect.REPEATS,
        title="automatic commits more than 5 s apart",
        look=_commit_interval,
    ),
    Rule(
        name="read-uncommitted",
        severity=Severity.WARNING,
        effect=Effect.REPEATS,
        title="`isolation.level=read_uncommitted`, set or (Java) by default",
        look=_isolation,
        also=((Severity.NOTE, "by default"),),
    ),
    Rule(
        name="offset-reset-latest",
        severity=Severity.WARNING,
        effect=Effect.SKIPS,
        title="`auto.offset.reset=latest`, set or by default",
        look=_offset_reset,
    ),
    Rule(
        name="prefetch-large",
        severity=Severity.NOTE,
        effect=Effect.BACKLOG,
        title="more than 10,000 records fetched ahead for each partition (librdkafka), set or by default",
        look=_prefetch,
    ),
    Rule(
        name="fetch-backoff-long",
        severity=Severity.NOTE,
        effect=Effect.BACKLOG,
        title="a short queue that the client refills too late (librdkafka)",
        look=_backoff,
    ),
    Rule(
        name="metadata-late",
        severity=Severity.WARNING,
        effect=Effect.BACKLOG,
        title="the client looks for new partitions less often than every 5 min, or never",
        look=_metadata,
    ),
)
