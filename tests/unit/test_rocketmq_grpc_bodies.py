"""Bodies that their producers have compressed, as a LeasedSource unpacks them."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.rocketmq.grpc.by_message import ByMessage
from holdfast.adapters.rocketmq.grpc.config import Wanted
from holdfast.adapters.rocketmq.grpc.delivery import Delivery, PollTarget
from holdfast.adapters.rocketmq.remoting.messages import POLL_BYTES
from holdfast.errors import NotAuthorised, SourceError, SourceUnavailable
from holdfast.runtime import MACHINE
from holdfast.timing import Deadline
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.records import Record


class Proxy:
    """Delivers these once."""

    def __init__(self, *bodies: bytes) -> None:
        self._bodies = list(bodies)
        self.closed = False

    def open(self, deadline: Deadline) -> None: ...

    def renew(self) -> None: ...

    def close(self) -> None: ...

    def places(self) -> Sequence[PollTarget]:
        return [PollTarget("orders", "broker-a")]

    def receive(self, place: PollTarget, at_most: int) -> Sequence[Delivery]:
        if self.closed and not self._bodies:
            raise NotAuthorised("closed")
        some, self._bodies = self._bodies[:at_most], self._bodies[at_most:]
        return [
            Delivery("orders", f"m{n}", f"r{n}", None, body, None, (), 0, 1, packed=True) for n, body in enumerate(some)
        ]

    def end_poll(self, place: PollTarget) -> None: ...

    def begin_acknowledge(self, deliveries: Sequence[Delivery], answer: Callable[[Any], None]) -> None: ...

    def begin_change(self, delivery: Delivery, hidden_s: int, answer: Callable[[Any, str], None]) -> None: ...


def polls_of(*bodies: bytes) -> list[list[Record]]:
    """What came poll by poll, once all of it is there."""
    source = ByMessage(Wanted(group="billing"), lambda _: Proxy(*bodies), MACHINE)
    fence: Any = object()
    source.open(["orders"], fence, Deadline(60.0))
    source.poll(0, 0.0)
    until(lambda: source._leases.load == len(bodies))
    polls = []
    while found := source.poll(500, 0.0).records:
        polls.append(list(found))
    source.close(Deadline(0.0))
    return polls


def test_one_poll_unpacks_no_more_than_it_may() -> None:
    polls = polls_of(*[zlib.compress(bytes(POLL_BYTES // 2))] * 7)
    assert [[len(record.value or b"") for record in each] for each in polls] == [[POLL_BYTES // 2] * 2] * 3 + [
        [POLL_BYTES // 2]
    ]


@pytest.mark.parametrize("let_in", [True, False])
def test_rights_that_are_taken_later_are_told_and_those_that_were_never_there_end_it(let_in: bool) -> None:
    proxy = Proxy(*[zlib.compress(b"x")] * let_in)
    proxy.closed = True
    source = ByMessage(Wanted(group="billing"), lambda _: proxy, MACHINE)
    fence: Any = object()
    source.open(["orders"], fence, Deadline(60.0))
    found: list[Exception] = []

    def told() -> bool:
        try:
            source.poll(500, 0.0)
        except SourceError as error:
            found.append(error)
        return bool(found)

    until(told)
    source.close(Deadline(0.0))
    assert isinstance(found[0], SourceUnavailable if let_in else NotAuthorised)


def test_what_is_unpacked_in_vain_ends_the_poll() -> None:
    cut = zlib.compress(bytes(1000))[:-1]
    polls = polls_of(cut, cut, zlib.compress(b"good"))
    assert [[record.value for record in each] for each in polls] == [[cut], [cut], [b"good"]]
