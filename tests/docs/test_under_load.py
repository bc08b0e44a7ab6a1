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
EXAMPLES = [
    pytest.param(code if "KafkaSource(" in code else GIVEN + code, id=f"{page}-{number}")
    for page, text in sorted(PAGES.items())
    if page != "docs/how-to/testing.md"  # its app is played in a simulated world, by test_testing.py
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    if CONSUMES.search(code)
    if "claims=None" not in code  # its page says what it repeats
]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 9


@pytest.mark.parametrize("code", EXAMPLES)
def test_all_is_handled_once_in_order_and_committed(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground()
    put_under(monkeypatch, ground, tmp_path)
    play(ground, code.replace("/var/log", str(tmp_path)))
