"""Values and protocols of the sink: errors, BatchWrite, BatchReport, Writer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.adapters.spark._pyspark import DataFrame, SparkSession
    from holdfast.dedup.spark_batches import Attempt

#: Why a write may be repeated: it replaces the rows of earlier attempts; it merges by the business key; or the rows and
#: a row that names the attempt are one transaction.
Safe = Literal["replace", "upsert", "transaction"]


class BatchFenced(HoldfastError):
    """The attempt does not count: another attempt of this batch has begun, or this driver was silent for longer than
    its lease."""


class BatchRefused(HoldfastError):
    """The batch cannot be written without losing or doubling rows. Nothing was written; the query ends."""


class WriteFailed(HoldfastError):
    """The sink's server refused the batch or did not answer. The next start of the query writes the batch."""


class StillOurs:
    """Asks Redis whether an attempt still has its batch. On the driver only: a pickled copy does not ask."""

    def __init__(self, ask: Callable[[], None] | None = None) -> None:
        self._ask = ask

    def __reduce__(self) -> tuple[type[StillOurs], tuple[()]]:
        return StillOurs, ()

    def check(self) -> None:
        """Ask Redis. Raises BatchFenced, StoreUnavailable, StoreRefused."""
        if self._ask is not None:
            self._ask()


_NOBODY = StillOurs()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWrite:
    """A batch that is being written. The second argument of a write function."""

    sink: str
    query: str  #: Spark's query id, or the name that was given
    batch: int
    attempt: str  #: unique to this attempt, and usable as a folder's name
    rows: int
    fence: int = 0  #: rises with each attempt of the sink: refuse a write with a lower fence than one already seen
    key: tuple[str, ...] = ()  #: the columns of the business key
    still: StillOurs = field(default=_NOBODY, repr=False, compare=False)

    @classmethod
    def of(cls, attempt: Attempt, key: tuple[str, ...], rows: int, still: StillOurs = _NOBODY) -> BatchWrite:
        """Make it from an attempt."""
        of = attempt.of
        return cls(
            sink=of.sink,
            query=of.query,
            batch=of.batch,
            attempt=attempt.name,
            rows=rows,
            fence=attempt.fence,
            key=key,
            still=still,
        )

    def check(self) -> None:
        """Check that the batch is still this attempt's. Call it right before a commit or another step that cannot be
        undone. On the driver; a copy on an executor does not ask.

        Raises:
            BatchFenced: the attempt does not count any more, and others may have its keys. Do not commit.
            StoreUnavailable, StoreRefused: it is not known. Do not commit either.
        """
        self.still.check()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """The result of a batch, in numbers of rows. rows = owned + skipped + copies + bad."""

    sink: str
    query: str
    batch: int
    attempt: int
    rows: int = 0
    owned: int = 0  #: written
    skipped: int = 0  #: the key was done before: by an earlier batch, another query, or a consumer without Spark
    copies: int = 0  #: further rows of a key that the batch itself has
    bad: int = 0  #: without a key; written as `bad_rows` says
    taken_over: int = 0  #: the part of `owned` that another consumer had claimed before it died
    finished_before: bool = False  #: an earlier attempt has finished the batch, and this run was skipped
    another: bool = False  #: an earlier attempt has finished another batch with this number: see the warning


@runtime_checkable
class Keeping(Protocol):
    """A writer that never removes rows of a finished attempt, also if another batch comes with the same number, and
    that can look up keys."""

    def lacking(self, rows: DataFrame, batch: BatchWrite) -> int:
        """The number of rows whose key is not in the sink. Rows without a key do not count."""
        ...


class Writer(Protocol):
    """Writes rows to a sink. On the driver. Pickled with the sink: it must not have clients or sessions."""

    @property
    def safe(self) -> Safe:
        """Why `write` may be repeated."""
        ...

    def write(self, rows: DataFrame, batch: BatchWrite) -> None:
        """Write the rows. May be called again for the same batch with other rows: then the earlier ones must go."""
        ...

    def finished(self, spark: SparkSession, batch: BatchWrite) -> bool:
        """Whether the sink itself has the batch as finished, also if Redis has lost it."""
        ...

    def confirm(self, spark: SparkSession, attempt: Attempt) -> None:
        """Note in the sink that Redis has this attempt as finished. May be called again, also with later batches."""
        ...
