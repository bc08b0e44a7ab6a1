"""Every app and loop of README and docs under load, while a member joins, takes half and leaves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.docs.test_pages import GIVEN, PAGES
from tests.docs.under_load import Ground, play, put_under

if TYPE_CHECKING:
    from pathlib import Path

CONSUMES = re.compile(r"\b(?:Holdfast|KafkaConsumer)\(")
#: What says that an example is not played here, and why.
ELSEWHERE = {
    "claims=None": "its page says what it repeats",
    "value=": "its values have fields of their own: tests/contracts/kafka and tests/unit/engine/test_typed_handlers.py",
    "topics=[": "it waits for minutes: tests/unit/engine/test_delayed_retries.py, in virtual time",
    "serve(": "two members need two ports: tests/cli and tests/unit play it",
    "close_old_connections": "Django wants a project: tests/examples has one",
    "send_offsets_to_transaction": "its transactions are real ones: tests/contracts/kafka/test_consumer.py",
    "ShareSource(": "its records are leased one by one: tests/contracts/kafka/share",
    "SqlPositions": "it asks for a database: tests/contracts/sql",
    "REGISTRY": "two members need two registries, as two processes have",
}
EXAMPLES = [
    pytest.param(code if "KafkaSource(" in code else GIVEN + code, id=f"{page}-{number}")
    for page, text in sorted(PAGES.items())
    if page != "docs/how-to/testing.md"  # its app is played in a simulated world, by test_testing.py
    if not page.startswith("docs/zh/")  # the code of the English page: test_zh_pages.py
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    if CONSUMES.search(code)
    if not any(each in code for each in ELSEWHERE)
]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 9


@pytest.mark.parametrize("code", EXAMPLES)
def test_all_is_handled_once_in_order_and_committed(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground()
    put_under(monkeypatch, ground, tmp_path)
    play(ground, code.replace("/var/log", str(tmp_path)))
