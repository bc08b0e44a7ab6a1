"""examples/rocketmq_move: a live group goes from PushConsumers to holdfast; on a real broker, with the real client."""

from __future__ import annotations

import difflib
import signal
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.rocketmq.remoting import RemotingClient
from holdfast.timing import Deadline
from tests.contracts.rocketmq.grpc.lab import PATIENCE_S
from tests.examples.bench import ROOT
from tests.examples.rocketmq_bench import RocketMQShop

if TYPE_CHECKING:
    from tests.harness.servers.rocketmq import RocketMQServer

_MOVE = "examples.rocketmq_move"
_IDS = [f"order-{number}" for number in range(600)]
#: What two killed members of as many threads as cores can have in their hands; a few.
_IN_HAND = 16


@pytest.mark.parametrize(("old", "end"), [("before", signal.SIGTERM), ("bridge", signal.SIGKILL)])
def test_a_live_group_is_moved_and_nothing_is_lost_or_repeated(
    rocketmq: RocketMQServer, redis_url: str, old: str, end: signal.Signals
) -> None:
    shop = RocketMQShop(rocketmq, redis_url)
    with ExitStack() as stack:
        olds = [stack.enter_context(shop.running(f"{_MOVE}.{old}")) for _ in range(2)]
        # A PushConsumer begins at the end of queues that are new to its group: it has to have them all.
        for number in range(100):
            shop.send(*(f"warm-{number}-{queue}" for queue in range(5)))
            if all(process.billed for process in olds):
                break
        with shop.running(f"{_MOVE}.after") as hasty:
            assert hasty.ended() != 0
            assert "members that do not go by holdfast's plan" in "\n".join(hasty.errors)
        sending = threading.Thread(target=shop.send, args=_IDS)
        sending.start()
        olds[0].until(lambda: _count(olds) >= 100)
        statuses = [process.end(end) for process in olds]
        # The C++ client aborts at times inside its own shutdown (seen once, on a busy machine): a crash like any other.
        assert set(statuses) <= ({0, -signal.SIGABRT} if end is signal.SIGTERM else {-signal.SIGKILL})
        if old == "bridge":
            _lose_commits(shop)
        done = {order for process in olds for order in process.billed}
        assert done < set(_IDS) | {order for order in done if order.startswith("warm")}, "nothing is left to move"
        offsets = shop.run(f"{_MOVE}.ready")
        assert offsets
        new = stack.enter_context(shop.running(f"{_MOVE}.after"))
        sending.join()
        new.until(lambda: done | set(new.billed) >= set(_IDS))
        assert new.end() == 0
    assert len(new.billed) == len(set(new.billed))
    repeated = done & set(new.billed)
    if -signal.SIGABRT not in statuses:  # else as much as it had not committed, and nothing in front of it knows keys
        assert len(repeated) <= (0 if end is signal.SIGTERM else _IN_HAND), (repeated, offsets)


def _lose_commits(shop: RocketMQShop) -> None:
    """As if the old members had committed nothing: theirs are up to 5 s old, and what they have done meanwhile depends
    on how fast they are."""
    with RemotingClient(shop.rocketmq.namesrv) as client:
        for queue in client.route(shop.topic, Deadline(PATIENCE_S)).queues():
            client.commit_offset(queue, shop.group, 0, Deadline(PATIENCE_S))


def _count(olds: list) -> int:  # type: ignore[type-arg]
    return sum(order.startswith("order-") for process in olds for order in process.billed)


def test_the_bridge_changes_the_handler_and_nothing_else() -> None:
    before, bridge = (
        (ROOT / "examples" / "rocketmq_move" / f"{name}.py").read_text(encoding="utf-8").splitlines()
        for name in ("before", "bridge")
    )
    marked = difflib.unified_diff(before[4:], bridge[4:], n=0, lineterm="")
    changes = [line for line in marked if line[0] in "+-" and line[:3] not in {"+++", "---"} and line[1:].strip()]
    assert changes == [
        "+from holdfast import RedisClaims, idempotent",
        "+from holdfast.adapters.rocketmq import identity_of",
        "+def identity(message: RecvMessage) -> str:",
        '+    """What `after` knows the message by."""',
        "+    return identity_of(message.id, message.body)",
        "+    claims = RedisClaims.from_url(asked.redis)",
        '+    @idempotent(claims, key=identity, name=f"{asked.group}/{asked.topic}", on_done="marker")',
    ]
