"""The same key with another payload is an error, where a function asks for it."""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import pydantic
import pytest

from holdfast import BatchFailed, MemoryClaims, Skipped, idempotent, make_record
from holdfast.dedup.calls.fingerprints import ItemFingerprint
from holdfast.dedup.calls.functions import Names
from holdfast.dedup.memory_state import Finished
from holdfast.errors import KeyReused, ResultNotStored, SettingError, StoreRefused


@pytest.fixture
def claims() -> MemoryClaims:
    return MemoryClaims()


@dataclass
class Order:
    id: int
    total: Decimal


class Model(pydantic.BaseModel):
    id: int
    total: Decimal


class Struct(msgspec.Struct):
    id: int
    total: Decimal


class Plain:
    def __init__(self) -> None:
        self.card = "hunter2"


class Colour(enum.Enum):
    RED = "red"


class TestArguments:
    def test_another_amount_for_a_key_that_is_done_is_refused_and_does_not_run(self, claims: MemoryClaims) -> None:
        ran = []

        @idempotent(claims, key="order", name="charge", fingerprint=True)
        def charge(order: int, amount: int, *, note: str = "", more: Any = ()) -> int:
            ran.append(amount)
            return amount

        assert charge(1, 5) == charge(order=1, amount=5) == charge(1, 5, note="") == charge(1, 5, more=[]) == 5
        others: list[tuple[Any, str]] = [(6, ""), (5, "x"), (5.0, "")]
        for amount, note in others:
            with pytest.raises(KeyReused, match="charge has run for this key with another payload"):
                charge(1, amount, note=note)
        assert ran == [5]
        assert charge(2, 6) == 6

    def test_only_what_is_named_is_compared(self, claims: MemoryClaims) -> None:
        @idempotent(claims, key="order.id", name="charge", fingerprint=("order.total", "currency"))
        def charge(order: dict[str, Any], currency: str = "EUR", trace: object = None) -> str:
            return currency

        assert charge({"id": 1, "total": 5}, trace=object()) == charge({"id": 1, "total": 5, "x": 1}, "EUR") == "EUR"
        for order, currency in (({"id": 1, "total": 6}, "EUR"), ({"id": 1, "total": 5}, "USD"), ({"id": 1}, "EUR")):
            with pytest.raises(KeyReused):
                charge(order, currency)

    def test_or_what_a_function_makes_of_them(self, claims: MemoryClaims) -> None:
        @idempotent(claims, key="order", name="charge", fingerprint=lambda order, amount: round(amount))
        def charge(order: int, amount: float) -> float:
            return amount

        assert charge(1, 4.9) == charge(1, 5.1) == 4.9
        with pytest.raises(KeyReused):
            charge(1, 6)

    def test_the_object_of_a_method_is_none_of_its_arguments(self, claims: MemoryClaims) -> None:
        class Shop:
            @idempotent(claims, key="order", name="charge", fingerprint=True)
            def charge(self, order: int, amount: int) -> int:
                return amount

        assert Shop().charge(1, 5) == Shop().charge(1, 5) == 5
        with pytest.raises(KeyReused):
            Shop().charge(1, 6)

    def test_a_parameter_that_is_added_with_a_default_changes_nothing(self, claims: MemoryClaims) -> None:
        assert idempotent(claims, key="order", name="f", fingerprint=True)(lambda order, amount: "old")(1, 5) == "old"
        claims.calls.names = Names()  # the next version, in a process of its own
        later = idempotent(claims, key="order", name="f", fingerprint=True)(lambda order, amount, tip=0: "new")
        assert later(1, 5) == later(1, 5, 0) == "old"
        with pytest.raises(KeyReused):
            later(1, 5, 1)

    @pytest.mark.parametrize("fingerprint", [False, True, "amount"])
    def test_a_coroutine_too(self, claims: MemoryClaims, fingerprint: Any) -> None:
        @idempotent(claims, key="order", name="charge", fingerprint=fingerprint, on_done="marker")
        async def charge(order: int, amount: int) -> int | Skipped:
            return amount

        async def main() -> None:
            assert [await charge(1, 5), await charge(1, 5)] == [5, Skipped.DONE]
            if fingerprint:
                with pytest.raises(KeyReused):
                    await charge(1, 6)
            else:
                assert await charge(1, 6) is Skipped.DONE

        asyncio.run(main())


