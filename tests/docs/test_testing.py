"""docs/how-to/testing.md: its tests run as they stand, in one file; who is to fail fails as the page shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.testing import Member, pytest_plugin
from holdfast.testing.pytest_plugin import world

if TYPE_CHECKING:
    import pytest

    from holdfast.testing import ScriptedWorld

__all__ = ["world"]  # the fixture, also where the plugin is not installed

pytest_plugins = ["pytester"]

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "testing.md").read_text(encoding="utf-8")
CODE = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
#: What is set when one is made.
MEMBERS_OWN = {"error"}
_QUIET = ("-p", "no:holdfast", "-p", "no:cacheprovider", "--show-capture=no", "-W", "error")


def test_the_pages_tests_run_and_one_fails_as_it_says(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CODE.replace("orders, begin=begin", "orders, seeds=5, begin=begin"))
    result = pytester.runpytest_inprocess(*_QUIET, plugins=[pytest_plugin])
    result.assert_outcomes(passed=2, failed=1)
    [shown] = re.findall(r"```\n(AssertionError.*?)```", PAGE, re.DOTALL)
    lines = [re.sub(r"\d+\.\d{3}", "*", line.strip()) for line in shown.splitlines() if line.strip() != "..."]
    result.stdout.fnmatch_lines([f"E*{line}" for line in lines])


def test_what_the_page_names_is_there(world: ScriptedWorld) -> None:
    named = re.findall(r"`(?:world|a|b)\.([a-z_]+(?:\.[a-z_]+)?)", PAGE)
    assert len(named) > 20
    for name in named:
        first, _, second = name.partition(".")
        assert hasattr(world, first) or hasattr(Member, first) or first in MEMBERS_OWN, name
        assert not second or hasattr(getattr(world, first), second), name
    for name in re.findall(r"`(assert_[a-z_]+)", PAGE):
        assert hasattr(world, name), name
