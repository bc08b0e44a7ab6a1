"""Stories take as long as leases do, so they are played side by side: a test is the end of its story."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.contracts.rocketmq.grpc.lab import Lab
from tests.contracts.rocketmq.grpc.stories import story_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from tests.harness.servers.redis import RedisServer
    from tests.harness.servers.rocketmq import RocketMQServer


#: Stories wait most of their time; more of them at once than that, and the servers have no time to answer.
_AT_ONCE = 8


@pytest.fixture(scope="session")
def lab(
    rocketmq_proxy: RocketMQServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    made = Lab(rocketmq_proxy, redis_server.url, tmp_path_factory.mktemp("grpc"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def playing(lab: Lab, request: pytest.FixtureRequest) -> Iterator[dict[str, Future[None]]]:
    """All stories whose tests are to run, begun in their order, several at a time."""
    stories: dict[str, Callable[[Lab], None]] = {}
    for item in request.session.items:
        story = story_of(item.obj) if isinstance(item, pytest.Function) else None
        if story is not None:
            stories[story.__name__] = story
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        yield {name: threads.submit(story, lab) for name, story in stories.items()}
