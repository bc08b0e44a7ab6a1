"""A group that goes from one source to another, and back; on a real broker, with the real client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contracts.rocketmq.classic.lab import Members, Topic

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from tests.harness.servers.rocketmq import RocketMQServer

_PULL, _FAILING, _PUSH = "pull", "pull-failing", "holdfast"
_WORKERS = 8
#: More than a PushConsumer has begun, which it brings to its end.
_AT_ONCE = 1_000


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("kinds", [(_FAILING, _PUSH, _PULL), (_PUSH, _FAILING, _PUSH)], ids=["from pull", "from push"])
def test_nothing_is_lost_between_pull_and_push_and_no_more_repeated_than_was_in_hand(
    rocketmq: RocketMQServer, redis_url: str, tmp_path: Path, kinds: tuple[str, ...], *, kill: bool
) -> None:
    """Each has a backlog and work in hand when it goes; what fails under the pull source waits at the broker for its
    second try, which is another source's."""
    topic, sent = Topic(rocketmq), 0
    with Members(topic, redis_url, tmp_path, handler_s=0.02) as members:
        processes: list[subprocess.Popen[bytes]] = []
        for kind in kinds:
            for process in processes[-1:]:
                (members.kill if kill else members.stop)(process)
                assert len(members.handled()) < sent, "something is left to hand over"
            topic.send([f"late{sent}"] * (kind == _FAILING) + [f"m{sent + each}" for each in range(_AT_ONCE)])
            sent += _AT_ONCE
            processes.append(members.start(kind))
        members.wait(lambda: len(members.handled()) == sent + kinds.count(_FAILING))
        members.stop(processes[-1])
        assert members.repeats() <= (2 * _WORKERS if kill else 0)
