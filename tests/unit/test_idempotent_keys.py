"""The key of a call, however it is called."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from starlette.requests import Request

from holdfast import BatchFailed, MemoryClaims, Skipped, idempotent
from holdfast.errors import KeyMissing, SettingError


@pytest.fixture
def claims() -> MemoryClaims:
    return MemoryClaims()


@dataclass
class Order:
    id: object
    inner: object = None


def keys_of(claims: MemoryClaims) -> list[str]:
    return [each.key for each in claims.state.keys]


class TestSpelling:
    def test_position_name_and_default_give_the_same_key(self, claims: MemoryClaims) -> None:
        ran = []

        @idempotent(claims, key="order_id", name="f")
        def f(amount: int = 1, order_id: str = "o1", *, note: str = "") -> None:
            ran.append(order_id)

        f()
        f(7, "o1")
        f(order_id="o1", amount=3)
        f(2, order_id="o1", note="x")
        f(2, "o2")
        assert ran == ["o1", "o2"]

    @pytest.mark.parametrize("order", [{"id": 4711}, Order(4711)], ids=["of a dict", "of an object"])
    def test_a_path_leads_into_an_argument(self, claims: MemoryClaims, order: object) -> None:
        idempotent(claims, key="order.id", name="f")(lambda order: None)(order)
        assert keys_of(claims) == ["n:4711"]

    def test_a_path_leads_through_both(self, claims: MemoryClaims) -> None:
        f = idempotent(claims, key="order.inner.id", name="f")(lambda order: None)
        f(Order(1, {"id": "a"}))
        f({"inner": Order("b")})
        assert keys_of(claims) == ["s:a", "s:b"]

    def test_a_function_gets_what_the_function_gets_with_its_defaults(self, claims: MemoryClaims) -> None:
        @idempotent(claims, key=lambda a, b, *, c: f"{a}-{b}-{c}", name="f")
        def f(a: int, b: int = 2, *, c: int = 3) -> None: ...

        f(1)
        f(b=2, a=1, c=3)
        f(1, 5)
        assert keys_of(claims) == ["s:1-2-3", "s:1-5-3"]

    def test_a_name_may_be_one_of_those_that_the_function_takes_as_they_come(self, claims: MemoryClaims) -> None:
        f = idempotent(claims, key="order_id", name="f")(lambda **fields: None)
        f(order_id=1, x=2)
        with pytest.raises(KeyMissing):
            f(x=2)
        assert keys_of(claims) == ["n:1"]

    @pytest.mark.parametrize(
        ("key", "found"),
        [
            ("request.headers.idempotency-key", "s:k1"),
            ("request.path_params.order", "s:4711"),
            ("request.query_params.page", "s:2"),
            ("request.state.tenant", "s:acme"),
            ("request.method", "s:POST"),
            ("request.type", "s:http"),
        ],
    )
    def test_a_web_request_is_an_object_though_it_is_a_mapping_too(
        self, claims: MemoryClaims, key: str, found: str
    ) -> None:
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "query_string": b"page=2",
            "headers": [(b"idempotency-key", b"k1")],
            "path_params": {"order": "4711"},
            "state": {"tenant": "acme"},
        }
        idempotent(claims, key=key, name="f")(lambda request: None)(Request(scope))
        assert keys_of(claims) == [found]

    def test_fields_of_a_dict_come_before_what_its_class_has(self, claims: MemoryClaims) -> None:
        class Event(dict[str, Any]):
            """As of a webhook's library."""

            @property
            def id(self) -> str:
                return "the class's"

        f = idempotent(claims, key="event.id", name="f")(lambda event: None)
        f(Event(id="a"))
        f(Event())
        f({"id": "b"})
        with pytest.raises(KeyMissing, match=r"no 'event\.id' in it"):
            f({"items": 1})
        assert keys_of(claims) == ["s:a", "s:the class's", "s:b"]

    @pytest.mark.parametrize("number", [np.int64(4711), np.uint8(7)])
    def test_whole_numbers_of_numpy_are_whole_numbers(self, claims: MemoryClaims, number: Any) -> None:
        f = idempotent(claims, key="order_id", name="f", on_done="marker")(lambda order_id: None)
        assert [f(number), f(int(number))] == [None, Skipped.DONE]

    @pytest.mark.parametrize("wrong", [np.float64(1), np.bool_(1), np.array([1]), np.array(1)])
    def test_other_values_of_numpy_are_no_keys(self, claims: MemoryClaims, wrong: Any) -> None:
        with pytest.raises(KeyMissing, match="its key is of type"):
            idempotent(claims, key="order_id", name="f")(lambda order_id: None)(wrong)

    def test_methods_class_methods_and_static_methods(self, claims: MemoryClaims) -> None:
        class Shop:
            ran: list[str] = []  # noqa: RUF012 - shared on purpose

            @idempotent(claims, key="order_id", name="a")
            def a(self, order_id: int) -> None:
                self.ran.append("a")

            @classmethod
            @idempotent(claims, key="order_id", name="b")
            def b(cls, order_id: int) -> None:
                cls.ran.append("b")

            @staticmethod
            @idempotent(claims, key="order_id", name="c")
            def c(order_id: int) -> None:
                Shop.ran.append("c")

            @idempotent(claims, key="id", name="d", batch=True)
            def d(self, orders: list[dict[str, int]]) -> None:
                self.ran.extend("d" for _ in orders)

        for _ in range(2):
            Shop().a(1)
            Shop.a(Shop(), order_id=1)
            Shop.b(order_id=1)
            Shop().b(1)
            Shop.c(1)
            Shop().d([{"id": 1}, {"id": 2}, {"id": 1}])
        assert Shop.ran == ["a", "b", "c", "d", "d"]

    def test_partials_and_objects_that_can_be_called(self, claims: MemoryClaims) -> None:
        ran = []

        class Caller:
            def __call__(self, order_id: int) -> None:
                ran.append(order_id)

        def f(x: str, order_id: int) -> None:
            ran.append(order_id)

        one = idempotent(claims, key="order_id", name="a")(Caller())
        two = idempotent(claims, key="order_id", name="b")(functools.partial(f, "x"))
        for each in (one, two):
            each(1)
            each(order_id=1)
        assert ran == [1, 1]

    def test_a_call_that_does_not_fit_the_function_fails_as_it_would(self, claims: MemoryClaims) -> None:
        f = idempotent(claims, key="order_id", name="f")(lambda order_id: None)
        with pytest.raises(TypeError):
            f()  # type: ignore[call-arg]
        assert keys_of(claims) == []


