"""Effects: a list of what users' handlers did. It knows when each item was appended, and in which call of a handler."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.dedup.keys import resolve_key
from holdfast.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.dedup.keys import KeySpec
    from holdfast.testing.scripted.book import Call

#: The handler call that runs now, of each thread and of each task of an event loop.
CALL: ContextVar[Call | None] = ContextVar("holdfast.testing.call", default=None)


class Effect(NamedTuple):
    """An item, the virtual time at which it was appended, and the handler call; None = outside of handlers."""

    item: object
    at_s: float
    call: Call | None


class Effects(list[Any]):
    """Effects of handlers on the world: `charged.append(order_id)`. Made by `ScriptedWorld.effects`."""

    def __init__(self, name: str, tell: Callable[[Effects, Effect], None], now: Callable[[], float]) -> None:
        super().__init__()
        self.name = name
        self._tell, self._now = tell, now
        self._effects: list[Effect] = []

    def append(self, item: object) -> None:
        """Add an effect of the handler call that runs now."""
        effect = Effect(item, self._now(), CALL.get())
        super().append(item)
        self._effects.append(effect)
        self._tell(self, effect)

    def extend(self, items: Iterable[object]) -> None:
        """Append each item."""
        for item in items:
            self.append(item)

    def clear(self) -> None:
        """Remove all items."""
        super().clear()
        self._effects.clear()


def effects_of(items: Sequence[object]) -> Sequence[Effect]:
    """The items as effects. Items of a plain list have the time -1 and no call."""
    noted = items._effects if isinstance(items, Effects) else []  # noqa: SLF001 - of this file
    return noted if len(noted) == len(items) else [Effect(item, -1.0, None) for item in items]


def name_of(items: object) -> str:
    """The name of the list in messages."""
    return items.name if isinstance(items, Effects) else "what was done"


def what_of(item: object, by: KeySpec | None) -> str:
    """The name of the work of an effect: the item itself, or the field `by` of it."""
    if isinstance(item, Record):
        return key_of(item, by) if by is not None else f"{item.partition}@{item.offset}"
    if isinstance(by, str):
        found: object = item
        for part in by.split("."):
            if isinstance(found, Mapping):
                found = found[part]
            elif hasattr(found, part):
                found = getattr(found, part)
        return str(found)
    return str(item)


def key_of(record: Record, by: KeySpec) -> str:
    """The key of a record as text: a number and its digits are equal."""
    return resolve_key(by)(record)[2:]
