"""`on_dead_letter`: told of each letter that is there; whatever it does, nothing is stopped and nothing lost."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, Letter, MemoryClaims, Settings, Unretriable
from holdfast.errors import DeadLetterError, SettingError, StateError
from holdfast.plugin.engine.record import letter_hooks
from holdfast.plugin.events import DeadLettered, LetterHookFailed
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.engine import Bench, Letters, Member, numbered, partition
from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator


def refuse(record: Any) -> None:
    raise Unretriable("no such customer")


class Group:
    """A member whose handler fails for good, and its letters."""

    def __init__(self, bench: Bench, **handling: Any) -> None:
        self.bench, self.letters = bench, Letters(bench.changed)
        self.member: Member = bench.member(
            handler=handling.pop("handler", refuse),
            settings=Settings(workers=1, commit_interval_s=0.01),  # several send letters in any order
            dead_letters=self.letters,
            dead_letter="dlq",
            dead_letter_limit=None,
            start=False,
            **handling,
        )
        self.app = self.member.app

    def play(self, records: int = 1, *, stop: bool = True) -> None:
        self.bench.broker.produce("orders", 0, *numbered("r", range(records)))
        self.member.start()
        self.bench.wait_committed(records)
        if stop:
            self.member.stop()

    @property
    def failed(self) -> list[LetterHookFailed]:
        return self.member.told(LetterHookFailed)


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench() as bench:
        yield bench


def test_a_plain_one_is_told_when_the_letter_is_there_and_not_before(bench: Bench) -> None:
    group = Group(bench)
    group.letters.fail(DeadLetterError("not yet"))
    told: list[tuple[Letter, bool]] = []
    group.app.on_dead_letter(lambda letter: told.append((letter, letter in group.letters.sent)))
    group.play(2)
    assert sorted((letter.record.offset, there) for letter, there in told) == [(0, True), (1, True)]
    letter = told[0][0]
    assert (letter.topic, letter.handler, letter.attempts, letter.group) == ("dlq", "handle", 1, "g")
    assert isinstance(letter.reason, Unretriable)


def test_one_that_fails_on_each_letter_writes_few_and_short_lines(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    group = Group(bench)

    @group.app.on_dead_letter
    def page(_: Letter) -> None:
        raise ValueError("4711" * 10_000)

    group.play(20)
    assert len(group.failed) == 20
    lines = [each.getMessage().partition(".page ")[2] for each in caplog.records if each.levelno == logging.ERROR]
    assert [each.partition(" with ")[0] for each in lines if each] == ["failed on a dead letter", "has failed"]
    assert caplog.text.count("4711" * 2_000) == 0


def test_a_coroutine_runs_in_the_loop_of_the_handlers_and_both_get_resources(bench: Bench) -> None:
    loops: list[Any] = []

    async def handle(record: Any) -> None:
        loops.append(asyncio.get_running_loop())
        refuse(record)

    bench_group = Group(bench, handler=handle)

    @bench_group.app.resource
    def chat() -> Iterator[str]:
        yield "a chat"

    @bench_group.app.on_dead_letter
    async def tell(letter: Letter, *, chat: str) -> None:
        await asyncio.sleep(0)
        loops.append((asyncio.get_running_loop(), chat))

    @bench_group.app.on_dead_letter
    def tell_too(letter: Letter, *, chat: str) -> None:
        loops.append(chat)

    bench_group.play()
    assert loops[0] in [each[0] for each in loops if isinstance(each, tuple)]
    assert "a chat" in loops


def test_without_async_handlers_a_coroutine_is_told_too(bench: Bench) -> None:
    group, told = Group(bench), []

    @group.app.on_dead_letter
    async def tell(letter: Letter) -> None:
        told.append(letter.record.offset)

    group.play()
    assert told == [0]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("error", [ValueError("no network"), SystemExit(3), asyncio.CancelledError()])
def test_what_it_raises_is_an_event_and_the_record_is_settled(
    bench: Bench, error: BaseException, *, is_async: bool
) -> None:
    group, others = Group(bench), []

    def tell(letter: Letter) -> None:
        raise error

    async def tell_later(letter: Letter) -> None:
        raise error

    group.app.on_dead_letter(tell_later if is_async else tell)
    group.app.on_dead_letter(lambda letter: others.append(letter.record.offset))
    group.play(3)
    assert others == [0, 1, 2]
    assert [(each.partition, each.offset, each.handler) for each in group.failed] == [
        (partition(), offset, "handle") for offset in range(3)
    ]
    assert type(error).__name__ in group.failed[0].error
    assert "tell" in group.failed[0].hook


def test_one_that_hides_a_coroutine_is_told_of(bench: Bench) -> None:
    async def tell(letter: Letter) -> None: ...

    def hides(letter: Letter) -> Any:
        return tell(letter)

    group = Group(bench)
    group.app.on_dead_letter(hides)
    group.play()
    assert "register the `async def` itself" in group.failed[0].error


@pytest.mark.parametrize("is_async", [False, True])
def test_one_that_hangs_holds_nothing_up_and_its_calls_are_bounded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, is_async: bool
) -> None:
    monkeypatch.setattr(letter_hooks, "_MOST", 3)
    group, goes_on = Group(bench), threading.Event()
    told: list[int] = []

    def tell(letter: Letter) -> None:
        goes_on.wait(60)
        told.append(letter.record.offset)

    async def tell_later(letter: Letter) -> None:
        await asyncio.to_thread(goes_on.wait, 60)
        told.append(letter.record.offset)

    group.app.on_dead_letter(tell_later if is_async else tell)
    group.play(5, stop=False)  # all are committed, while it hangs
    assert told == []
    assert len(group.member.told(DeadLettered)) == 5
    bench.wait(lambda: len(group.failed) == 2)
    assert "3 of its calls have not ended" in group.failed[0].error
    goes_on.set()
    group.member.stop()  # waits for those
    assert len(told) == 3  # several threads send letters: any three of them
    assert sorted([*told, *(each.offset for each in group.failed)]) == [0, 1, 2, 3, 4]


@pytest.fixture
def closing_takes_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.plugin.engine.lifecycle._CLOSE_S", 3600.0)


@pytest.mark.usefixtures("closing_takes_what_it_takes")
def test_a_second_stop_does_not_wait_for_one_that_hangs(bench: Bench) -> None:
    group, goes_on, called = Group(bench), threading.Event(), threading.Event()

    @group.app.on_dead_letter
    def tell(letter: Letter) -> None:
        called.set()
        goes_on.wait()

    group.play(stop=False)
    assert called.wait(PATIENCE_S)
    group.app.stop()
    group.member.stop()
    goes_on.set()


@pytest.mark.usefixtures("closing_takes_what_it_takes")
def test_those_that_have_not_ended_when_the_app_leaves_are_counted_in_the_log(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    group, goes_on, called = Group(bench), threading.Event(), threading.Event()
    told: list[int] = []

    @group.app.on_dead_letter
    def tell(letter: Letter) -> None:
        called.set()
        goes_on.wait()
        told.append(letter.record.offset)

    group.play(3, stop=False)
    assert called.wait(PATIENCE_S)
    group.app.stop()
    group.member.stop()  # the second one: it does not wait
    assert "leaving without waiting for 3 calls of on_dead_letter that have not ended" in caplog.text
    assert told == []
    goes_on.set()


class TestRegistration:
    @pytest.fixture
    def app(self) -> Holdfast:
        return Holdfast(MemoryPartitionedSource(MemoryBroker(orders=1)), claims=MemoryClaims())

    def test_it_is_a_function_of_one_argument(self, app: Holdfast) -> None:
        def hook() -> None: ...

        def yields(letter: Letter) -> Iterator[None]:
            yield

        def wants(letter: Letter, *, chat: str) -> None: ...

        refused: list[tuple[Any, str]] = [
            (hook, "called with one argument, the letter"),
            (wants, "called with one argument, the letter"),
            (yields, "it has a yield"),
            ("tell", "register a function"),
        ]
        for each, remedy in refused:
            with pytest.raises(SettingError, match=remedy):
                app.on_dead_letter(each)

    def test_not_when_the_app_has_begun(self, bench: Bench) -> None:
        group = Group(bench)
        group.play(stop=False)
        with pytest.raises(StateError, match="before run"):
            group.app.on_dead_letter(lambda letter: None)
