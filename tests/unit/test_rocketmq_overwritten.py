"""Offsets that somebody else's commit has replaced are seen, whoever has made the commit that was replaced."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

from holdfast.adapters.rocketmq.offsets import Offsets
from holdfast.records import Partition
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

Q0 = Partition("orders", 0, "a")


class Broker:
    """Answers at once."""

    def __init__(self) -> None:
        self.offsets: dict[Partition, int] = {}

    def begin_query_offset(
        self, queue: Partition, group: str, on_answer: Callable[[int | None], None], *, timeout_s: float
    ) -> None:
        on_answer(self.offsets.get(queue))

    def begin_commit(
        self, queue: Partition, group: str, offset: int, on_answer: Callable[[None], None], *, timeout_s: float
    ) -> None:
        self.offsets[queue] = offset
        on_answer(None)


def made() -> tuple[Broker, Offsets]:
    broker = Broker()
    return broker, Offsets(cast("Any", broker), "g", threading.Condition())


def test_of_a_queue_that_this_member_has_committed() -> None:
    broker, offsets = made()
    offsets.commit(Q0, 7)
    broker.offsets[Q0] = 3
    offsets.look(Deadline(1.0))
    assert list(offsets.overwritten) == [(Q0, 3)]


def test_of_a_queue_that_came_with_everything_handled_so_that_nothing_is_to_be_committed() -> None:
    broker, offsets = made()
    broker.offsets[Q0] = 7
    offsets.committed_of_some([Q0], Deadline(1.0))
    offsets.look(Deadline(1.0))
    assert not offsets.overwritten
    broker.offsets[Q0] = 3
    offsets.look(Deadline(1.0))
    assert list(offsets.overwritten) == [(Q0, 3)]


def test_of_one_that_has_gone_it_is_others_word() -> None:
    broker, offsets = made()
    broker.offsets[Q0] = 7
    offsets.committed_of_some([Q0], Deadline(1.0))
    offsets.forget([Q0])
    broker.offsets[Q0] = 3
    offsets.look(Deadline(1.0))
    assert not offsets.overwritten
