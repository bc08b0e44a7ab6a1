"""StoreAt: the settings of the store, as a value that pickles. The driver and each task open their own connections."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Literal, TypeVar

from tenacity import (
    RetryError,
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_delay,
    wait_random_exponential,
)

from holdfast.adapters.spark.session import resolved_url
from holdfast.dedup.redis_spark_batches import RedisBatches
from holdfast.dedup.redis_store import RedisClaims
from holdfast.errors import SettingError, StoreUnavailable
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.adapters.spark._pyspark import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAt:
    """A namespace in a Redis. `url` is not in the repr: it may have a password."""

    url: str = field(repr=False)
    namespace: str
    remember_s: float
    hash_keys: bool
    keys_expected: int
    timeout_s: float
    durability: Literal["none", "wait1"] = "none"

    def __post_init__(self) -> None:
        if not self.url or not isinstance(self.url, str):
            raise SettingError(
                "claims", type(self.url).__name__, "give Redis' URL, or the name of a Spark conf with it"
            )
        if "://" in self.url:
            self._made().close()  # raises for settings that cannot work, here where the user writes them

    def resolved(self, spark: SparkSession) -> StoreAt:
        """With the URL in place of the name of a conf.

        Raises:
            SettingError: the session has no such conf.
        """
        url = resolved_url("claims", self.url, "redis", spark)
        return self if url == self.url else replace(self, url=url)

    @contextmanager
    def opened(self, patience_s: float) -> Iterator[tuple[RedisClaims, RedisBatches]]:
        """Connect, and check the server. On the driver. Raises StoreUnavailable, StoreRefused."""
        store = self._made()
        try:
            yield store, patiently(patience_s, partial(RedisBatches.of, store))
        finally:
            store.close()

    def batches(self) -> RedisBatches:
        """The store for a task on an executor. Its connections stay open for further tasks of this worker process.

        Raises StoreUnavailable, StoreRefused.
        """
        return RedisBatches.of(_kept(self))

    def _made(self) -> RedisClaims:
        return RedisClaims.from_url(
            self.url,
            timeout_s=self.timeout_s,
            namespace=self.namespace,
            window_s=self.remember_s,
            hash_keys=self.hash_keys,
            keys_expected=self.keys_expected,
            durability=self.durability,
        )


@lru_cache(maxsize=4)  # a worker serves few sinks; an evicted store closes its connections when it is collected
def _kept(at: StoreAt) -> RedisClaims:
    return at._made()  # noqa: SLF001 - the same file


T = TypeVar("T")


def patiently(patience_s: float, ask: Callable[[], T], again: Callable[[T], bool] = lambda _: False) -> T:
    """Repeat a call until the store answers and `again(answer)` is false. After `patience_s`, returns the last answer.

    Raises:
        StoreUnavailable: no answer in time.
        StoreRefused: at once.
    """
    retrying = Retrying(
        retry=retry_if_exception_type(StoreUnavailable) | retry_if_result(again),
        stop=stop_after_delay(patience_s),
        wait=wait_random_exponential(multiplier=0.05, max=1.0),
    )
    try:
        return retrying(ask)
    except RetryError as error:
        if error.last_attempt.failed:
            error.reraise()
        answer: T = error.last_attempt.result()
        return answer


class Patience:
    """The time that all calls of one task may wait together. Calls that succeed at once use up none of it: a task may
    have thousands."""

    def __init__(self, patience_s: float) -> None:
        self._left_s = patience_s

    def ask(self, ask: Callable[[], T], again: Callable[[T], bool] = lambda _: False) -> T:
        """See `patiently`. If no time is left, the call is made once."""
        answered: list[float] = []

        def asked() -> T:
            try:
                return ask()
            finally:
                answered.append(SYSTEM_CLOCK.now())

        try:
            return patiently(self._left_s, asked, again)
        finally:
            self._left_s = max(0.0, self._left_s - (answered[-1] - answered[0]))
