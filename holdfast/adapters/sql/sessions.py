"""SQLAlchemy's sessions as handlers' transactions: `transaction=store.sqlalchemy(Session)`.

Each transaction has a session of its own, made by the user's factory. Nothing of SQLAlchemy is imported: what its
sessions have is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.adapters.sql.drivers import driver_for
from holdfast.adapters.sql.transactions import Opening, begin
from holdfast.dedup.steps import run, run_async
from holdfast.dedup.transactions import ENDED_BEFORE, FAILED_BEFORE, Conflict
from holdfast.errors import SettingError, StateError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from holdfast.adapters.sql.books import Books
    from holdfast.adapters.sql.changes import Statement
    from holdfast.adapters.sql.drivers import Driver
    from holdfast.adapters.sql.transactions import SqlTransaction
    from holdfast.dedup.steps import Steps

#: How many connections of the pool may have broken while they were idle, before that counts as no answer.
_STALE = 10
_AUTOCOMMIT = "these sessions are in autocommit mode: make the engine without isolation_level='AUTOCOMMIT'"


class SessionTransactions:
    """Implements `Transactions`: each has a session of SQLAlchemy's for `tx`. Made by `SqlPositions.sqlalchemy`.

    Raises:
        SettingError: it makes no sessions.
    """

    def __init__(self, store: object, books: Callable[[], Books], factory: Callable[[], Any]) -> None:
        factory = getattr(factory, "session_factory", factory)  # a scoped_session's: each transaction has its own
        session = factory() if callable(factory) else factory
        if not (hasattr(session, "get_bind") and hasattr(session, "connection")) or session is factory:
            raise SettingError(
                "sqlalchemy", type(factory).__name__, "give what makes sessions: sessionmaker(engine), or an async one"
            )
        self.store, self._books, self._factory = store, books, factory
        self.serves_async = hasattr(session, "sync_session")
        self.serves_plain = not self.serves_async

    def beginning(
        self,
        partition: str,
        epoch: int,
        offsets: Sequence[int],
        *,
        is_async: bool,
    ) -> Steps[SqlTransaction | None]:
        """Implements `Transactions.beginning`."""
        books = self._books()

        def open_(first: Statement) -> Any:  # noqa: ANN401 - or what is awaited for it
            steps = _opening(books, self._factory, first)
            return run_async(steps) if is_async else run(steps)

        return begin(books, partition, epoch, offsets, Opening(open_, is_async=is_async))

    def runs(self, partition: str, offsets: Collection[int]) -> bool:
        """Implements `Transactions.runs`."""
        return self._books().runs(partition, offsets)

    def abandon(self, partition: str, epoch: int, offsets: Collection[int]) -> bool:
        """Implements `Transactions.abandon`."""
        return self._books().abandon(partition, epoch, offsets)


def _opening(books: Books, factory: Callable[[], Any], first: Statement) -> Steps[SessionOpened]:
    """Begin a session's transaction with that statement. Raises StoreUnavailable, StoreRefused, StateError."""
    for left in reversed(range(_STALE)):
        session, opened = factory(), False
        driver: Driver | None = None
        try:
            connection: Any = yield session.connection
            connection = getattr(connection, "sync_connection", connection)
            driver = found = driver_for(connection.connection.driver_connection)
            if getattr(found.connection, "autocommit", None) is True:
                raise StateError(_AUTOCOMMIT)  # noqa: TRY301 - the session is closed below
            with books.database.watched(found.connection):
                changed, _ = yield lambda: found.mark(first, books.idle_s)  # noqa: B023
            opened = True
            return SessionOpened(books, session, found, changed)
        except Exception as error:
            cause = getattr(error, "orig", None) or error
            if driver is not None and driver.is_cut and left:
                continue
            if type(error).__module__.startswith("sqlalchemy.") and cause is error:
                raise StoreUnavailable(f"SQLAlchemy has given no connection: {error}") from error
            refused = books.database.error_of(cause)
            if refused is None:
                raise
            raise refused from error
        finally:
            if not opened:
                yield session.invalidate if driver is not None else session.close
    raise AssertionError


class SessionOpened:
    """Implements `Opened`; for an AsyncSession, to be awaited."""

    def __init__(self, books: Books, session: Any, driver: Driver, changed: int) -> None:  # noqa: ANN401 - SQLAlchemy's
        self._books, self._driver = books, driver
        self.connection, self.changed = session, changed
        self._session = getattr(session, "sync_session", session)
        self._transaction = self._session.get_transaction()
        self._walk: Any = run_async if driver.is_async else run

    def claim(self, statement: Statement) -> Any:  # noqa: ANN401 - or what is awaited for it
        """Implements `Opened.claim`."""
        return self._walk(self._claiming(statement))

    def commit(self) -> Any:  # noqa: ANN401 - as above
        """Implements `Opened.commit`."""
        return self._walk(self._committing())

    def failed(self, error: BaseException) -> Any:  # noqa: ANN401 - as above
        """Implements `Opened.failed`."""
        return self._walk(self._failing(error))

    def close(self) -> None:
        """Implements `Opened.close`. Does not wait."""
        self.cut()
        self._session.invalidate()

    def cut(self) -> None:
        """Implements `Opened.cut`."""
        self._driver.cut()

    @property
    def is_cut(self) -> bool:
        """Implements `Opened.is_cut`."""
        return self._driver.is_cut

    # ---- inside
    def _claiming(self, statement: Statement) -> Steps[Sequence[tuple[str, str]]]:
        try:
            found: Sequence[tuple[str, str]] = yield lambda: self._driver.claim(statement)
        except Exception as error:
            if self._driver.is_conflict(error) or self._driver.is_busy(error):
                raise Conflict from error
            raise self._books.database.error_of(error) or error from error
        return found

    def _committing(self) -> Steps[None]:
        ended = False
        try:
            self._check_open()
            yield self.connection.flush
            self._check_open()
            with self._books.database.watched(self._driver.connection):
                yield self.connection.commit
            ended = True
        except Exception as error:
            cause = getattr(error, "orig", None) or error
            if self._driver.is_cut or self._driver.is_unknown(cause):
                raise StoreUnavailable(f"a handler's transaction got no answer: {cause}") from error
            if self._driver.is_conflict(cause):
                raise Conflict from error
            raise
        finally:
            yield from self._leaving(whole=ended)

    def _failing(self, error: BaseException) -> Steps[BaseException]:
        cause = getattr(error, "orig", None) or error
        cut = self._driver.is_cut
        yield from self._leaving(whole=False)
        if cut:
            return StoreUnavailable(f"a handler's transaction got no answer: {cause}")
        return Conflict() if self._driver.is_conflict(cause) else error

    def _leaving(self, *, whole: bool) -> Steps[None]:
        """Give the session's connection back, and undo what is not committed."""
        for step in (self.connection.close,) if whole else (self.connection.rollback, self.connection.close):
            try:
                yield self.connection.invalidate if self._driver.is_cut else step
            except Exception:  # noqa: BLE001 - it broke: it is given up all the same
                self._driver.cut()

    def _check_open(self) -> None:
        """Raises StateError, StoreUnavailable."""
        if self._driver.is_cut:
            raise StoreUnavailable("a handler's transaction got no answer: its connection broke before COMMIT was sent")
        if self._session.get_transaction() is not self._transaction:
            raise StateError(ENDED_BEFORE)
        if not self._transaction.is_active or self._driver.has_failed:
            raise StateError(FAILED_BEFORE)
