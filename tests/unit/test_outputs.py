"""What handlers send: kept with their records, replaced by a later attempt, and committed with whole batches."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BatchOf, Holdfast, MemoryClaims, Outputs, Record
from holdfast.adapters.kafka import KafkaSource, Transactions
from holdfast.adapters.kafka.transacting import names_member
from holdfast.errors import SettingError, StateError, Unretriable
from holdfast.plugin.engine.partition.made import Made
from holdfast.plugin.handling.outputs import Output, current_outputs, producing
from holdfast.records import Partition

if TYPE_CHECKING:
    from collections.abc import Callable

CONF = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}


class Ownership:
    def __init__(self) -> None:
        self.made = Made(threading.Lock())


def record(owner: Any, offset: int) -> Record:
    return Record(Partition("orders", 0), offset, b"k", b"", (), 0, owner)


def topics(made: Made, offset: int = 1_000) -> list[str]:
    return [each.topic for each in made.below(offset)]


def app(**how: Any) -> Holdfast:
    return Holdfast(KafkaSource(CONF, assignment="keep", transactions=Transactions(**how)), claims=None)


def test_a_call_that_fails_leaves_nothing_and_one_that_returns_all_it_has_sent_in_its_order() -> None:
    owner, out = Ownership(), Outputs()
    errors: list[Exception | None] = [None, ValueError("no")]

    def handle(_: Record) -> None:
        nonlocal out
        out = current_outputs()
        out.send("a", value=b"1")
        out.send("b", key="k", headers={"h": "x"})
        if errors and (error := errors.pop()) is not None:
            raise error

    called = producing(handle)
    with pytest.raises(ValueError, match="no"):
        called(record(owner, 3))
    assert topics(owner.made) == []
    called(record(owner, 3))
    assert owner.made.below(4) == [Output("a", None, b"1", ()), Output("b", b"k", None, [("h", b"x")])]
    assert owner.made.below(3) == []
    with pytest.raises(StateError, match="has returned"):
        out.send("c")


def test_what_a_coroutine_sends_is_its_own_though_others_run_meanwhile() -> None:
    owner = Ownership()

    async def handle(given: Record) -> None:
        await asyncio.sleep(0)
        current_outputs().send(f"t{given.offset}")

    async def both() -> None:
        called = producing(handle)
        await asyncio.gather(*(called(record(owner, offset)) for offset in (2, 1)))

    asyncio.run(both())
    assert topics(owner.made) == ["t1", "t2"]


def test_an_attempt_that_sends_nothing_takes_the_place_of_one_that_a_middleware_has_failed() -> None:
    owner = Ownership()
    producing(lambda _: current_outputs().send("a"))(record(owner, 0))
    producing(lambda _: None)(record(owner, 0))
    assert topics(owner.made) == []
    assert owner.made.bytes == 0


def test_a_batch_is_committed_as_a_whole_whatever_is_done_between() -> None:
    made = Made(threading.Lock())
    made.put([0, 1, 2], [Output("a", None, None)])
    made.put([3, 6], [Output("b", None, None)])
    made.put([4, 5, 8], [Output("c", None, None)])
    made.put([7], [Output("d", None, None)])
    assert [made.up_to(each) for each in range(10)] == [0, 0, 0, 3, 3, 3, 3, 3, 3, 9]
    assert topics(made, 3) == ["a"]
    assert topics(made, 9) == ["a", "b", "c", "d"]
    made.forget(3)
    assert topics(made, 9) == ["b", "c", "d"]
    made.forget(9)
    assert made.bytes == 0


def test_what_a_handler_makes_that_was_given_up_does_not_come_beside_its_dead_letter() -> None:
    made = Made(threading.Lock())
    made.put([5], [Output("early", None, None)])
    made.put_letter(5, Output("dlq", None, None))
    made.put([5], [Output("late", None, None)])
    assert topics(made) == ["dlq"]


@pytest.mark.parametrize(
    "send",
    [
        lambda out: out.send(""),
        lambda out: out.send(7),
        lambda out: out.send("a", value={"a": 1}),
        lambda out: out.send("a", key=7),
        lambda out: out.send("a", headers={7: b""}),
        lambda out: out.send("a", headers={"h": 7}),
    ],
)
def test_what_cannot_be_written_is_refused_at_once(send: Callable[[Outputs], None]) -> None:
    out = Outputs()
    with pytest.raises(Unretriable, match=r"out\.send"):
        send(out)
    assert out.sent == []


def test_handlers_get_them_by_annotation_or_by_the_name_out() -> None:
    def by_type(record: Record, *, writes: Outputs) -> None: ...

    def by_name(record, *, out) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001

    def neither(record: Record) -> None: ...

    for handle, takes in ((by_type, True), (by_name, True), (neither, False)):
        made = app()
        made.handler("orders")(handle)
        assert made.parts.routes.handlers[0].outputs is takes


def test_wrong_use_is_one_sentence_when_it_is_registered() -> None:
    def handle(record: Record, *, out: Outputs) -> None: ...

    def letters(letter: object, *, out: Outputs) -> None: ...

    plain = Holdfast(KafkaSource(CONF, assignment="keep"), claims=None)
    with pytest.raises(SettingError, match=r"transactions=Transactions\(\)"):
        plain.handler("orders")(handle)
    with pytest.raises(SettingError, match="only handlers get Outputs"):
        app().on_dead_letter(letters)
    with pytest.raises(SettingError, match="known by its position"):
        app().handler("orders", key="order_id")(handle)
    with pytest.raises(SettingError, match="its size is known"):
        app().handler("orders", dead_letter="dlq", letter_too_large="without_value")(handle)
    with pytest.raises(SettingError, match="claims=None"):
        Holdfast(KafkaSource(CONF, assignment="keep", transactions=Transactions()), claims=MemoryClaims())
    app().handler("orders", batch=BatchOf())(handle)


def test_settings_that_contradict_transactions_are_refused_before_there_is_a_client() -> None:
    with pytest.raises(SettingError, match=r"isolation\.level.*read_committed"):
        KafkaSource({**CONF, "isolation.level": "read_uncommitted"}, transactions=Transactions())
    with pytest.raises(SettingError, match="use Transactions"):
        KafkaSource(CONF, transactions=True)  # type: ignore[arg-type]  # what is refused
    with pytest.raises(SettingError, match="interval_s"):
        Transactions(interval_s=-1)
    for name in ("transactional.id", "acks", "bootstrap.servers", "group.id", "linger.mss"):
        with pytest.raises(SettingError, match=name.replace(".", r"\.")):
            Transactions(producer={name: "1"})
    Transactions(producer={"compression.type": "lz4"})


def test_metadata_of_who_is_no_member_commits_nothing() -> None:
    assert not names_member(b"CGMDv2:\xff\xff\xff\xffg\x00\x00\x01")
    assert not names_member(b"CGMDv2:\x00\x00\x00\x00g\x00m-1\x00\x01")
    assert names_member(b"CGMDv2:\x07\x00\x00\x00g\x00m-1\x00\x01")