class TestTypes:
    def test_text_and_number_differ_and_bytes_are_text_where_they_can_be(self, claims: MemoryClaims) -> None:
        f = idempotent(claims, key="order_id", name="f")(lambda order_id: None)
        for order_id in (1, "1", b"1", b"\xff", -5, 10**30):
            f(order_id)
        assert keys_of(claims) == ["n:1", "s:1", "x:ff", "n:-5", f"n:{10**30}"]

    @pytest.mark.parametrize("order_id", [None, "", b"", True, 1.5, [1], {"a": 1}, object()])
    def test_what_is_no_key_is_refused_and_nothing_runs(self, claims: MemoryClaims, order_id: object) -> None:
        ran: list[object] = []
        f = idempotent(claims, key="order_id", name="shop.f")(_appends(ran))
        with pytest.raises(KeyMissing, match=r"shop\.f.*a key is text"):
            f(order_id)
        assert ran == []
        assert keys_of(claims) == []

    @pytest.mark.parametrize("order", [{}, {"inner": {}}, Order(1), None, 5, "secret"])
    def test_a_path_that_leads_nowhere_says_so_without_the_content(self, claims: MemoryClaims, order: object) -> None:
        f = idempotent(claims, key="order.inner.number", name="f")(lambda order: None)
        with pytest.raises(KeyMissing) as caught:
            f(order)
        assert "secret" not in str(caught.value)

    def test_an_error_of_a_key_function_passes_as_it_is(self, claims: MemoryClaims) -> None:
        f = idempotent(claims, key=lambda order: order["id"], name="f")(lambda order: None)
        with pytest.raises(KeyError):
            f({})


