"""The table of promises names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "rocketmq.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`", PAGE)))


def test_the_table_names_tests() -> None:
    assert len(NAMED) > 20


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_a_test_that_shows_a_promise_exists(file: str, test: str) -> None:
    assert f"def {test}" in (ROOT / file).read_text(encoding="utf-8")
