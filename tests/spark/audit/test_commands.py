"""`holdfast audit --follow` over a topic, and the Spark that commands start."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.cli import main
from tests.spark.audit.streamed import later, send
from tests.spark.audit.synthetic import played

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.servers.kafka import KafkaServer

pytestmark = pytest.mark.full


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("quick")  # the session that there is, is taken
def test_a_topic_is_judged_as_it_grows(kafka: KafkaServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    group = played("losses-and-crashes-1", 1, "losses-and-crashes")
    kafka.create_topic("told", 2)
    send(kafka.bootstrap, "told", [*group.lines, later(group)])

    def judged() -> dict[str, Any]:
        reading_on = ("--output", str(tmp_path / "tables"), "--follow", str(tmp_path / "checkpoint"))
        capsys.readouterr()
        assert main(["audit", f"kafka:{kafka.bootstrap}/told", "--json", *reading_on]) == 1
        [found] = [each for each in map(json.loads, capsys.readouterr().out.splitlines()) if each["type"] == "group"]
        return dict(found)

    found = judged()
    assert found["executions"] == sum(each.told for all_ in group.truth.executed.values() for each in all_)
    assert found["lost"] >= len(group.truth.lost) > 0  # offsets: the log has holes
    assert found["unknown"] >= len(group.truth.unknown) > 0
    assert found["killed"] == group.truth.killed
    assert judged() == found  # there was nothing new


_SPARK = """
from holdfast.adapters.spark.session import local_spark
with local_spark("quiet", {}) as spark:
    print(spark.range(3).count())
"""


def test_a_command_starts_spark_without_noise() -> None:
    told = subprocess.run([sys.executable, "-c", _SPARK], capture_output=True, text=True, timeout=300, check=False)
    assert told.stdout == "3\n", told
    noise = ("log4j", "log level", " WARN ", " ERROR ")  # Java says more, in other words with each version
    assert [line for line in told.stderr.splitlines() if any(each in line for each in noise)] == []
