"""Tools read topics that anybody may write to: a message that cannot be read is one of many."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.adapters.rocketmq.remoting import PullAnswer, PullRequest, PullStatus
from holdfast.adapters.rocketmq.remoting.decoding import encode_batch
from holdfast.adapters.rocketmq.tools.dead_letters import RocketMQDeadLetterTool
from holdfast.adapters.rocketmq.tools.offsets import RocketMQOffsetTool
from holdfast.adapters.rocketmq.unique_keys import identity_of
from holdfast.records import Partition
from tests.properties.test_rocketmq_messages import Stored
from tests.unit.test_rocketmq_reading import damaged, with_flags

QUEUE = Partition("orders.dlq", 0, "broker-a")


def stored(number: int) -> Stored:
    return Stored("orders.dlq", b"letter", {"UNIQ_KEY": f"K{number}"}, offset=number)


class Broker:
    """Has one log."""

    def __init__(self, *messages: bytes, end: int) -> None:
        self.body, self.end = b"".join(messages), end

    def pull(self, request: PullRequest, _: object) -> PullAnswer:
        return PullAnswer(PullStatus.FOUND, self.end, request.offset, self.end, self.body, "broker", 0, None)

    def __call__(self) -> Any:
        return self


ODD = [damaged(stored(1)), with_flags(stored(1), 0x1), with_flags(stored(1), 0xC0)]


@pytest.mark.parametrize("odd", ODD, ids=["checksum", "not compressed", "not several in one"])
def test_letters_beside_one_that_cannot_be_read_are_read_and_of_that_one_what_there_is(odd: bytes) -> None:
    tool = RocketMQDeadLetterTool(Broker(stored(0).encode(), odd, stored(2).encode(), end=3))
    [letters] = list(tool.read({QUEUE: 0}, {QUEUE: 3}, 1.0))
    assert [each.offset for each in letters] == [0, 1, 2]
    assert [each.value for each in letters][::2] == [b"letter"] * 2
    assert len(letters[1].value or b"") == len(b"letter")


@pytest.mark.parametrize("odd", ODD, ids=["checksum", "not compressed", "not several in one"])
def test_a_reset_forgets_what_lies_beside_one_that_cannot_be_read(odd: bytes) -> None:
    broker = Broker(stored(0).encode(), odd, stored(2).encode(), end=3)
    [letters] = list(RocketMQDeadLetterTool(broker).read({QUEUE: 0}, {QUEUE: 3}, 1.0))
    known = [identity_of(f"K{each.offset}", each.value or b"") for each in letters]
    tool = RocketMQOffsetTool(broker, "billing")
    assert [list(each) for each in tool.identities({QUEUE: 0}, {QUEUE: 3}, 1.0)] == [known]


def test_of_several_in_one_only_those_that_were_asked_for_are_read() -> None:
    several = encode_batch([(b"letter", f"UNIQ_KEY\x01K{number}\x02", 0) for number in range(3)])
    batch = with_flags(Stored("orders.dlq", several, offset=0), 0xC0)
    tool = RocketMQOffsetTool(Broker(batch, end=3), "billing")
    assert [list(each) for each in tool.identities({QUEUE: 1}, {QUEUE: 3}, 1.0)] == [
        [identity_of("K1", b"letter"), identity_of("K2", b"letter")]
    ]
