"""The tables of promises name tests that exist, and that run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.promises import SHOWN_BY

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "rocketmq.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`", PAGE)))


def test_the_table_names_tests() -> None:
    assert len(NAMED) > 20


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_a_test_that_shows_a_promise_exists(file: str, test: str) -> None:
    assert f"def {test}" in (ROOT / file).read_text(encoding="utf-8")


README = (ROOT / "README.md").read_text(encoding="utf-8")
NUMBERED = [(number, test) for number, tests in SHOWN_BY.items() for test in tests]


def test_every_promise_of_the_readme_has_its_number_and_its_tests() -> None:
    assert set(re.findall(r"^\| (P\d) \| \*\*", README, re.MULTILINE)) == set(SHOWN_BY)
    assert [f"P{number}" for number in range(1, 10)] == list(SHOWN_BY)


@pytest.mark.parametrize(("number", "test"), NUMBERED)
def test_the_tests_of_a_promise_are_there_on_real_servers_and_in_the_quick_tier(number: str, test: str) -> None:
    file, _, name = test.partition("::")
    found = re.search(rf"((?:^@.*\n)*)^def {name}\(([^)]*)\)", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, number
    assert "@pytest.mark.full" not in found[1]  # one of its parameters may be
    assert re.search(r"kafka: KafkaServer|tell: Tell", found[2])
