"""An attempt's session in Redis: begin, renewal and finish. On the driver.

Calls to a Redis that does not answer are repeated. Without its answer no attempt begins, and none is finished.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from holdfast.adapters.spark.marking import fenced
from holdfast.adapters.spark.store import patiently
from holdfast.adapters.spark.values import BatchRefused
from holdfast.dedup.spark_batches import Begun, Behind, Elsewhere, Fate, Finished
from holdfast.errors import StoreError
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.dedup.redis_session import RedisSession
    from holdfast.dedup.redis_spark_batches import RedisBatches
    from holdfast.dedup.redis_store import RedisClaims
    from holdfast.dedup.spark_batches import Attempt, BatchId

log = logging.getLogger("holdfast.spark")


class AttemptSession:
    """A session, which is replaced by a new one if it dies before an attempt has begun. Made by `attempt_session`."""

    def __init__(self, store: RedisClaims, batches: RedisBatches, lease_s: float, patience_s: float) -> None:
        self._store = store
        self._batches = batches
        self._lease_s = lease_s
        self._patience_s = patience_s
        self.session: RedisSession = self._new()

    def again(self) -> None:
        """Replace the session, which has died because Redis did not answer for longer than a lease."""
        self.end()
        self.session = self._new()

    def end(self) -> None:
        """End the session. The keys of a failed attempt are free at once, not after a lease; those of a finished one
        stay done."""
        self.session.abandon()
        try:
            self._batches.give_up(self.session.id)
        except StoreError as error:
            log.warning("session %s was not given up and runs out with its lease: %s", self.session.id, error)

    def _new(self) -> RedisSession:
        return patiently(self._patience_s, partial(self._store.begin, self._lease_s))


@contextmanager
def attempt_session(
    store: RedisClaims, batches: RedisBatches, lease_s: float, patience_s: float
) -> Iterator[AttemptSession]:
    """Open an attempt's session, and end it afterwards. Raises StoreUnavailable, StoreRefused."""
    made = AttemptSession(store, batches, lease_s, patience_s)
    try:
        yield made
    finally:
        made.end()


def begin(
    of: BatchId,
    batches: RedisBatches,
    own: AttemptSession,
    patience_s: float,
    *,
    origin: str = "",
    beside: Attempt | None = None,
) -> Begun | Finished:
    """Begin the next attempt; or return the one that has finished a batch with this number.

    Args:
        of: the batch.
        batches: asks Redis.
        own: the driver's session for the attempt.
        patience_s: how long to wait for another query that writes, and for Redis.
        origin: see `BatchAttempts.begin`.
        beside: the same.

    Raises:
        BatchRefused: another query writes for longer than `patience_s`, or batch numbers have begun anew.
        StoreUnavailable: Redis does not answer.
        StoreRefused: Redis refuses.
    """
    where = f"batch {of.batch} of sink {of.sink!r}"
    deadline = Deadline(patience_s)
    while True:
        asking = partial(batches.begin, of, own.session, origin=origin, beside=beside)
        found = patiently(deadline.left_s(), asking)
        if isinstance(found, Begun | Finished):
            return found
        if isinstance(found, Behind):
            raise BatchRefused(
                f"{where} was not written: query {of.query} has finished batch {found.batch}. Its checkpoint was "
                "deleted or put back: give query= another name, and keys that are done are dropped"
            )
        if not isinstance(found, Elsewhere):
            if deadline.passed:
                raise BatchRefused(
                    f"{where} was not begun: Redis counts this driver as dead after a moment; give a longer lease_s"
                )
            own.again()
            continue
        if deadline.passed:
            raise BatchRefused(
                f"{where} was not begun: it has waited {patience_s:g} s for query {found.query}, which writes its "
                f"batch {found.batch}: stop one of the two, or give a longer patience_s"
            )
        SYSTEM_CLOCK.sleep(min(0.5, max(0.02, found.left_s / 10)))


def check_still_ours(attempt: Attempt, batches: RedisBatches, session: RedisSession, patience_s: float) -> None:
    """Check that the attempt still has its batch, and renew its lease.

    Raises:
        BatchFenced: it has not.
        StoreUnavailable: no answer in time.
        StoreRefused: Redis refuses.
    """

    def ask() -> bool:
        return session.live() and session.renew() and batches.fate(attempt) is Fate.LIVES

    if not patiently(patience_s, ask):
        raise fenced(attempt, batches)


def finish(
    attempt: Attempt, batches: RedisBatches, session: RedisSession, patience_s: float, *, keys: str = ""
) -> None:
    """Finish the attempt: the written rows count from now on. `keys`: the print of the batch's keys.

    Raises:
        BatchFenced: the attempt does not count any more.
        StoreUnavailable: no answer in time. The next start of the query finds out whether the batch counts.
        StoreRefused: Redis refuses.
    """
    session.abandon()  # no renewal is needed any more, and one after the finish would be refused
    if not patiently(patience_s, partial(batches.finish, attempt, keys=keys)):
        raise fenced(attempt, batches)
