"""`holdfast run --check` of an app with a LeasedSource, by a real proxy."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from holdfast.adapters.cli import main
from tests.contracts.rocketmq.grpc.lab import create_topic, new_name

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.harness.servers.rocketmq import RocketMQServer

APP = """
from holdfast import Holdfast
from holdfast.adapters.rocketmq import LeasedSource

app = Holdfast(LeasedSource({proxy!r}, {name!r}, request_timeout_s=5), claims=None)

@app.handler([{name!r}, "{name}-missing", "^all-.*"])
def bill(record): ...
"""


def test_the_proxy_and_topics_are_looked_at(
    rocketmq_proxy: RocketMQServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = create_topic(rocketmq_proxy, new_name(), queues=3)
    module = name.replace("-", "_")
    (tmp_path / f"{module}.py").write_text(APP.format(proxy=rocketmq_proxy.endpoints, name=name))
    assert main(["run", f"{module}:app", "--app-dir", str(tmp_path), "--check", "--json"]) == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    [broker] = [each for each in found if each["check"] == "broker"]
    assert (broker["result"], broker["detail"]) == ("ok", f"RocketMQ's proxy at {rocketmq_proxy.endpoints} answers")
    there, missing, pattern = [(each["result"], each["detail"]) for each in found if each["check"] == "topic"]
    assert there == ("ok", f"{name}: 3 partitions")
    assert missing[0] == pattern[0] == "error"
    assert missing[1].startswith(f"{name}-missing: looking for topic")
    assert "not to patterns such as" in pattern[1]
