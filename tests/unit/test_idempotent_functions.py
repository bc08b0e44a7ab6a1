"""Which functions can be guarded, and under which name."""

from __future__ import annotations

import asyncio
import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import MemoryClaims, RedisClaims, Skipped, idempotent
from holdfast.errors import SettingError
from holdfast.runtime import Machine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture
def claims() -> MemoryClaims:
    return MemoryClaims()


def of_the_module(order_id: int) -> None: ...


class Shop:
    def of_the_class(self, order_id: int) -> None: ...


class TestNames:
    def test_by_default_it_is_module_and_qualified_name(self, claims: MemoryClaims) -> None:
        idempotent(claims, key="order_id")(of_the_module)(1)
        idempotent(claims, key="order_id")(Shop.of_the_class)(Shop(), 1)
        assert [key.scope for key in claims.state.keys] == [
            f"{__name__}.of_the_module",
            f"{__name__}.Shop.of_the_class",
        ]

    def test_two_functions_do_not_meet_and_two_stores_do_not_either(self, claims: MemoryClaims) -> None:
        ran: list[str] = []

        def f(order_id: int) -> None:
            ran.append("f")

        def g(order_id: int) -> None:
            ran.append("g")

        for store in (claims, MemoryClaims()):
            idempotent(store, key="order_id", name="f")(f)(1)
            idempotent(store, key="order_id", name="g")(g)(1)
        assert ran == ["f", "g", "f", "g"]

    def test_a_second_function_of_one_name_is_refused_where_it_is_decorated(self, claims: MemoryClaims) -> None:
        idempotent(claims, key="order_id", name="billing")(lambda order_id: 1)
        with pytest.raises(SettingError, match=r"billing.*test_idempotent_functions.*another name="):
            idempotent(claims, key="order_id", name="billing")(lambda order_id: 2)

    def test_a_function_that_was_refused_has_not_taken_its_name(self, claims: MemoryClaims) -> None:
        with pytest.raises(SettingError, match="order_number"):
            idempotent(claims, key="order_number")(of_the_module)
        idempotent(claims, key="order_id")(of_the_module)

    def test_one_function_is_not_decorated_twice_under_its_own_name(self, claims: MemoryClaims) -> None:
        idempotent(claims, key="order_id")(of_the_module)
        with pytest.raises(SettingError, match="another name="):
            idempotent(claims, key="order_id")(of_the_module)

    def test_what_is_made_in_another_function_needs_a_name_and_may_then_be_made_again(
        self, claims: MemoryClaims
    ) -> None:
        def make(name: str | None) -> Any:
            @idempotent(claims, key="order_id", name=name, on_done="marker")
            def inner(order_id: int) -> None: ...

            return inner

        with pytest.raises(SettingError, match=r"<locals>.*give it name="):
            make(None)
        assert make("inner")(1) is None
        assert make("inner")(1) is Skipped.DONE

    @pytest.mark.parametrize("function", [lambda order_id: None, functools.partial(of_the_module)])
    def test_what_has_no_name_of_its_own_needs_one(self, claims: MemoryClaims, function: Any) -> None:
        with pytest.raises(SettingError, match="give it name="):
            idempotent(claims, key="order_id")(function)

    def test_in_a_script_every_module_is_called_main_so_a_name_is_needed(
        self, claims: MemoryClaims, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(of_the_module, "__module__", "__main__")
        with pytest.raises(SettingError, match="__main__"):
            idempotent(claims, key="order_id")(of_the_module)

    @pytest.mark.parametrize("name", ["", 5])
    def test_a_name_is_text(self, claims: MemoryClaims, name: Any) -> None:
        with pytest.raises(SettingError, match="name"):
            idempotent(claims, key="order_id", name=name)(of_the_module)


URL = "redis://localhost:6379/0"


def another_of_the_module(order_id: int) -> None: ...


class TestTwoStoreObjects:
    """Of one server and namespace in one process. None is connected: the address tells."""

    @pytest.mark.parametrize(
        ("url", "namespace"),
        [
            (URL, "holdfast"),
            ("redis://127.0.0.1", "holdfast"),
            ("redis://user:another@LOCALHOST", "holdfast"),
            *((f"redis+{kind}", "shop") for kind in ("sentinel://a:1,b:2/main/0", "cluster://a:1,b:2")),
        ],
    )
    def test_two_functions_of_one_name_are_refused(self, url: str, namespace: str) -> None:
        first = RedisClaims.from_url(URL if url.startswith("redis:") else url, namespace=namespace)
        second = RedisClaims.from_url(url.replace("a:1,b:2", "b:2,a:1"), namespace=namespace)
        kept = idempotent(first, key="order_id", name="billing")(of_the_module)
        with pytest.raises(SettingError, match=r"billing.*of_the_module.*at another store object.*another name="):
            idempotent(second, key="order_id", name="billing")(another_of_the_module)
        del kept

    @pytest.mark.parametrize(
        ("url", "settings"),
        [
            (URL, {"namespace": "another"}),
            ("redis://localhost:6379/1", {}),
            ("redis://localhost:6380/0", {}),
            ("redis://elsewhere:6379/0", {}),
            ("unix:///run/redis.sock", {}),
            ("redis+sentinel://localhost:6379/main/0", {}),
            (URL, {"runtime": Machine()}),
        ],
    )
    def test_of_other_keys_they_are_not(self, url: str, settings: dict[str, Any]) -> None:
        kept = idempotent(RedisClaims.from_url(URL), key="order_id", name="billing")(of_the_module)
        idempotent(RedisClaims.from_url(url, **settings), key="order_id", name="billing")(another_of_the_module)
        del kept

    @pytest.mark.parametrize("name", ["billing", None])
    def test_the_same_function_may_be_decorated_for_both(self, name: str | None) -> None:
        kept = [
            idempotent(RedisClaims.from_url(URL), key="order_id", name=name)(function)
            for function in (of_the_module, of_the_module)
        ]
        assert kept[0] is not kept[1]

    def test_a_function_that_nothing_can_call_any_more_has_no_name(self) -> None:
        def forgotten(order_id: int) -> object:
            return cycle

        cycle: list[object] = []
        cycle.append(idempotent(RedisClaims.from_url(URL), key="order_id", name="billing")(forgotten))
        cycle = []
        idempotent(RedisClaims.from_url(URL), key="order_id", name="billing")(of_the_module)

    def test_nor_has_one_whose_store_is_closed(self) -> None:
        store = RedisClaims.from_url(URL)
        kept = idempotent(store, key="order_id", name="billing")(of_the_module)
        store.close()
        idempotent(RedisClaims.from_url(URL), key="order_id", name="billing")(another_of_the_module)
        del kept


class TestTyped:
    """At a prompt, in a notebook: a cell that runs again makes its functions again."""

    CELL = """
@idempotent(claims, key="order_id", name="billing", on_done="marker")
def bill(order_id):
    return {answer}
"""

    def run(self, cell: str, number: int, scope: dict[str, Any]) -> None:
        exec(compile(cell, f"<ipython-input-{number}>", "exec"), scope)  # noqa: S102 - as a notebook does

    def scope(self, claims: object, **more: Any) -> dict[str, Any]:
        return {"__name__": "__main__", "idempotent": idempotent, "claims": claims, **more}

    @pytest.mark.parametrize("stores", [1, 2])
    @pytest.mark.parametrize("numbers", [(1, 1), (1, 2)], ids=["the same", "another"])
    def test_a_cell_may_run_again_as_it_was_or_edited(self, stores: int, numbers: tuple[int, int]) -> None:
        scope = self.scope(RedisClaims.from_url(URL, namespace="typed"))
        self.run(self.CELL.format(answer=1), numbers[0], scope)
        kept = scope["bill"]
        if stores == 2:
            scope["claims"] = RedisClaims.from_url(URL, namespace="typed")
        for answer in (1, 2):
            self.run(self.CELL.format(answer=answer), numbers[1], scope)
        assert scope["bill"] is not kept

    def test_so_may_a_file_that_is_run_from_there(self, claims: MemoryClaims) -> None:
        for answer in (1, 2):
            with pytest.MonkeyPatch.context() as prompt:
                prompt.setattr(sys, "ps1", ">>> ", raising=False)
                self.run(self.CELL.format(answer=answer), 1, self.scope(claims, __file__="shop.py"))

    @pytest.mark.parametrize("second", ["def refund(order_id): ...", "bill = lambda order_id: None"])
    def test_but_two_functions_do_not_share_a_name_there_either(self, claims: MemoryClaims, second: str) -> None:
        scope = self.scope(claims)
        self.run(self.CELL.format(answer=1), 1, scope)
        scope["make"] = idempotent(claims, key="order_id", name="billing")
        with pytest.raises(SettingError, match="another name="):
            self.run(f"{second}\nmake(globals().get('refund') or bill)", 1, scope)

    def test_nor_in_a_script(self, claims: MemoryClaims) -> None:
        scope = self.scope(claims, __file__="shop.py")
        self.run(self.CELL.format(answer=1), 1, scope)
        with pytest.raises(SettingError, match="another name="):
            self.run(self.CELL.format(answer=2), 1, scope)


class TestImportedAgain:
    SOURCE = """
from holdfast import idempotent
from shop_store import claims

@idempotent(claims, key="order_id")
def bill(order_id):
    return {answer}
"""

    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        (tmp_path / "shop_store.py").write_text("from holdfast import MemoryClaims\nclaims = MemoryClaims()\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        for name in ("shop", "shop_store"):  # another test's
            monkeypatch.delitem(sys.modules, name, raising=False)
        yield tmp_path
        for name in ("shop", "shop_store"):
            sys.modules.pop(name, None)

    def module(self, folder: Path, answer: int, before: str = "") -> None:
        (folder / "shop.py").write_text(before + self.SOURCE.format(answer=answer))
        importlib.invalidate_caches()

    @pytest.mark.parametrize("before", ["", "import os\n\n\n"], ids=["as it was", "edited"])
    def test_a_module_may_be_reloaded_and_keeps_its_keys(self, folder: Path, before: str) -> None:
        self.module(folder, 1)
        shop: Any = importlib.import_module("shop")
        assert shop.bill(1) == 1
        self.module(folder, 2, before)
        importlib.reload(shop)
        assert [shop.bill(1), shop.bill(2)] == [1, 2]

    def test_and_imported_anew(self, folder: Path) -> None:
        self.module(folder, 1)
        first: Any = importlib.import_module("shop")
        del sys.modules["shop"]
        second: Any = importlib.import_module("shop")
        assert first is not second
        assert [first.bill(1), second.bill(1)] == [1, 1]

    def test_but_may_not_hold_two_functions_of_one_name(self, folder: Path) -> None:
        self.module(folder, 1, self.SOURCE.format(answer=2))
        with pytest.raises(SettingError, match=r"shop\.bill"):
            importlib.import_module("shop")


class TestRefused:
    def test_generators_have_not_run_when_their_call_returns(self, claims: MemoryClaims) -> None:
        def generates(order_id: int) -> Iterator[int]:
            yield 1

        async def generates_too(order_id: int) -> AsyncIterator[int]:
            yield 1

        for function in (generates, generates_too, functools.partial(generates)):
            with pytest.raises(SettingError, match="let it return a list"):
                idempotent(claims, key="order_id", name="f")(function)

    def test_what_stands_above_another_decorator_that_belongs_above(self, claims: MemoryClaims) -> None:
        wrongs: list[Any] = [classmethod(lambda cls, order_id: None), staticmethod(of_the_module)]
        for wrong in wrongs:
            with pytest.raises(SettingError, match="below @classmethod"):
                idempotent(claims, key="order_id", name="f")(wrong)

    @pytest.mark.parametrize("wrong", [Shop, 5])
    def test_what_is_no_function(self, claims: MemoryClaims, wrong: Any) -> None:
        with pytest.raises(SettingError, match="decorate a function"):
            idempotent(claims, key="order_id", name="f")(wrong)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("on_done", "skip"),
            ("on_busy", "result"),
            ("wait_s", -1),
            ("wait_s", float("inf")),
            ("on_fenced", "ignore"),
            ("on_unconfirmed", "ignore"),
            ("store_down", "pause"),
        ],
    )
    def test_a_choice_that_is_none(self, claims: MemoryClaims, field: str, value: Any) -> None:
        choice: Any = {field: value}
        with pytest.raises(SettingError, match=field):
            idempotent(claims, key="order_id", name="f", **choice)

    def test_a_body_that_returns_what_has_not_run_yet_frees_its_key(self, claims: MemoryClaims) -> None:
        async def work() -> None: ...

        def made_of_it(order_id: int) -> Any:
            return work() if order_id == 1 else (each for each in [1])

        f = idempotent(claims, key="order_id", name="f")(made_of_it)
        for order_id in (1, 2):
            with pytest.raises(SettingError, match="has not run yet"):
                f(order_id)
        assert claims.state.keys == {}

    def test_so_does_an_async_function_that_returns_a_coroutine(self, claims: MemoryClaims) -> None:
        async def later() -> str:
            return "ran"

        @idempotent(claims, key="order_id", name="not-awaited", on_done="marker")
        async def ship(order_id: str) -> Any:
            return later() if order_id == "not yet" else await later()

        with pytest.raises(SettingError, match="has not run yet"):
            asyncio.run(ship("not yet"))
        assert asyncio.run(ship("run")) == "ran"

    def test_what_it_is_called_and_says_of_itself_stays(self, claims: MemoryClaims) -> None:
        guarded = idempotent(claims, key="order_id")(of_the_module)
        assert (guarded.__name__, guarded.__module__) == ("of_the_module", __name__)
