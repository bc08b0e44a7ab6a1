"""Values that the sink takes and tells."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.adapters.spark._pyspark import DataFrame, SparkSession
    from holdfast.dedup.spark_batches import Attempt

#: Why a write may be done again: it replaces what an earlier attempt has written; it is keyed by the business key;
#: or rows and a row that names the attempt are one transaction.
Safe = Literal["replace", "upsert", "transaction"]


class BatchFenced(HoldfastError):
    """Another attempt of this batch has begun, or this driver was silent for longer than its lease: it does not
    count."""


class BatchRefused(HoldfastError):
    """The batch cannot be written without losing or doubling rows. Nothing was written; the query ends."""


class WriteFailed(HoldfastError):
    """The sink's server did not take the batch, or did not answer. It is written when the query is started again."""


class StillOurs:
    """Asks Redis whether an attempt still has its batch. On the driver: a copy that was pickled has nobody to ask."""

    def __init__(self, ask: Callable[[], None] | None = None) -> None:
        self._ask = ask

    def __reduce__(self) -> tuple[type[StillOurs], tuple[()]]:
        return StillOurs, ()

    def check(self) -> None:
        """Raises BatchFenced, StoreUnavailable, StoreRefused."""
        if self._ask is not None:
            self._ask()


_NOBODY = StillOurs()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWrite:
    """A batch that is being written."""

    sink: str
    query: str  #: Spark's query id, or the name that was given
    batch: int
    attempt: str  #: never used again, and fit for a name of a folder
    rows: int
    fence: int = 0  #: rises from attempt to attempt of the sink: refuse what carries a lower one than you have seen
    key: tuple[str, ...] = ()  #: the columns of the business key
    still: StillOurs = field(default=_NOBODY, repr=False, compare=False)

    @classmethod
    def of(cls, attempt: Attempt, key: tuple[str, ...], rows: int, still: StillOurs = _NOBODY) -> BatchWrite:
        """By that attempt."""
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
        """Ask whether the batch is still this attempt's, right before what cannot be taken back: a commit. On the
        driver; a copy of this on an executor asks nobody.

        Raises:
            BatchFenced: it is over, and others may have its keys. Do not commit.
            StoreUnavailable, StoreRefused: nobody knows. Do not commit either.
        """
        self.still.check()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """The result of a batch. rows = owned + skipped + copies + bad."""

    sink: str
    query: str
    batch: int
    attempt: int
    rows: int = 0
    owned: int = 0  #: written
    skipped: int = 0  #: their key was done before: by an earlier batch, another query, or a consumer that is not Spark
    copies: int = 0  #: more rows of a key that came in the batch itself
    bad: int = 0  #: their key is none, and they went where `bad_rows` says
    taken_over: int = 0  #: of those owned: somebody had claimed them and died
    finished_before: bool = False  #: the batch was finished by an earlier attempt, and this run was skipped
    another: bool = False  #: an earlier attempt has finished another batch of this number: see the warning


@runtime_checkable
class Keeping(Protocol):
    """A writer that leaves alone what a finished attempt has written, whatever batch comes under the same number, and
    that can be asked for keys."""

    def lacking(self, rows: DataFrame, batch: BatchWrite) -> int:
        """How many of the rows have a key that the sink does not have. Rows without a key are not asked for."""
        ...


class Writer(Protocol):
    """Where rows go. Pickled with the sink: no clients, no sessions."""

    @property
    def safe(self) -> Safe:
        """Why it may be called again."""
        ...

    def write(self, rows: DataFrame, batch: BatchWrite) -> None:
        """Write. May be called again for the same batch, with other rows: then the earlier ones must not stay."""
        ...

    def finished(self, spark: SparkSession, batch: BatchWrite) -> bool:
        """Whether the sink itself knows the batch as finished, whatever Redis has forgotten."""
        ...

    def confirm(self, spark: SparkSession, attempt: Attempt) -> None:
        """Redis knows this attempt as finished: note it in the sink too. May be called again, also by later batches."""
        ...
