"""Transacting: a handler runs in a transaction of its store (`transaction=`), in which its record is marked already; or
it marks the record in a transaction of its own, and the store is asked afterwards what became of that.

It is the innermost of what is around a handler: middlewares see one call, though the database may have ended a conflict
and the function has run again; what a middleware raises after it does not undo what is committed.
"""

from __future__ import annotations

import functools
import hashlib
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.dedup.calls.results import Skipped
from holdfast.dedup.not_run import is_coroutine, not_run
from holdfast.dedup.steps import run, run_async
from holdfast.dedup.transactions import Conflict, Scope
from holdfast.errors import (
    AlreadyDone,
    BatchFailed,
    FormerOwner,
    KeyMissing,
    StoreLockedOut,
    StoreRefused,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.dedup.steps import Steps
    from holdfast.dedup.transactions import Transaction, Transactions
    from holdfast.records import Record

#: How often a call runs again whose transaction the database has undone to end a conflict, before that counts as a
#: failed attempt: two that meet each other each time are not to go on for ever.
_TRIES = 10
#: Bytes of a key that is kept as it is: an index holds no long ones.
_LONG = 1000
_NOT_HANDLED = RuntimeError("what the handler has returned says that its work is not done")
_CURRENT: ContextVar[Any] = ContextVar("the transaction of holdfast's that is open")


class NotHandled(BaseException):
    """The handler's call counts as none: its transaction could not begin, or was undone, because of another.

    No Exception: a middleware cannot make of it that the record is handled.

    Args:
        due_to: StoreUnavailable or FormerOwner.
    """

    def __init__(self, due_to: StoreUnavailable | FormerOwner) -> None:
        super().__init__(str(due_to))
        self.due_to = due_to


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """An app's say about its handlers' keys."""

    group: str
    #: A topic -> the one whose records come in it: another one, if it is a retry topic.
    born_in: Callable[[str], str]
    #: Whether a record without its key is known by its position.
    keyless: bool


class Keys:
    """The business keys of a handler with `transaction=`.

    Args:
        key_of: finds the key of a record.
        scope_of: where the keys of a topic are unique.
        origins: of the app.
    """

    def __init__(self, key_of: Callable[[Record], str], scope_of: Callable[[str], str], origins: Origins) -> None:
        self._key_of, self._scope_of, self._origins = key_of, scope_of, origins

    def of(self, records: Sequence[Record], *, is_batch: bool) -> list[tuple[str, str] | None]:
        """Find them, each with its scope; None = that record is known by its position.

        Raises:
            KeyMissing, Exception: of one record; what the user's function raises.
            BatchFailed: those of a batch.
        """
        scope = self._scope_of(self._origins.born_in(records[0].partition.topic))
        found: list[tuple[str, str] | None] = []
        failures: dict[int, Exception] = {}
        for at, record in enumerate(records):
            try:
                found.append((scope, _short(self._key_of(record))))
            except Exception as error:
                if isinstance(error, KeyMissing) and self._origins.keyless:
                    found.append(None)
                elif is_batch:
                    failures[at] = error
                else:
                    raise
        if failures:
            raise BatchFailed(failures)
        return found


def current_tx() -> Any:  # noqa: ANN401 - a connection of the database's driver, or a session
    """The connection of the transaction in which this handler runs. Raises LookupError: there is none."""
    return _CURRENT.get()


def transacting(
    call: Callable[[Any], Any], transactions: Transactions, keys: Keys | None = None
) -> Callable[[Any], Any]:
    """Make a function that calls another one, plain or a coroutine, in a transaction, with a record or a list of
    records.

    It raises NotHandled; and what the function raises, when it has been undone.
    """
    is_async = is_coroutine(call)

    def once(given: Any, records: Sequence[Record]) -> Steps[Any]:  # noqa: ANN401 - a record, or a list of them
        return _once(call, transactions, given, records, keys, is_async=is_async)

    return _repeated(call, once, is_async=is_async)


def marking(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make a function that calls another one, which may mark its records in a transaction of its own; as
    `transacting`."""
    is_async = is_coroutine(call)

    def once(given: Any, records: Sequence[Record]) -> Steps[Any]:  # noqa: ANN401 - as above
        return _marked(call, given, records)

    return _repeated(call, once, is_async=is_async)


def _repeated(
    call: Callable[[Any], Any], once: Callable[[Any, Sequence[Record]], Steps[Any]], *, is_async: bool
) -> Callable[[Any], Any]:
    @functools.wraps(call)
    def called(given: Any) -> Any:  # noqa: ANN401 - as above
        return run(_until_done(once, given))

    @functools.wraps(call)
    async def called_async(given: Any) -> Any:  # noqa: ANN401 - as above
        return await run_async(_until_done(once, given))

    return called_async if is_async else called


def _until_done(once: Callable[[Any, Sequence[Record]], Steps[Any]], given: Any) -> Steps[Any]:  # noqa: ANN401 - as above
    records: Sequence[Record] = given if isinstance(given, list) else (given,)
    for left in reversed(range(_TRIES)):
        try:
            return (yield from once(given, records))
        except Conflict as error:
            if not left:
                raise error.__cause__ or error from None
    raise AssertionError


def _once(
    call: Callable[[Any], Any],
    transactions: Transactions,
    given: Any,  # noqa: ANN401 - as above
    records: Sequence[Record],
    keys: Keys | None,
    *,
    is_async: bool,
) -> Steps[Any]:
    owner: Any = records[0].fence  # the ownership under which they came
    is_batch = isinstance(given, list)
    claimed = keys.of(records, is_batch=is_batch) if keys is not None else ()
    offsets = [record.offset for record in records]
    try:
        tx = yield from transactions.beginning(owner.name, owner.store_epoch, offsets, is_async=is_async)
    except (StoreUnavailable, FormerOwner) as error:
        raise NotHandled(error) from error
    if tx is None:
        return None
    at = [number for number, record in enumerate(records) if record.offset not in tx.done] if tx.done else None
    try:
        if claimed:
            at = yield from _new_ones(tx, claimed, range(len(records)) if at is None else at)
        if at is not None and len(at) < len(records):
            given = [records[number] for number in at]
        token = _CURRENT.set(tx.connection)
        try:
            returned = (yield lambda: call(given)) if at is None or at else None
        finally:
            _CURRENT.reset(token)
    except BaseException as error:
        due_to = _of_all((yield from tx.failing(error)), at)
        if due_to is error or due_to is None:
            raise
        raise due_to from error
    if not _is_handled(returned):
        yield from tx.failing(_NOT_HANDLED)
        return returned  # the caller says why
    try:
        yield from tx.committing()
    except (StoreUnavailable, FormerOwner) as error:
        raise NotHandled(error) from error
    return returned


def _of_all(due_to: BaseException | None, at: Sequence[int] | None) -> BaseException | None:
    """Make of what an error of a handler was due to what is raised. Args: at: the records that it was given, of all."""
    if isinstance(due_to, StoreRefused):  # it has let this process in before
        return NotHandled(StoreLockedOut(str(due_to)))
    if isinstance(due_to, StoreUnavailable | FormerOwner):
        return NotHandled(due_to)
    if isinstance(due_to, BatchFailed) and at is not None and due_to.fits(len(at)):
        return BatchFailed({at[number]: failure for number, failure in due_to.failures.items()})
    return due_to


def _new_ones(tx: Transaction, claimed: Sequence[tuple[str, str] | None], at: Sequence[int]) -> Steps[list[int]]:
    """The records of these whose keys no other record has had; the first of several with one key."""
    left = set((yield from tx.claiming([key for number in at if (key := claimed[number]) is not None])))
    found = []
    for number in at:
        key = claimed[number]
        if key is None or key in left:
            found.append(number)
            left.discard(key)
    return found


def _marked(call: Callable[[Any], Any], given: Any, records: Sequence[Record]) -> Steps[Any]:  # noqa: ANN401 - as above
    """Call it. The store's reply to `mark` stands, whatever the handler makes of it."""
    scope = Scope(records)
    token = Scope.current.set(scope)
    returned = raised = None
    try:
        try:
            returned = yield lambda: call(given)
        finally:
            Scope.current.reset(token)
    except BaseException as error:  # noqa: BLE001 - as below
        raised = error
    if scope.marked is not None:
        raised = yield from _ended(scope.marked, returned, raised)
    said = scope.error
    try:
        if isinstance(said, StoreUnavailable | FormerOwner):
            raise NotHandled(said) from said
        if isinstance(said, Conflict):
            raise said
        if raised is not None and not (isinstance(said, AlreadyDone) and isinstance(raised, Exception)):
            raise raised
        return returned
    finally:
        del raised, said, scope  # a traceback and this frame would keep each other


def _ended(tx: Transaction, returned: object, raised: BaseException | None) -> Steps[BaseException | None]:
    """The error that stands when the handler has ended, and the row was read."""
    try:
        if raised is None and _is_handled(returned):
            yield from tx.committing()
            return None
        due_to = yield from tx.failing(raised or _NOT_HANDLED)
    except (StoreUnavailable, FormerOwner) as error:
        return NotHandled(error)
    except Exception as error:  # noqa: BLE001 - it stands
        return error
    if due_to is _NOT_HANDLED:
        return None  # the caller says why
    if isinstance(due_to, StoreUnavailable | FormerOwner):
        return NotHandled(due_to)
    if isinstance(due_to, BatchFailed):
        due_to.undone = True
    return due_to


def _short(key: str) -> str:
    """A key as a database's index can hold it."""
    data = key.encode(errors="surrogatepass")
    return key if len(data) <= _LONG and "\0" not in key else f"h:{hashlib.sha256(data).hexdigest()}"


def _is_handled(returned: object) -> bool:
    """Whether a handler's return says that its work is done, and has run."""
    busy = returned is Skipped.BUSY or (isinstance(returned, list) and Skipped.BUSY in returned)
    return returned is None or not (busy or not_run(returned) is not None)
