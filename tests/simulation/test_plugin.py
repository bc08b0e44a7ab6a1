"""The pytest plugin, as users have it: wrong apps are caught by a message that a person can read, and nobody else is
disturbed."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.testing import pytest_plugin

if TYPE_CHECKING:
    import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]

#: A service as its authors would write it, and the part of it that each test here gets wrong.
_TESTS = """
import pytest
from holdfast import Holdfast, Retry, Settings

@pytest.fixture
def charged(world):
    return world.effects("charged")

@pytest.fixture
def make_app(world, charged):
    def make(source, claims):
        app = Holdfast(source, claims=claims, settings=Settings(workers=2))

        {body}

        return app
    return make

@pytest.fixture
def orders(world):
    for number in range(4):
        world.produce("orders", {{"order_id": number}}, key=f"customer-{{number}}", partition=0)

def test_it(world, member, charged, orders):
    {test}
"""
_KEYED = '@app.handler("orders", key="order_id", retry=Retry(attempts=3), name="bill")'


def run(pytester: pytest.Pytester, body: str, test: str) -> pytest.RunResult:
    body, test = body.strip().replace("\n", "\n        "), test.strip().replace("\n", "\n    ")
    pytester.makepyfile(_TESTS.format(body=body, test=test))
    return ran(pytester)


def ran(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    """`no:holdfast`: where the package is installed, pytest would have the plugin twice."""
    quiet = ("-p", "no:holdfast", "-p", "no:cacheprovider", "--show-capture=no", "-W", "error")
    return pytester.runpytest_inprocess(*quiet, *options, plugins=[pytest_plugin])


RIGHT = f"""
{_KEYED}
def bill(record):
    world.sleep(0.2)
    if record.cancelled:
        raise TimeoutError("it is another's by now")
    charged.append(record.json()["order_id"])
"""
ZOMBIE = """
a, b = member(), member()
world.run(until=lambda: a.handling or b.handling)
(a if a.handling else b).zombie()
world.settle()
world.assert_once(charged)
world.assert_nothing_lost(charged, by="order_id")
world.assert_order()
world.assert_committed()
"""


def test_a_right_app_passes(pytester: pytest.Pytester) -> None:
    run(pytester, RIGHT, ZOMBIE).assert_outcomes(passed=1)


def test_a_handler_that_does_not_look_whether_it_still_may_is_caught(pytester: pytest.Pytester) -> None:
    body = RIGHT.replace("if record.cancelled", "if False")
    result = run(pytester, body, ZOMBIE)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E*AssertionError: charged more than once: 0 (of 4)",
            "E*0: at *.??? s by ? (orders-0@0), again at *.??? s by ? (orders-0@0)",
            "E*What happened (seed 1):",
            "E*stands still for 30 s",
            "E*is silent: its partitions go to others",
            "E*charged: 0",
        ]
    )


def test_an_app_without_a_key_is_caught_when_the_producer_sends_again(pytester: pytest.Pytester) -> None:
    body = RIGHT.replace('key="order_id", ', "")
    test = """
member()
world.produce("orders", {"order_id": 2}, key="customer-2")
world.settle()
world.assert_nothing_lost(charged, by="order_id")
world.assert_once(charged)
"""
    result = run(pytester, body, test)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E*charged more than once: 2 (of 4)",
            "E*2: at * by a (orders-[!0]@0), again at * by a (orders-0@2)",  # partitions take turns
        ]
    )


def test_a_handler_that_charges_before_it_fails_is_caught(pytester: pytest.Pytester) -> None:
    body = f"""
{_KEYED}
def bill(record):
    charged.append(record.json()["order_id"])
    if record.offset == 1 and charged.count(1) == 1:
        raise ConnectionError("no answer to the second request")
"""
    test = """
member()
world.settle()
world.assert_once(charged)
"""
    result = run(pytester, body, test)
    result.stdout.fnmatch_lines(
        [
            "E*charged more than once: 1 (of 4)",
            "E*1: at * by a (orders-0@1, raised ConnectionError('no answer to the second request')), again at * by a *",
        ]
    )


def test_a_handler_that_swallows_its_error_is_caught(pytester: pytest.Pytester) -> None:
    body = f"""
{_KEYED}
def bill(record):
    try:
        if record.offset == 2:
            raise ConnectionError("no route to the bank")
        charged.append(record.json()["order_id"])
    except ConnectionError:
        pass
"""
    test = """
member()
world.settle()
world.assert_once(charged)
world.assert_nothing_lost()
world.assert_nothing_lost(charged, by="order_id")
"""
    result = run(pytester, body, test)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E*AssertionError: lost, since not in charged: 1 of 4 records",
            "E*2 (orders-0@2): a said that it was done",
            "E*a*handles orders-0@2 {*2}",
        ]
    )


def test_a_handler_that_says_done_before_it_is_is_caught_by_a_crash(pytester: pytest.Pytester) -> None:
    body = f"""
later = []

{_KEYED}
def bill(record):
    later.append(record.json()["order_id"])
    if len(later) == 3:
        charged.extend(later)
        later.clear()
"""
    test = """
a = member()
world.run(until=lambda: world.committed("orders", 0) == 4)
a.crash()
a.restart()
world.settle()
world.assert_nothing_lost(charged, by="order_id")
"""
    result = run(pytester, body, test)
    result.stdout.fnmatch_lines(
        ["E*lost, since not in charged: 1 of 4 records", "E*(orders-0@*): a said that it was done", "E*a*crashes"]
    )


def test_the_mark_sets_the_world_up_and_unknown_settings_are_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.world(seed=7, protocol="eager", partitions=2)
        def test_it(world):
            assert world.seed == 7
            world.produce("orders", 1)
            assert world.cluster.partitions_of("orders") == 2

        @pytest.mark.world(sede=7)
        def test_with_a_slip(world):
            pass
        """
    )
    result = ran(pytester, "--strict-markers")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*unexpected keyword argument 'sede'*"])


def test_a_member_is_made_by_what_is_given_or_by_the_fixture_of_that_name(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from holdfast import Holdfast

        def make_mine(source, claims):
            app = Holdfast(source, claims=claims)
            app.handler("orders", name="mine")(lambda record: None)
            return app

        def test_it(world, member):
            a = member(make_mine, "payer")
            world.run(until=lambda: a.partitions)
            assert a.name == "payer"

        def test_without(member):
            member()
        """
    )
    result = ran(pytester)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*fixture 'make_app' not found*"])


def test_without_greenlet_a_sentence_says_what_to_install(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import sys; sys.modules['greenlet'] = None")
    pytester.makepyfile("def test_it(world): pass")
    code = "import pytest, sys; sys.exit(pytest.main(['-p', 'no:holdfast', '-p', 'holdfast.testing.pytest_plugin']))"
    result = pytester.run(sys.executable, "-c", code)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*ImportError: holdfast.testing.ScriptedWorld needs greenlet*pip install 'holdfast-mq?testing?'*"]
    )


def test_who_does_not_ask_for_it_imports_nothing_of_it() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import holdfast.testing.pytest_plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["holdfast", "holdfast.testing", "holdfast.testing.pytest_plugin"]


def test_pytest_finds_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"holdfast": "holdfast.testing.pytest_plugin"}
