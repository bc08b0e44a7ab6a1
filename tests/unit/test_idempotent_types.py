"""What type checkers make of a decorated function: mypy and pyright judge this file, running it only keeps it true."""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

from holdfast import MemoryClaims, Skipped, idempotent

if TYPE_CHECKING:
    from collections.abc import Callable

claims = MemoryClaims()


@idempotent(claims, key="order_id")
def plain(order_id: int, amount: float = 1.0) -> str:
    return f"{order_id}: {amount}"


@idempotent(claims, key="order_id")
async def coroutine(order_id: int) -> str:
    return str(order_id)


@idempotent(claims, key="order_id", on_done="marker")
def marked(order_id: int) -> str:
    return str(order_id)


@idempotent(claims, key="order_id", on_busy="skip")
async def skipped(order_id: int) -> str:
    return str(order_id)


@idempotent(claims, key="id", batch=True)
def many(orders: list[dict[str, int]]) -> None: ...


class Shop:
    @idempotent(claims, key="order_id")
    def method(self, order_id: int) -> int:
        return order_id


def test_arguments_and_results_keep_their_types() -> None:
    assert_type(plain(1), str)
    assert_type(plain(1, amount=2.0), str)
    assert_type(Shop().method(1), int)
    if TYPE_CHECKING:

        async def awaits() -> None:
            assert_type(await coroutine(1), str)

        del awaits
        plain("1")  # type: ignore[arg-type]
        plain()  # type: ignore[call-arg]


def test_who_may_get_a_marker_has_to_look() -> None:
    assert_type(marked(1), str | Skipped)
    assert_type(many([{"id": 1}]), list[Any])
    if TYPE_CHECKING:

        async def awaits() -> None:
            assert_type(await skipped(1), str | Skipped)

        del awaits
        other: Callable[[int], str] = marked  # type: ignore[assignment]
        del other