class TestBatch:
    def test_an_item_without_a_key_fails_alone(self, claims: MemoryClaims) -> None:
        ran: list[Any] = []
        f: Any = idempotent(claims, key="id", name="f", batch=True, on_done="marker")(_appends(ran))
        with pytest.raises(BatchFailed) as caught:
            f([{"id": 1}, {}, {"id": 2}, {"id": None}])
        assert {position: type(error) for position, error in caught.value.failures.items()} == {
            1: KeyMissing,
            3: KeyMissing,
        }
        assert ran == [[{"id": 1}, {"id": 2}]]
        assert f([{"id": 1}, {"id": 2}]) == [Skipped.DONE, Skipped.DONE]

    def test_an_item_may_be_its_own_key(self, claims: MemoryClaims) -> None:
        @idempotent(claims, key=lambda item: item, name="f", batch=True)
        def f(items: list[str], *, double: bool = True) -> list[str]:
            return items

        assert f(["a", "b", "a"], double=False) == ["a", "b", "a"]
        assert f(items=["a"]) == ["a"]

    @pytest.mark.parametrize("named", [[1, 2], [5], [-1], []])
    def test_positions_that_are_not_of_the_bodys_own_list_fail_all_that_it_was_given_and_no_other(
        self, claims: MemoryClaims, named: list[int]
    ) -> None:
        """The call's list is longer: handed on, they would name items that did not fail, and hide those that did."""
        failed = BatchFailed(dict.fromkeys(named, ValueError("the database is away")))
        errors: list[BatchFailed | None] = [None, failed, None]

        @idempotent(claims, key=lambda item: item, name="f", batch=True, on_done="marker")
        def f(_: list[str]) -> None:
            if (error := errors.pop()) is not None:
                raise error

        f(["a", "b"])
        with pytest.raises(BatchFailed) as caught:
            f(["a", "b", "c", "d"])
        assert caught.value.failures == {2: failed, 3: failed}
        assert f(["c", "d"]) == [None, None]

    def test_so_do_those_of_a_list_in_which_keys_repeat(self, claims: MemoryClaims) -> None:
        failed = BatchFailed({2: ValueError("counted from 1")})

        @idempotent(claims, key=lambda item: item, name="f", batch=True, on_done="marker")
        def f(_: list[str]) -> None:
            raise failed

        with pytest.raises(BatchFailed) as caught:
            f(["a", "a", "b"])
        assert caught.value.failures == dict.fromkeys(range(3), failed)

    def test_a_function_without_a_place_for_the_items_is_refused(self, claims: MemoryClaims) -> None:
        for function in (lambda: None, lambda *, items: None, lambda self: None):
            with pytest.raises(SettingError, match="list of items"):
                idempotent(claims, key="id", name="f", batch=True)(function)


class TestRefused:
    @pytest.mark.parametrize("key", ["", ".", "order_id.", ".id", 5, None])
    def test_what_names_no_key(self, claims: MemoryClaims, key: Any) -> None:
        with pytest.raises(SettingError, match="key"):
            idempotent(claims, key=key, name="f")(lambda order_id: None)

    def test_a_parameter_that_the_function_does_not_have(self, claims: MemoryClaims) -> None:
        with pytest.raises(SettingError, match=r"'order_id'.*it has: order, args"):
            idempotent(claims, key="order_id", name="f")(lambda order, *args: None)
        with pytest.raises(SettingError):
            idempotent(claims, key="args", name="f")(lambda order, *args: None)


def _appends(ran: list[Any]) -> Any:
    def append(order_id: object) -> None:
        ran.append(order_id)

    return append
