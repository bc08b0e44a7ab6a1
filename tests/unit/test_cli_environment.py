"""What a command needs and its line does not say comes from the environment; nothing else does."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.cli.entry import parser
from holdfast.adapters.cli.options import from_environment
from holdfast.plugin import overrides
from holdfast.plugin.settings import Settings

if TYPE_CHECKING:
    import argparse

SAID = {
    "HOLDFAST_BOOTSTRAP": "here:9092",
    "HOLDFAST_REDIS": "redis://here",
    "HOLDFAST_GROUP": "billing",
}


def read(line: str) -> argparse.Namespace:
    options = parser().parse_args(shlex.split(line))
    from_environment(options)
    return options


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SAID.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("line", "taken"),
    [
        ("lag", {"group": "billing", "bootstrap": "here:9092", "redis": None}),
        ("lag --group other", {"group": "other", "bootstrap": "here:9092"}),
        ("lag --bootstrap there:9092", {"bootstrap": "there:9092", "namesrv": None}),
        ("lag --namesrv there:9876", {"bootstrap": None, "namesrv": "there:9876"}),
        ("lag --kafka-config client.properties", {"bootstrap": None}),
        ("reset --topic t --to latest", {"group": "billing", "bootstrap": "here:9092", "redis": "redis://here"}),
        ("reset --topic t --to latest --no-store", {"redis": None}),
        ("claims stats", {"redis": "redis://here"}),
        ("claims show 1 --scope s --redis redis://there", {"redis": "redis://there", "group": None}),
        ("group show", {"group": "billing", "redis": "redis://here"}),
        ("dead-letters list --topic t --pending", {"bootstrap": "here:9092", "redis": "redis://here"}),
        ("dead-letters replay --topic t --origin o", {"bootstrap": "here:9092", "redis": "redis://here"}),
        ("plan --group orders", {"bootstrap": "here:9092", "redis": None}),
        # These look at no group that they were not told of.
        ("plan --topics orders=3 --members 2", {"group": None, "bootstrap": None}),
        ("doctor consumer.properties", {"group": None, "bootstrap": None}),
        ("emit --kafka 4.1 --handler 200ms", {"bootstrap": None}),
    ],
)
def test_a_command_takes_what_it_needs(line: str, taken: dict[str, str | None]) -> None:
    options = vars(read(line))
    assert {name: options[name] for name in taken} == taken


def test_name_servers_of_the_environment_are_taken_where_no_kafka_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_BOOTSTRAP")
    monkeypatch.setenv("HOLDFAST_NAMESRV", "here:9876")
    assert (read("lag").bootstrap, read("lag").namesrv) == (None, "here:9876")
    assert read("lag --bootstrap there:9092").namesrv is None


def test_without_them_a_command_says_which_option_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HOLDFAST_GROUP")
    with pytest.raises(SystemExit):
        read("lag")
    assert "--group" in capsys.readouterr().err


def test_an_app_does_not_take_them_for_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(SAID) < set(overrides.TOOLS.values())
    monkeypatch.setenv("HOLDFAST_WORKERS", "3")
    assert Settings.from_environment() == Settings(workers=3)
