"""Which handler gets which topic."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BatchOf, Holdfast
from holdfast.errors import SettingError, SourceFatal
from holdfast.plugin.handlers import Handler, Routes
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.engine import Letters

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from holdfast.records import Record


def handler(name: str, *topics: str, scope: str | None = None) -> Handler:
    return Handler(name=name, call=print, topics=topics, scope=scope)


def routes(*handlers: Handler) -> Routes:
    made = Routes()
    for each in handlers:
        made.add(each)
    return made


def found(made: Routes, topic: str) -> str | None:
    one = made.find(topic)
    return None if one is None else one.name


class TestRoutes:
    def test_an_exact_name_wins_over_a_pattern_that_came_first(self) -> None:
        made = routes(handler("pattern", "^orders"), handler("exact", "orders.eu"))
        assert found(made, "orders.eu") == "exact"
        assert found(made, "orders.us") == "pattern"

    def test_of_several_patterns_the_first_wins(self) -> None:
        made = routes(handler("a", r"^orders\..*"), handler("b", r"^orders\.eu"))
        assert found(made, "orders.eu") == "a"

    def test_a_topic_of_nobody_has_none(self) -> None:
        made = routes(handler("a", "orders"), handler("b", "^pay.*"))
        assert found(made, "orders2") is None
        assert found(made, "repay") is None

    def test_what_was_looked_for_before_is_looked_for_anew_after_a_registration(self) -> None:
        made = routes(handler("a", "orders"))
        assert found(made, "payments") is None
        made.add(handler("b", "payments"))
        assert found(made, "payments") == "b"

    def test_all_topics_are_subscribed_to(self) -> None:
        assert routes(handler("a", "orders", "^x"), handler("b", "pay")).topics == ["orders", "^x", "pay"]

    def test_two_handlers_of_one_name_or_topic_are_refused(self) -> None:
        made = routes(handler("a", "orders"))
        with pytest.raises(SettingError, match=r"^name='a'"):
            made.add(handler("a", "payments"))
        with pytest.raises(SettingError, match=r"^topics='orders'"):
            made.add(handler("b", "orders"))
        assert made.topics == ["orders"]

    def test_no_topic_and_a_pattern_that_does_not_compile_are_refused_and_leave_nothing_behind(self) -> None:
        made = routes()
        with pytest.raises(SettingError, match="at least one topic"):
            made.add(handler("a"))
        with pytest.raises(SettingError, match="does not compile"):
            made.add(handler("a", "orders", "^["))
        assert made.handlers == []
        assert found(made, "orders") is None


class TestOwnLetters:
    """What a handler could not handle does not come back to it as its own dead letter."""

    def app(self) -> Holdfast:
        source = MemoryPartitionedSource(MemoryBroker(orders=1))
        source.fail("open", SourceFatal("opened"))
        return Holdfast(source, claims=None, dead_letters=Letters(threading.Condition()))

    def test_a_pattern_that_matches_its_dead_letter_topic_is_refused_at_the_start(self) -> None:
        app = self.app()
        app.handler(r"^orders\..*", dead_letter="orders.dlq", name="pay")(print)
        with pytest.raises(SettingError, match=r"dead_letter='orders.dlq'.*pay would get its own.*\^orders"):
            app.run()

    @pytest.mark.parametrize("letters", ["dlq.orders", "%DLQ%"])
    def test_one_that_does_not_is_not(self, letters: str) -> None:
        app = self.app()
        app.handler("^[^d]", dead_letter=letters)(print)
        with pytest.raises(SourceFatal, match="opened"):
            app.run()

    def test_letters_that_come_back_by_way_of_others_are_refused_too(self) -> None:
        app = self.app()
        app.handler("orders", dead_letter="orders.dlq", name="pay")(print)
        app.handler("orders.dlq", dead_letter="orders.last", name="look")(print)
        app.handler("orders.last", dead_letter="orders.dlq", name="again")(print)
        refused = (
            r"dead_letter='orders.dlq'.*a record on which look and again fail would go round for ever.*let again name"
        )
        with pytest.raises(SettingError, match=refused):
            app.run()

    def test_letters_that_another_handler_takes_are_its_matter(self) -> None:
        app = self.app()
        app.handler(r"^orders\..*", dead_letter="orders.dlq", name="pay")(print)
        app.handler("orders.dlq", name="look")(print)
        with pytest.raises(SourceFatal, match="opened"):
            app.run()


class TestScopes:
    def test_by_default_a_key_is_one_of_its_group_and_topic(self) -> None:
        assert handler("a", "orders").scope_of("g", "orders") == "g/orders"

    def test_a_name_makes_it_the_same_everywhere(self) -> None:
        named = handler("a", "orders", scope="billing")
        assert named.scope_of("g", "orders") == named.scope_of("h", "payments") == "billing"


class TestKinds:
    def test_async_functions_methods_and_callables_are_told_from_plain_ones(self) -> None:
        async def function(_: Record) -> None: ...

        class Callable:
            async def __call__(self, _: Record) -> None: ...

            async def method(self, _: Record) -> None: ...

            def plain(self, _: Record) -> None: ...

        kinds: list[tuple[Any, bool]] = [
            (function, True),
            (Callable(), True),
            (Callable().method, True),
            (functools.partial(function), True),
            (Callable().plain, False),
            (print, False),
            (functools.partial(print), False),
        ]
        for call, is_async in kinds:
            assert Handler(name="h", call=call, topics=("t",)).is_async is is_async, call


class TestRegistering:
    def app(self) -> Holdfast:
        return Holdfast(MemoryPartitionedSource(MemoryBroker(orders=1)), claims=None)

    def test_a_registered_function_stays_as_it_was(self) -> None:
        def handle(_: object) -> int:
            return 3

        assert self.app().handler("orders")(handle) is handle

    def test_the_name_is_the_functions_own_with_its_module(self) -> None:
        app = self.app()

        @app.handler("orders")
        def handle(_: object) -> None: ...

        [one] = app._routes.handlers
        assert one.name == f"{__name__}.{handle.__qualname__}"

    def test_a_callable_without_a_name_is_asked_for_one(self) -> None:
        with pytest.raises(SettingError, match=r"^name="):
            self.app().handler("orders")(functools.partial(print))

    @pytest.mark.parametrize("key", ["", "order..id", 3])
    def test_a_key_that_is_none_is_refused(self, key: Any) -> None:
        with pytest.raises(SettingError, match=r"^key="):
            self.app().handler("orders", key=key)(print)

    @pytest.mark.parametrize(
        ("call", "told"),
        [
            (lambda: None, "bill()"),
            (
                lambda record, amount: None,
                "bill(record, amount)",
            ),
            (lambda *, record: None, "bill(*, record)"),
        ],
    )
    def test_a_function_that_cannot_be_called_with_a_record_is_told_at_once(self, call: Any, told: str) -> None:
        with pytest.raises(SettingError) as caught:
            self.app().handler("orders", name="bill")(call)
        one = f"handler='{told}': a handler is called with one argument, the record"
        assert (
            str(caught.value).removesuffix(
                ", and resources as keyword-only ones: register them above it, with @app.resource"
            )
            == one
        )

    def test_of_a_batch_handler_it_is_the_list(self) -> None:
        with pytest.raises(SettingError, match="one argument, the list of records"):
            self.app().handler("orders", name="bill", batch=BatchOf())(lambda: None)

    @pytest.mark.parametrize("call", [lambda record, amount=1: None, lambda *records: None, [].extend, [].append, max])
    def test_what_can_be_called_with_one_is_taken(self, call: Any) -> None:
        assert self.app().handler("orders", name="bill")(call) is call

    def test_a_generator_would_run_nothing_and_is_refused(self) -> None:
        def handle(record: object) -> Iterator[object]:
            yield record

        async def handle_later(record: object) -> AsyncIterator[object]:
            yield record

        for each in (handle, handle_later):
            with pytest.raises(SettingError, match="it has a yield"):
                self.app().handler("orders", name="bill")(each)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("batch", 100),
            ("retry", 5),
            ("timeout_s", "30"),
            ("timeout_s", True),
            ("timeout_s", float("nan")),
            ("dead_letter", 5),
            ("dead_letter", ""),
            ("dead_letter_limit", 100),
            ("scope", 5),
        ],
    )
    def test_a_value_of_another_type_is_refused_when_the_handler_is_registered(self, name: str, value: object) -> None:
        with pytest.raises(SettingError) as caught:
            self.app().handler("orders", name="bill", **{"dead_letter": "orders.dlq", name: value})(print)  # type: ignore[call-overload]
        assert caught.value.field == name

    @pytest.mark.parametrize("topics", [5, ["orders", 5], "", [""]])
    def test_topics_are_text(self, topics: Any) -> None:
        with pytest.raises(SettingError) as caught:
            self.app().handler(topics, name="bill")(print)
        assert caught.value.field == "topics"

    def test_a_decorator_without_its_topics_is_told(self) -> None:
        with pytest.raises(SettingError, match="name the topics"):
            self.app().handler(print)  # type: ignore[call-overload]
