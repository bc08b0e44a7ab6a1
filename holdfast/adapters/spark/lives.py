"""The life of an attempt: a session in Redis that is renewed, its begin and its finish. On the driver."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.adapters.spark.marking import fenced
from holdfast.adapters.spark.values import BatchRefused
from holdfast.dedup.batches import Begun, Behind, Elsewhere, Finished
from holdfast.errors import StoreError
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.dedup.batches import Attempt, BatchId
    from holdfast.dedup.redis_batches import RedisBatches
    from holdfast.dedup.redis_session import RedisSession
    from holdfast.dedup.redis_store import RedisClaims

log = logging.getLogger("holdfast.spark")


@contextmanager
def life(store: RedisClaims, batches: RedisBatches, lease_s: float) -> Iterator[RedisSession]:
    """An attempt's life. What fails lets its keys go at once, instead of after a lease; a finished one's are bound."""
    session = store.begin(lease_s)
    try:
        yield session
    finally:
        session.abandon()
        try:
            batches.give_up(session.id)
        except StoreError as error:
            log.warning("session %s was not given up and runs out with its lease: %s", session.id, error)


def begin(of: BatchId, batches: RedisBatches, session: RedisSession, patience_s: float) -> Begun | Finished:
    """The next attempt, or the one that has finished the batch.

    Raises:
        BatchRefused: another query writes for longer than `patience_s`, or batch numbers have begun anew.
        StoreUnavailable, StoreRefused: as Redis says.
    """
    where = f"batch {of.batch} of sink {of.sink!r}"
    deadline = Deadline(patience_s)
    while True:
        found = batches.begin(of, session)
        if isinstance(found, Begun | Finished):
            return found
        if isinstance(found, Behind):
            raise BatchRefused(
                f"{where} was not written: query {of.query} has finished batch {found.batch}. Its checkpoint was "
                "deleted or put back: give query= another name, and keys that are done are dropped"
            )
        if not isinstance(found, Elsewhere):
            raise BatchRefused(
                f"{where} was not begun: Redis counts this driver as dead after a moment; give a longer lease_s"
            )
        if deadline.passed:
            raise BatchRefused(
                f"{where} was not begun: query {found.query} has been writing its batch {found.batch} for more than "
                f"{patience_s:g} s: stop one of the two, or give a longer patience_s"
            )
        SYSTEM_CLOCK.sleep(min(0.5, max(0.02, found.left_s / 10)))


def finish(attempt: Attempt, batches: RedisBatches, session: RedisSession) -> None:
    """What was written counts from now on. Raises BatchFenced: it does not."""
    session.abandon()  # a renewal from now on would be refused: finished sessions need none
    if not batches.finish(attempt):
        raise fenced(attempt)
