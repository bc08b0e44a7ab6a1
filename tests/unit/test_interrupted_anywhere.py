"""A job's time limit: a signal handler raises an Exception of its own between any two lines. It comes out as it is, and
no other call gets a wrong reply or waits for ever."""

from __future__ import annotations

import gc
import linecache
import sys
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.rocketmq.grpc import faults
from holdfast.adapters.rocketmq.remoting.connection import Connection
from holdfast.adapters.rocketmq.remoting.in_flight import Request
from holdfast.errors import SourceUnavailable
from holdfast.timing import Deadline
from tests.unit.rocketmq_fake import FakeServer, Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from holdfast.adapters.rocketmq.remoting.frame import Command

LONG_S = 30.0


class TimeLimit(Exception):
    """As Celery's SoftTimeLimitExceeded, or RQ's."""


def interrupted(call: Callable[[], object], files: Sequence[str], step: int) -> bool:
    """Make the call; raise before that line, or return, of these files. Whether there was such a step."""
    steps = count(1)

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.endswith(tuple(files)):
            return None
        # At a `with` the interpreter hears no signal between the end of its block and the lock's release.
        leaves = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with ")
        if event in ("line", "return") and not leaves and next(steps) == step:
            sys.settrace(None)
            raise TimeLimit
        return trace

    before = sys.gettrace()
    try:
        sys.settrace(trace)
        call()
    except TimeLimit:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.filterwarnings("ignore:.*unclosed <socket:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of a constructor that was interrupted
@pytest.mark.parametrize(("warm", "size"), [(False, 10), (True, 6_000_000)], ids=["first call", "sent in parts"])
def test_no_request_to_rocketmq_gets_the_answer_of_one_that_was_interrupted(*, warm: bool, size: int) -> None:
    def echo(command: Command, peer: Peer) -> None:
        peer.answer(command, {"code": str(command.code)}, b"")

    def ask(connection: Connection, code: int, body: bytes = b"") -> str:
        fields = connection.ask(Request(code, "asking", {}, body), Deadline(LONG_S)).fields
        return str(fields["code"])

    def answered(connection: Connection, code: int) -> str:
        while True:
            try:
                return ask(connection, code)
            except SourceUnavailable:
                assert connection.broken or not warm

    body = bytes(size)
    with FakeServer(echo) as server:
        for step in count(1):
            connection = Connection(server.address)
            if warm:
                assert ask(connection, 1) == "1"
            there = interrupted(lambda: ask(connection, 2, body), ("connection.py", "channel.py", "in_flight.py"), step)  # noqa: B023
            assert answered(connection, 3) == "3"
            assert answered(connection, 4) == "4"
            connection.close()
            if not there:
                break
    gc.collect()  # sockets that nothing closed warn here, and in no other test
    assert step > 20


@pytest.mark.parametrize("raised", [TimeLimit(), KeyboardInterrupt()])
def test_a_time_limit_is_no_answer_of_the_proxy(raised: BaseException) -> None:
    with pytest.raises(type(raised)), faults.as_source_errors("looking for topic 'orders'"):
        raise raised
    with pytest.raises(SourceUnavailable, match="looking for it"), faults.as_source_errors("looking for it"):
        raise TimeoutError("no answer")
