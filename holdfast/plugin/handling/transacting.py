"""Transacting: a handler runs in a transaction of its store (`transaction=`), in which its record is marked already.

It is the innermost of what is around a handler: middlewares see one call, though the database may have ended a conflict
and the function has run again; what a middleware raises after it does not undo what is committed.
"""

from __future__ import annotations

import functools
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from holdfast.dedup.calls.results import Skipped
from holdfast.dedup.not_run import not_run
from holdfast.dedup.transactions import Conflict
from holdfast.errors import BatchFailed, FormerOwner, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.dedup.transactions import Transactions
    from holdfast.records import Record

#: How often a call runs again whose transaction the database has undone to end a conflict, before that counts as a
#: failed attempt: two that meet each other each time are not to go on for ever.
_TRIES = 10
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


def current_tx() -> Any:  # noqa: ANN401 - a connection of the database's driver
    """The connection of the transaction in which this handler runs. Raises LookupError: there is none."""
    return _CURRENT.get()


def transacting(call: Callable[[Any], Any], store: Transactions) -> Callable[[Any], Any]:
    """Make a plain function that calls another one in a transaction, with a record or a list of records.

    It raises NotHandled; and what the function raises, when it has been undone.
    """

    @functools.wraps(call)
    def called(given: Any) -> Any:  # noqa: ANN401 - a record, or a list of them
        records: Sequence[Record] = given if isinstance(given, list) else (given,)
        for left in reversed(range(_TRIES)):
            try:
                return _once(call, store, given, records)
            except Conflict as error:
                if not left:
                    raise error.__cause__ or error from None
        raise AssertionError

    return called


def _once(call: Callable[[Any], Any], store: Transactions, given: Any, records: Sequence[Record]) -> Any:  # noqa: ANN401 - as above
    owner: Any = records[0].fence  # the ownership under which they came
    try:
        tx = store.transaction(owner.name, owner.store_epoch, [record.offset for record in records])
        if tx is None:
            return None
    except (StoreUnavailable, FormerOwner) as error:
        raise NotHandled(error) from error
    at = [number for number, record in enumerate(records) if record.offset not in tx.done]
    if tx.done:
        given = [records[number] for number in at]
    token = _CURRENT.set(tx.connection)
    try:
        returned = call(given)
    except BaseException as error:
        due_to = tx.failed(error)
        if isinstance(due_to, StoreUnavailable):
            raise NotHandled(due_to) from error
        if isinstance(due_to, BatchFailed) and tx.done and due_to.fits(len(at)):
            due_to = BatchFailed({at[number]: failure for number, failure in due_to.failures.items()})
        if due_to is error:
            raise
        raise due_to from error
    finally:
        _CURRENT.reset(token)
    if not _is_handled(returned):
        tx.failed(_NOT_HANDLED)
        return returned  # the caller says why
    try:
        tx.commit()
    except (StoreUnavailable, FormerOwner) as error:
        raise NotHandled(error) from error
    return returned


def _is_handled(returned: object) -> bool:
    """Whether a handler's return says that its work is done, and has run."""
    busy = returned is Skipped.BUSY or (isinstance(returned, list) and Skipped.BUSY in returned)
    return returned is None or not (busy or not_run(returned) is not None)