class TestStates:
    def test_after_a_failure_another_payload_runs(self, claims: MemoryClaims) -> None:
        @idempotent(claims, key="order", name="charge", fingerprint=True)
        def charge(order: int, amount: int) -> int:
            if amount < 0:
                raise ValueError
            return amount

        with pytest.raises(ValueError):  # noqa: PT011 - raised above
            charge(1, -1)
        assert charge(1, 5) == 5
        with pytest.raises(KeyReused):
            charge(1, -1)

    def test_who_waits_for_a_call_with_another_payload_is_refused_when_that_is_done(self, claims: MemoryClaims) -> None:
        async def main() -> list[object]:
            began, may_end = asyncio.Event(), asyncio.Event()

            @idempotent(claims, key="order", name="charge", fingerprint=True)
            async def charge(order: int, amount: int) -> int:
                began.set()
                await may_end.wait()
                return amount

            first = asyncio.create_task(charge(1, 5))
            await began.wait()
            others = [asyncio.create_task(charge(1, amount)) for amount in (5, 6)]
            await asyncio.sleep(0)
            may_end.set()
            return list(await asyncio.gather(first, *others, return_exceptions=True))

        first, same, another = asyncio.run(main())
        assert first == same == 5
        assert isinstance(another, KeyReused)

    def test_keys_without_a_fingerprint_fit_all_and_those_with_one_are_read_without(self, claims: MemoryClaims) -> None:
        def charge(order: int, amount: int) -> int:
            return amount

        before = idempotent(claims, key="order", name="charge")(charge)
        since = idempotent(claims, key="order", name="charge", fingerprint=True)(charge)
        assert before(1, 5) == since(1, 6) == 5
        assert since(2, 5) == before(2, 6) == 5

    def test_what_is_kept_is_small_and_says_nothing(self, claims: MemoryClaims) -> None:
        f = idempotent(claims, key="order", name="f", fingerprint=True, on_done="marker")(lambda order, card: None)
        for order in (1, 2):
            f(order, card="4111111111111111" * 1000)
        kept = [value.result for value in claims.state.keys.values() if isinstance(value, Finished)]
        assert [len(each) for each in kept] == [23, 23]
        assert kept[0] != kept[1], "equal payloads of two keys"

    def test_a_result_that_the_store_refuses_leaves_the_fingerprint(
        self, claims: MemoryClaims, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        f = idempotent(claims, key="order", name="f", fingerprint=True)(lambda order, amount: "long" * 100)
        session = claims.calls.session()
        finish = type(session).finish

        def limited(self: Any, done: Any, results: Any = None) -> Any:
            if any(len(each) > 100 for each in results):
                raise StoreRefused("too large")
            return finish(self, done, results)

        monkeypatch.setattr(type(session), "finish", limited)
        for _ in range(2):
            with pytest.raises(ResultNotStored):
                f(1, 5)
        with pytest.raises(KeyReused):
            f(1, 6)


class TestBatch:
    def test_each_item_is_compared_with_that_of_its_key(self, claims: MemoryClaims) -> None:
        ran: list[Any] = []

        @idempotent(claims, key="id", name="load", batch=True, fingerprint=True, on_done="marker")
        def load(items: list[dict[str, int]]) -> None:
            ran.extend(items)

        assert load([{"id": 1, "n": 1}, {"id": 2, "n": 1}]) == [None, None]
        with pytest.raises(BatchFailed) as told:
            load([{"n": 1, "id": 1}, {"id": 2, "n": 2}, {"id": 3, "n": 1}])
        assert [(at, type(error)) for at, error in told.value.failures.items()] == [(1, KeyReused)]
        assert [each["id"] for each in ran] == [1, 2, 3]

    def test_two_items_of_one_call_as_well(self, claims: MemoryClaims) -> None:
        @idempotent(claims, key="id", name="load", batch=True, fingerprint="n")
        async def load(items: list[dict[str, int]]) -> list[int]:
            return [each["n"] for each in items]

        with pytest.raises(BatchFailed) as told:
            asyncio.run(load([{"id": 1, "n": 1}, {"id": 1, "n": 2}, {"id": 1, "n": 1}]))
        assert [(at, type(error)) for at, error in told.value.failures.items()] == [(1, KeyReused)]

    def test_an_item_that_cannot_be_compared_fails_alone(self, claims: MemoryClaims) -> None:
        load = idempotent(claims, key=lambda item: 1 if item == "a" else 2, name="load", batch=True, fingerprint=True)(
            lambda items: None
        )
        with pytest.raises(BatchFailed) as told:
            load(["a", Plain()])
        assert list(told.value.failures) == [1]
        assert load(["a"]) == [None]


class TestValues:
    def of(self, value: object) -> str:
        return ItemFingerprint("f", True)(value, "s:1")

    ALIKE: tuple[tuple[object, ...], ...] = (
        (
            {"a": 1, "b": [1, 2]},
            {"b": (1, 2), "a": 1},
            OrderedDict(b=[1, 2], a=1),
            MappingProxyType({"a": 1, "b": [1, 2]}),
        ),
        (Order(1, Decimal("1.50")), Model(id=1, total=Decimal("1.5")), Struct(1, Decimal("1.500"))),
        (Colour.RED, "red"),
        ({1, 2, 3}, frozenset({3, 2, 1})),
        (b"ab", bytearray(b"ab")),
        (5, np.int64(5)),
        (
            dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC),
            dt.datetime(2026, 1, 1, 13, tzinfo=dt.timezone(dt.timedelta(hours=1))),
        ),
    )

    @pytest.mark.parametrize("values", ALIKE, ids=str)
    def test_values_that_are_alike(self, values: tuple[object, ...]) -> None:
        assert len({self.of(value) for value in values}) == 1

    def test_values_that_differ(self) -> None:
        one = uuid.UUID(int=1)
        values: list[object] = [
            *(None, True, False, 0, 1, 1.0, 1.5, "1", "", b"1", b"", Decimal(1), Decimal("1e999999999"), float("nan")),
            *(
                [],
                {},
                [1],
                [[1]],
                ["1"],
                {"1": 1},
                {1: 1},
                {"a": {"b": 1}},
                {"a": {"b": 2}},
                {1},
                [[]],
                [None],
                "\ud800",
            ),
            *(10**5000, 10**5000 + 1, one, str(one), dt.date(2026, 1, 1), dt.datetime(2026, 1, 1), "2026-01-01"),  # noqa: DTZ001
            *(Decimal("0." + "1" * 40), Decimal("0." + "1" * 39 + "2"), dt.timedelta(1), dt.time(1)),
        ]
        assert len({self.of(value) for value in values}) == len(values)

    def test_a_record_is_what_it_holds_wherever_it_lies(self) -> None:
        first, again = (make_record(b'{"id": 1}', topic="orders", offset=offset) for offset in (1, 2))
        assert self.of(first) == self.of(again) == self.of(b'{"id": 1}')

    def test_what_has_no_value_is_named_by_its_type_alone(self, claims: MemoryClaims) -> None:
        f = idempotent(claims, key="order", name="f", fingerprint=True)(lambda order, what: None)
        cyclic: list[Any] = []
        cyclic.append(cyclic)
        for wrong, said in ((Plain(), "a Plain has no value"), ([object()], "a object has"), (cyclic, "too deeply")):
            with pytest.raises(SettingError, match=said) as told:
                f(1, wrong)
            assert "hunter2" not in str(told.value)
            assert told.value.__context__ is None or told.value.__suppress_context__
        assert claims.state.keys == {}

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ("", "name a parameter"),
            ((), "several"),
            (5, "give True"),
            (None, "give True"),
            ("tip", "no parameter 'tip'"),
        ],
    )
    def test_a_fingerprint_that_cannot_be_is_refused_where_it_stands(
        self, claims: MemoryClaims, wrong: Any, said: str
    ) -> None:
        with pytest.raises(SettingError, match=f"fingerprint=.*{said}"):
            idempotent(claims, key="order", name="f", fingerprint=wrong)(lambda order: None)

    def test_a_function_that_returns_a_coroutine_is_no_fingerprint(self, claims: MemoryClaims) -> None:
        async def later(order: int) -> int:
            return order

        with pytest.raises(SettingError, match="fingerprint"):
            idempotent(claims, key="order", name="f", fingerprint=later)(lambda order: None)
