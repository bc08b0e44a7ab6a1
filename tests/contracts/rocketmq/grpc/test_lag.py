"""`holdfast lag` of a group whose messages are given out one by one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.remoting import RemotingClient
from holdfast.adapters.rocketmq.tools.groups import RocketMQGroupViews
from holdfast.timing import Deadline
from tests.contracts.rocketmq.grpc.lab import PATIENCE_S
from tests.contracts.rocketmq.grpc.stories import story

if TYPE_CHECKING:
    from tests.contracts.rocketmq.grpc.lab import Lab


@story
def test_what_is_in_hand_is_no_lag_of_0(lab: Lab) -> None:
    field = lab.field(queues=1)
    field.fill("a", "b", "c")
    field.gate.hold("a", "b", "c")
    look = RocketMQGroupViews(partial(RemotingClient, lab.server.namesrv), field.group)
    with field.app():
        field.gate.wait(lambda: len(field.gate.started) == 3)
        view = look.view(Deadline(PATIENCE_S))
        field.gate.let_go()
    look.close()
    [queue] = [each for each in view.partitions.values() if each.partition.topic == field.topic]
    # By its offset everything is read: it moves when a message is given out.
    assert (queue.committed, queue.end) == (3, 3)
    assert queue.given_out
    assert queue.lag is None
