"""Rules over a Kafka client's configuration: what it reads, and when that counts as done. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.plugin.advice.rules.conf import Client
from holdfast.plugin.advice.rules.finding import Effect, Rule, Seen, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.plugin.advice.rules.conf import ClientConf

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
        why, remedy = "holdfast refuses it: it commits what is done, the client what it has read", "leave it out"
    else:
        why = (
            "offsets are committed by the clock: of records that were read and are not done, which a crash then "
            "loses where others than the polling thread do the work; and what was done since the last commit, up to "
            f"{(conf.number(INTERVAL) or _USUAL_COMMIT_MS) / 1000:g} s of work, a crash repeats"
        )
        remedy = f"set {COMMIT}=false, and commit when the work is done: before partitions go, too"
        if conf.librdkafka:
            remedy += f"; or {STORE}=false, and store an offset when its record is done"
    refused = (Severity.ERROR, Effect.REFUSED) if conf.client is Client.HOLDFAST else (None, None)
    yield Seen(conf.spelled(COMMIT), conf.shown(COMMIT), why, remedy, *refused)


def _commit_interval(conf: ClientConf) -> Iterator[Seen]:
    interval_ms = conf.number(INTERVAL)
    if conf.kafka and conf.flag(COMMIT) is True and interval_ms is not None and interval_ms > _USUAL_COMMIT_MS:
        yield Seen(
            INTERVAL,
            conf.shown(INTERVAL),
            f"a crash repeats up to {interval_ms / 1000:g} s of work of each partition",
            f"use {_USUAL_COMMIT_MS}, the default, or less",
        )


def _offset_reset(conf: ClientConf) -> Iterator[Seen]:
    said = (conf.text(RESET) or "").lower()
    if conf.kafka and said in ("latest", "largest", "end"):
        yield Seen(
            RESET,
            conf.shown(RESET),
            "a group that has no offset begins at the end: at its first start, in partitions that are added later, "
            "and after its offsets have expired or the log was cut, all that is there already is skipped without a "
            "word",
            f"set {RESET}=earliest; or, where that is too much, begin on purpose (`holdfast reset`), and fail "
            f"otherwise: {RESET}={'error' if conf.librdkafka else 'none'}",
        )


def _isolation(conf: ClientConf) -> Iterator[Seen]:
    said = conf.text(ISOLATION)
    if not conf.kafka or said is None or said.lower() != "read_uncommitted":
        return
    yield Seen(
        ISOLATION,
        conf.shown(ISOLATION),
        "records of transactions that were aborted are handled, and again when their producer sends them anew",
        f"set {ISOLATION}=read_committed; it costs nothing where no producer has transactions",
        None if conf.said(ISOLATION) else Severity.NOTE,
    )


def _prefetch(conf: ClientConf) -> Iterator[Seen]:
    queued = conf.number(QUEUED)
    if conf.librdkafka and queued is not None and queued > _MUCH_QUEUED:
        yield Seen(
            QUEUED,
            conf.shown(QUEUED),
            "so much is fetched ahead of each partition, and thrown away and fetched again at each pause and by each "
            "partition that moves",
            f"{_MUCH_QUEUED} keep up with any handler, with {BACKOFF}=50 beside it",
        )


def _backoff(conf: ClientConf) -> Iterator[Seen]:
    queued, backoff_ms = conf.number(QUEUED), conf.number(BACKOFF)
    if not conf.librdkafka or queued is None or backoff_ms is None:
        return
    if queued <= _MUCH_QUEUED and backoff_ms > _SLOW_BACKOFF_MS:
        yield Seen(
            BACKOFF,
            conf.shown(BACKOFF),
            f"when {queued} records wait, the client fetches none for {backoff_ms / 1000:g} s; a quick handler has "
            "them done sooner and stands still",
            f"use 10 to {_SLOW_BACKOFF_MS}",
        )


def _metadata(conf: ClientConf) -> Iterator[Seen]:
    name = "topic.metadata.refresh.interval.ms" if conf.librdkafka else "metadata.max.age.ms"
    age_ms = conf.number(name)
    if conf.kafka and age_ms is not None and (age_ms < 0 or age_ms > _LATE_METADATA_MS):
        late = "never" if age_ms < 0 else f"only after up to {age_ms / 1000:g} s"
        yield Seen(
            name,
            conf.shown(name),
            f"partitions that are added, and topics that come to match a pattern, are seen {late}: meanwhile nobody "
            "reads them, and with the reset at latest what came first is skipped",
            f"use {_LATE_METADATA_MS}, the default, or less",
        )


RULES = (
    Rule(
        name="auto-commit",
        severity=Severity.WARNING,
        effect=Effect.REPEATS,
        title="`enable.auto.commit`: said, or by default",
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
        title="`isolation.level=read_uncommitted`: said, or (Java) by default",
        look=_isolation,
        also=((Severity.NOTE, "by default"),),
    ),
    Rule(
        name="offset-reset-latest",
        severity=Severity.WARNING,
        effect=Effect.SKIPS,
        title="`auto.offset.reset=latest`: said, or by default",
        look=_offset_reset,
    ),
    Rule(
        name="prefetch-large",
        severity=Severity.NOTE,
        effect=Effect.BACKLOG,
        title="more than 10,000 records fetched ahead of each partition (librdkafka): said, or by default",
        look=_prefetch,
    ),
    Rule(
        name="fetch-backoff-long",
        severity=Severity.NOTE,
        effect=Effect.BACKLOG,
        title="a short queue that is looked at once a second (librdkafka)",
        look=_backoff,
    ),
    Rule(
        name="metadata-late",
        severity=Severity.WARNING,
        effect=Effect.BACKLOG,
        title="new partitions are seen after more than 5 min, or never",
        look=_metadata,
    ),
)
