"""The documentation's examples are accepted as they stand: Python runs, commands are understood."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from holdfast.adapters.cli.entry import parser
from tests.harness import forks
from tests.harness.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
PAGES = {
    str(each.relative_to(ROOT)): each.read_text(encoding="utf-8")
    for each in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
}
#: What the text around an example takes for granted.
GIVEN = """
from holdfast import MemoryClaims
from holdfast.adapters.kafka import KafkaSource

conf = {"bootstrap.servers": "localhost:9092", "group.id": "billing"}
source, claims = KafkaSource(conf, assignment="sticky"), MemoryClaims()
"""
APP = """
from holdfast import Holdfast

app = Holdfast(source, claims=claims)
"""
#: The same of effects in a database.
STORE = """
from holdfast.adapters.sql import SqlPositions

store = SqlPositions.from_url("postgresql://app:secret@db:5432/shop")
"""
#: Packages of others that an environment may be without; extra `test` has them.
OTHERS = ("structlog", "sentry_sdk")
#: Its client has an environment of its own, which has the test of it: tests/contracts/rocketmq/grpc.
ELSEWHERE = "LeasedSource("
#: test_readme.py runs the README's.
EXAMPLES = [
    pytest.param(code, id=f"{page}-{number}")
    for page, text in sorted(PAGES.items())
    if page != "README.md"
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
]
COMMANDS = sorted(
    {
        line
        for text in PAGES.values()
        for block in re.findall(r"```(?:sh|console)\n(.*?)```", text, re.DOTALL)
        for line in re.findall(r"^(?:\$ )?(holdfast .*)$", block.replace("\\\n", " "), re.MULTILINE)
    }
)


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_is_accepted_as_it_stands(code: str, tmp_path: Path) -> None:
    code = code.replace("/var/log", str(tmp_path)).replace("\napp.run()", "\n")  # test_under_load.py runs it
    if ELSEWHERE in code:
        compile(code, "example", "exec")
        return
    if "Avro(" in code:
        pytest.importorskip("confluent_kafka.schema_registry.avro")
    for each in OTHERS:
        if f"import {each}" in code:
            pytest.importorskip(each)
    with_store = "(store" in code or "=store" in code or " store." in code
    if not with_store or "store = " in code:
        accept(GIVEN + APP + code, tmp_path)
    else:
        accept(GIVEN + STORE + APP.replace("claims=claims", "claims=store") + code, tmp_path)


def accept(code: str, folder: Path) -> None:
    """Run an example to its end, in a process of its own."""
    file = folder / "example.py"
    file.write_text(code, encoding="utf-8")
    ran = forks.run("tests.harness.python_file", str(file), timeout_s=PATIENCE_S * 2)
    assert ran.returncode == 0, ran.stderr


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 15


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_understood(command: str) -> None:
    whole = parser()
    _nothing_required(whole)  # the pages leave --redis and --bootstrap out, and say so
    assert whole.parse_args(shlex.split(command, comments=True)[1:]).run


def _nothing_required(one: argparse.ArgumentParser) -> None:
    for action in one._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _nothing_required(below)
        elif action.option_strings:
            action.required = False
