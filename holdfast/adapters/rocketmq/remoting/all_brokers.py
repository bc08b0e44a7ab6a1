"""Requests to many brokers at once."""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.remoting.errors import NoAnswer
from holdfast.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import TypeVar

    from holdfast.adapters.rocketmq.remoting.answers import Answer
    from holdfast.adapters.rocketmq.remoting.in_flight import Request
    from holdfast.adapters.rocketmq.remoting.network import Network
    from holdfast.timing import Deadline

    T = TypeVar("T")


def ask_everyone(
    network: Network, addresses: Collection[str], request: Request, deadline: Deadline
) -> dict[str, SourceError]:
    """Ask all of them and wait for all. Returns what went wrong, by address; empty = nothing."""
    replies = ask_each(network, [(address, request) for address in addresses], deadline, _read)
    return {address: reply for address, reply in zip(addresses, replies, strict=True) if reply is not None}


def ask_each(
    network: Network, asked: Sequence[tuple[str, Request]], deadline: Deadline, read: Callable[[Answer], T]
) -> list[T | SourceError]:
    """Ask servers by their addresses, all at once, and wait for all. Returns what was read of each answer, or why there
    is none, in the order of `asked`."""
    answers: SimpleQueue[tuple[int, T | SourceError]] = SimpleQueue()
    found: dict[int, T | SourceError] = {}
    for number, (address, request) in enumerate(asked):
        try:
            network.begin(address, request, deadline.left_s(), read, _note(answers, number))
        except SourceError as error:
            found[number] = error
    with suppress(Empty):
        while len(found) < len(asked):
            number, reply = answers.get(timeout=deadline.left_s())
            found[number] = reply
    return [
        found.get(number, NoAnswer(f"{request.what}: no answer of {address} in time"))
        for number, (address, request) in enumerate(asked)
    ]


def _read(answer: Answer) -> None:
    answer.expect()


def _note(answers: SimpleQueue[tuple[int, T | SourceError]], number: int) -> Callable[[T | SourceError], None]:
    return lambda reply: answers.put((number, reply))
