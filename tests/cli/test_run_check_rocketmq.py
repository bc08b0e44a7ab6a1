"""`holdfast run --check` of an app on a real RocketMQ."""

from __future__ import annotations

import sys
import uuid
from typing import TYPE_CHECKING

from tests.cli.bench import lines
from tests.harness.rocketmq_topics import make_topic

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.cli.conftest import Here
    from tests.harness.servers.rocketmq import RocketMQServer

APP = """
from holdfast import Holdfast, RedisClaims, RedisCoordinator
from holdfast.adapters.rocketmq import RocketMQSource

claims = RedisClaims.from_url({redis_url!r})
app = Holdfast(RocketMQSource({namesrv!r}, {name!r}, coordinator=RedisCoordinator(claims)), claims=claims)

@app.handler([{name!r}, "^{name}-.*", "{name}_missing"], dead_letter="%DLQ%")
def bill(record): ...
"""


def test_topics_patterns_and_servers_are_looked_at(
    rocketmq: RocketMQServer, redis_url: str, here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = f"shop_{uuid.uuid4().hex[:8]}"
    for topic in (name, f"{name}-a"):
        make_topic(rocketmq.namesrv, 3, name=topic)
    module = f"app_{name}"
    (tmp_path / f"{module}.py").write_text(APP.format(redis_url=redis_url, namesrv=rocketmq.namesrv, name=name))
    ran = here("run", f"{module}:app", "--app-dir", tmp_path, "--check", "--json", code=1)
    found = [(each["check"], each["result"], each["detail"]) for each in lines(ran)]
    [broker] = [each for each in found if each[0] == "broker"]
    assert broker[1] == "ok"
    assert f"by {rocketmq.namesrv} answers" in broker[2]
    topics = [(result, detail) for check, result, detail in found if check == "topic"]
    assert topics[:2] == [("ok", f"{name}: 3 partitions"), ("ok", f"^{name}-.*: {name}-a")]
    assert topics[2][0] == "error"
    assert topics[2][1].startswith(f"{name}_missing: ")
    assert len(topics) == 3  # the group's own dead letters are made by the brokers
    assert found[-1][:2] == ("store", "ok")
