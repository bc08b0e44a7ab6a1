"""A handler's call in a transaction: what is undone runs again, what has not begun counts as no call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.dedup.calls.results import Skipped
from holdfast.dedup.transactions import Conflict
from holdfast.errors import BatchFailed, FormerOwner, StoreUnavailable
from holdfast.plugin.handling.transacting import NotHandled, current_tx, transacting
from holdfast.records import Partition, Record

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from holdfast.dedup.steps import Steps


class Ownership:
    name, store_epoch = "g/orders/1/0", 7


def record(offset: int) -> Record:
    fence: Any = Ownership()
    return Record(Partition("orders", 0), offset, None, b"", (), 0, fence)


class Store:
    """One whose transactions end as it is told: None = well."""

    def __init__(self, *ends: Exception | None, done: tuple[int, ...] = ()) -> None:
        self._ends, self.done, self.story, self.connection = [*ends], done, list[str](), "a connection"

    serves_plain = serves_async = True

    @property
    def store(self) -> object:
        raise AssertionError

    def beginning(self, partition: str, epoch: int, offsets: Sequence[int], *, is_async: bool) -> Steps[Store | None]:
        assert (partition, epoch) == ("g/orders/1/0", 7)
        if self._ends and isinstance(self._ends[0], FormerOwner):
            raise self._ends[0]
        yield lambda: None
        return None if set(offsets) <= set(self.done) else self

    def claiming(self, keys: Sequence[tuple[str, str]]) -> Steps[set[tuple[str, str]]]:
        raise AssertionError

    def committing(self) -> Steps[None]:
        end = self._ends.pop(0) if self._ends else None
        yield lambda: self.story.append("commit" if end is None else "undone")
        if end is not None:
            raise end

    def failing(self, error: BaseException) -> Steps[BaseException]:
        yield lambda: self.story.append("undone")
        return error

    def runs(self, partition: str, offsets: Collection[int]) -> bool:
        raise AssertionError

    def abandon(self, partition: str, epoch: int, offsets: Collection[int]) -> bool:
        raise AssertionError


def test_it_commits_what_has_returned_and_gives_the_connection() -> None:
    store, seen = Store(), list[object]()
    transacting(lambda given: seen.append(current_tx()), store)(record(0))
    assert (seen, store.story) == (["a connection"], ["commit"])
    with pytest.raises(LookupError):
        current_tx()


def test_a_coroutine_is_awaited_in_one() -> None:
    async def called(given: object) -> None:
        await asyncio.sleep(0)
        seen.append(current_tx())

    store, seen = Store(Conflict()), list[object]()
    asyncio.run(transacting(called, store)(record(0)))
    assert (seen, store.story) == (["a connection"] * 2, ["undone", "commit"])


def test_what_the_database_undoes_to_end_a_conflict_runs_again() -> None:
    store, calls = Store(Conflict(), Conflict()), list[object]()
    transacting(calls.append, store)(record(0))
    assert len(calls) == 3
    assert store.story == ["undone", "undone", "commit"]


def test_but_not_for_ever() -> None:
    conflict = Conflict()
    conflict.__cause__ = ValueError("deadlock detected")
    with pytest.raises(ValueError, match="deadlock"):
        transacting(lambda given: None, Store(*[conflict] * 100))(record(0))


def test_what_the_handler_raises_is_undone_and_raised() -> None:
    def fails(given: object) -> None:
        raise ValueError

    store = Store()
    with pytest.raises(ValueError):  # noqa: PT011 - the handler's own
        transacting(fails, store)(record(0))
    assert store.story == ["undone"]


@pytest.mark.parametrize("error", [StoreUnavailable("away"), FormerOwner("taken")])
def test_what_counts_as_no_call_is_no_exception_that_a_middleware_could_swallow(error: Exception) -> None:
    with pytest.raises(NotHandled) as raised:
        transacting(lambda given: None, Store(error))(record(0))
    assert raised.value.due_to is error
    assert not isinstance(raised.value, Exception)


def test_a_record_that_is_done_is_not_given_to_the_handler() -> None:
    def never(given: object) -> None:
        raise AssertionError

    transacting(never, Store(done=(0,)))(record(0))


def test_of_a_batch_the_handler_gets_what_is_left_and_names_it_by_its_own_places() -> None:
    given: list[list[int]] = []

    def rows(records: list[Record]) -> None:
        given.append([each.offset for each in records])
        raise BatchFailed({1: ValueError()})

    with pytest.raises(BatchFailed) as raised:
        transacting(rows, Store(done=(0, 2)))([record(offset) for offset in range(5)])
    assert given == [[1, 3, 4]]
    assert list(raised.value.failures) == [3]


def test_what_has_not_run_yet_is_not_committed() -> None:
    async def later() -> None: ...

    for returned in (later(), Skipped.BUSY, [None, Skipped.BUSY]):
        store = Store()
        transacting(lambda given, returned=returned: returned, store)(record(0))  # type: ignore[misc]
        assert store.story == ["undone"]
        if hasattr(returned, "close"):
            returned.close()
