"""The extra `rocketmq5` ends with a working client, which is imported without its side effects."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from holdfast.adapters.rocketmq.grpc.client import load
from holdfast.adapters.rocketmq.packages import Package, installed

_ROOT = Path(__file__).parents[4]


def test_the_extra_brings_the_client() -> None:
    assert installed() is Package.GRPC
    assert load().SimpleConsumer


def test_a_source_leaves_the_application_s_logging_and_home_alone(tmp_path: Path) -> None:
    code = (
        "import logging; logging.basicConfig(filename='app.log', level=logging.INFO)\n"
        "before = list(logging._handlerList)\n"
        "from holdfast.adapters.rocketmq import LeasedSource\n"
        "LeasedSource('localhost:8081', 'billing')\n"
        "assert logging._handlerList[:len(before)] == before\n"
        "import rocketmq.v5.consumer\n"
        "[handler] = logging.getLogger('rocketmq-python-client').handlers\n"
        "assert type(handler) is logging.NullHandler\n"
    )
    environment = os.environ | {"HOME": str(tmp_path), "PYTHONPATH": str(_ROOT)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
    assert [each.name for each in tmp_path.iterdir()] == ["app.log"]


def test_the_example_in_the_docs_is_accepted() -> None:
    said = (_ROOT / "docs" / "reference" / "rocketmq.md").read_text(encoding="utf-8")
    [code] = re.findall(
        r"```python\n(.*?)```", said.partition("\n## LeasedSource\n")[2].partition("\n## ")[0], re.DOTALL
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=_ROOT, check=True)
