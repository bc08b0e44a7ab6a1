"""Calls of handlers at a store, without an engine: what `transacting` and `marking` make of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.plugin.handling.handler_call import HandlerCall
from holdfast.plugin.handling.transacting import Keys, Origins, current_tx, marking, transacting
from holdfast.records import Partition
from tests.contracts.sql.test_positions import P, own

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from holdfast.adapters.sql import SqlPositions
    from holdfast.dedup.claims import ClaimSession
    from tests.harness.sql_stores import Databases


class Owner(NamedTuple):
    name: str
    store_epoch: int


@dataclass(frozen=True)
class Given:
    """As much of a record as the way to a handler looks at."""

    offset: int
    fence: Owner
    key: str | None = None

    partition = Partition("orders", 0)


class Calls:
    """A process that owns the position, and calls handlers that add offsets to the table of effects."""

    def __init__(self, databases: Databases, **settings: Any) -> None:
        self.databases = databases
        self.store: SqlPositions = databases.store(**settings)
        self.store.connect()
        databases.ask("CREATE TABLE IF NOT EXISTS effects (at BIGINT NOT NULL)")
        self.session: ClaimSession = self.store.begin(0.0)
        self.epoch = own(self.session).epoch
        self.add = f"INSERT INTO effects VALUES ({'?' if databases.url.startswith('sqlite') else '%s'})"  # noqa: S608 - a placeholder

    def effects(self) -> list[int]:
        return sorted(at for (at,) in self.databases.ask("SELECT at FROM effects"))

    def records(self, *offsets: int, keys: Sequence[str | None] = ()) -> list[Any]:
        owner = Owner(P, self.epoch)
        return [Given(at, owner, keys[n] if keys else None) for n, at in enumerate(offsets)]

    # ---- transactions of the handler's own
    def marks(self, handler: Callable[[HandlerCall], Any], *offsets: int) -> Any:
        """Call a handler that may mark."""
        return marking(lambda given: handler(_call(given)))(_given(self.records(*offsets)))

    def marks_async(self, handler: Callable[[HandlerCall], Awaitable[Any]], *offsets: int) -> Any:
        async def called(given: Any) -> Any:
            return await handler(_call(given))

        return asyncio.run(marking(called)(_given(self.records(*offsets))))

    # ---- the store's
    def transacts(
        self, handler: Callable[[Any, Any], Any], *offsets: int, by: Any = None, keys: Sequence[str | None] = ()
    ) -> Any:
        """Call a handler in a transaction. Args: handler: gets `tx`, and its records. by: what opens it."""

        def called(given: Any) -> Any:
            return handler(current_tx(), given)

        call = transacting(called, by or self.store, _keys() if keys else None)
        return call(_given(self.records(*offsets, keys=keys)))

    def transacts_async(
        self, handler: Callable[[Any, Any], Awaitable[Any]], *calls: Sequence[int], by: Any = None
    ) -> list[Any]:
        """Call one for each of these, at once. Returns what each has returned or raised."""

        async def called(given: Any) -> Any:
            return await handler(current_tx(), given)

        async def whole() -> list[Any]:
            each = [transacting(called, by or self.store)(_given(self.records(*offsets))) for offsets in calls]
            return await asyncio.gather(*each, return_exceptions=True)

        return asyncio.run(whole())


def _keys() -> Keys:
    def key_of(record: Any) -> str:
        return str(record.key)

    return Keys(key_of, lambda topic: topic, Origins(group="g", born_in=lambda topic: topic, keyless=False))


def _given(records: list[Any]) -> Any:
    return records[0] if len(records) == 1 else records


def _call(given: Any) -> HandlerCall:
    records = given if isinstance(given, list) else [given]
    return HandlerCall(
        handler="h", group="g", records=records, keys=[None] * len(records), is_batch=len(records) > 1, attempt=1
    )
