"""Upkeep of a sink's lakes beside the batches: orphans are removed, many small files become few."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

from holdfast.adapters.spark.attempt_session import attempt_session, begin, finish
from holdfast.adapters.spark.values import BatchFenced
from holdfast.adapters.spark.writers import PartitionWriter
from holdfast.dedup.spark_batches import BatchId, Finished
from holdfast.errors import SettingError, StoreError

if TYPE_CHECKING:
    from holdfast.adapters.spark._pyspark import SparkSession
    from holdfast.adapters.spark.badrows import BadRows
    from holdfast.adapters.spark.store import StoreAt
    from holdfast.adapters.spark.values import Writer
    from holdfast.adapters.spark.writers.compaction import Compacted
    from holdfast.dedup.spark_batches import Attempt

log = logging.getLogger("holdfast.spark")


class Sink(Protocol):
    """The sink whose lakes they are: see `IdempotentSink`."""

    @property
    def name(self) -> str: ...  # noqa: D102 - as there, also below
    @property
    def at(self) -> StoreAt: ...  # noqa: D102
    @property
    def writer(self) -> Writer: ...  # noqa: D102
    @property
    def bad_rows(self) -> BadRows | None: ...  # noqa: D102
    @property
    def lease_s(self) -> float: ...  # noqa: D102
    @property
    def patience_s(self) -> float: ...  # noqa: D102
    def confirm(self, spark: SparkSession, attempt: Attempt) -> None: ...  # noqa: D102


def lakes(sink: Sink) -> dict[str, PartitionWriter]:
    """The sink's own lake, and that of `bad_rows`, by names for them. Raises SettingError: neither is there."""
    found = {"lake": sink.writer, "bad-rows": sink.bad_rows and sink.bad_rows.lake}
    made = {name: each for name, each in found.items() if isinstance(each, PartitionWriter)}
    if not made:
        raise SettingError("write", type(sink.writer).__name__, "is no lake: only writers.partition makes one")
    return made


def remove_orphans(sink: Sink, spark: SparkSession) -> list[str]:
    """See `IdempotentSink.remove_orphans`."""
    ours = lakes(sink)
    for each in ours.values():
        each.require_own(spark, sink.name)
    # An attempt that never finishes: whoever begins meanwhile is told that another query lives.
    of = BatchId(sink.name, "holdfast.orphans", 0)
    with (
        sink.at.resolved(spark).opened(sink.patience_s) as (store, batches),
        attempt_session(store, batches, sink.lease_s, sink.patience_s) as own,
    ):
        begun = begin(of, batches, own, sink.patience_s)
        if isinstance(begun, Finished):
            return []  # it never is
        if begun.last is not None:  # finished, and perhaps without its mark yet
            sink.confirm(spark, begun.last)
        return [folder for each in ours.values() for folder in each.sweep(spark, begun.attempt.fence)]


def compact(sink: Sink, spark: SparkSession, grace_s: float, file_mb: int) -> list[Compacted]:
    """See `IdempotentSink.compact`."""
    if not grace_s >= 0:
        raise SettingError("grace_s", grace_s, "give a number of seconds, at least 0")
    if file_mb < 1:
        raise SettingError("file_mb", file_mb, "give a whole number, at least 1")
    done = []
    for name, lake in lakes(sink).items():
        lake.require_own(spark, sink.name)
        with (
            sink.at.resolved(spark).opened(sink.patience_s) as (store, batches),
            attempt_session(store, batches, sink.lease_s, sink.patience_s) as own,
        ):
            # Apart from the sink's own attempts: its queries go on. By a name of its own, so that of two compactions
            # the second waits for the first, where it would fence it by the same name.
            of = BatchId(f"{sink.name}/{name}", f"compaction-{own.session.id}", 0)
            begun = begin(of, batches, own, sink.patience_s)
            if isinstance(begun, Finished):
                continue  # nobody else has this name
            if begun.last is not None:  # its driver may have died before it came to that
                lake.compacted(spark, begun.last)
            attempt, session = begun.attempt, own.session
            ended = partial(finish, attempt, batches, session, sink.patience_s)
            try:
                done.append(lake.compact(spark, attempt, ended, grace_s=grace_s, file_mb=file_mb))
            except BatchFenced as error:
                raise BatchFenced(f"{lake.path} stays as it was: {error}") from error
            try:
                batches.forget(of)
            except StoreError as error:
                log.warning("compaction %s is done, and Redis keeps two fields about it: %s", of.query, error)
    return done
