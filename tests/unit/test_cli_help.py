"""Help at eighty columns: no line is longer, and examples stay commands that a shell understands."""

from __future__ import annotations

import argparse
import re
import shlex

import pytest

from holdfast.adapters.cli.entry import parser


def commands(one: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    below = [each for each in one._actions if isinstance(each, argparse._SubParsersAction)]
    return [one, *(deeper for each in below for child in each.choices.values() for deeper in commands(child))]


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_no_line_is_longer_than_the_terminal_but_for_what_cannot_be_broken() -> None:
    long = [line for each in commands(parser()) for line in each.format_help().splitlines() if len(line) > 80]
    whole = [line for line in long if len(line.split()) <= 2 or "#" in line or line.lstrip().startswith("{")]
    assert long == whole  # an option with its value, a command with a comment, JSON


def test_each_example_is_understood_also_where_it_goes_on_in_the_next_line() -> None:
    seen = 0
    for each in commands(parser()):
        for example in re.findall(r"^  (holdfast .*)", each.format_help().replace("\\\n", ""), re.MULTILINE):
            words = shlex.split(re.sub(r" [|>].*", "", example), comments=True)[1:]
            assert parser().parse_args(words).run, example
            seen += 1
    assert seen > 30
