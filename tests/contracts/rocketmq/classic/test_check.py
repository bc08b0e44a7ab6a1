"""`holdfast run --check` of an app with a PushSource, on a real RocketMQ."""

from __future__ import annotations

import json
import sys
import uuid
from typing import TYPE_CHECKING

from holdfast.adapters.cli import main
from tests.harness.rocketmq_topics import make_topic

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.harness.servers.rocketmq import RocketMQServer

APP = """
from holdfast import Holdfast, MemoryClaims
from holdfast.adapters.rocketmq import PushSource

app = Holdfast(PushSource(namesrv={namesrv!r}, group={name!r}), claims=MemoryClaims())

@app.handler([{name!r}, "{name}_missing", "^all-.*"], dead_letter="%DLQ%")
def bill(record): ...
"""


def test_name_servers_and_topics_are_looked_at(
    rocketmq: RocketMQServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = f"shop_{uuid.uuid4().hex[:8]}"
    make_topic(rocketmq.namesrv, 3, name=name)
    module = f"app_{name}"
    (tmp_path / f"{module}.py").write_text(APP.format(namesrv=rocketmq.namesrv, name=name))
    assert main(["run", f"{module}:app", "--app-dir", str(tmp_path), "--check", "--json"]) == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    [broker] = [each for each in found if each["check"] == "broker"]
    assert broker["result"] == "ok"
    there, missing, pattern = [(each["result"], each["detail"]) for each in found if each["check"] == "topic"]
    assert there == ("ok", f"{name}: 3 partitions")
    assert missing[0] == pattern[0] == "error"
    assert "not to patterns such as" in pattern[1]
