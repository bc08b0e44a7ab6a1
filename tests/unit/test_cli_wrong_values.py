"""Each option of each command, with a value that it cannot have: exit code 2, and a sentence that names the option, the
value and what would do. Nothing is asked, nothing is changed."""

from __future__ import annotations

import argparse
import socket
from typing import TYPE_CHECKING, NoReturn

import pytest

from holdfast.adapters.cli.entry import main, parser

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: What is right where the command wants it.
_RIGHT = {
    "--group": "billing",
    "--topic": "orders",
    "--redis": "redis://127.0.0.1:1/0",
    "--to": "earliest",
    "--handler": "1s",
    "--scope": "billing/orders",
}
_POSITIONAL = {"keys": ["4711"], "application": ["shop:app"], "urls": ["http://127.0.0.1:1"]}
#: Words that no type takes, and numbers that are out of bounds.
_WRONG = ("typo?", "", "-1", "nan", "{x}", "1e999", "9" * 30, "9" * 5_000, "\N{SUPERSCRIPT TWO}")
#: Texts that have a form of their own, though argparse takes any.
_FORMS = {
    "--redis": ("typo", "http://127.0.0.1:1", "redis://127.0.0.1:port"),
    "--namesrv": ("typo", ":1"),
    "--kafka-config": ("absent",),
    "--rocketmq-config": ("absent",),
    "--kafka": ("new", "-1"),
    "--rocketmq": ("new", "-1"),
    "--picture": ("typo",),
    "--described": ("absent",),
    "--config": ("absent",),
    "--static-id": ("a b",),
}
#: Never shown.
_HIDDEN = {"--token"}
#: What they are told apart from when both are said.
_NEEDS = {"--picture": ["--topics", "orders=3", "--members", "2"], "--config": ["--app-dir", "/nowhere"]}


def leaves(
    at: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    below = [each for each in at._actions if isinstance(each, argparse._SubParsersAction)]
    if not below:
        yield words, at
    for each in below:
        for name, found in each.choices.items():
            yield from leaves(found, (*words, name))


def wrong_values(action: argparse.Action) -> Iterator[str]:
    """Values that an option does not take."""
    yield from _FORMS.get(action.option_strings[-1], ())
    for value in _WRONG:
        try:
            found = action.type(value) if callable(action.type) else value
        except (argparse.ArgumentTypeError, ValueError):
            yield value
        else:
            if action.choices is not None and found not in action.choices:
                yield value


def asked(words: Sequence[str], command: argparse.ArgumentParser, option: str, value: str) -> list[str]:
    """The command with what it wants, and that option."""
    said, known = [*words], {name for each in command._actions for name in each.option_strings}
    for each in command._actions:
        name = each.option_strings[-1] if each.option_strings else ""
        if each.required and name and name != option:
            said += [name, _RIGHT[name]]
        if not name:
            said += _POSITIONAL.get(each.dest, [])
    if {"--no-store", "--redis"} <= known and option != "--redis":
        said.append("--no-store")
    if "--scope" in known and "claims" in words and option != "--scope":
        said += ["--scope", _RIGHT["--scope"]]
    brokers = {"--bootstrap", "--kafka-config", "--namesrv", "--rocketmq-config", "--kafka", "--rocketmq"}
    if "--bootstrap" in known and option not in brokers | {"--described", "--picture"}:
        said += ["--bootstrap", "127.0.0.1:1"]
    if (
        "--group" in known
        and "--group" not in said
        and words[0] in ("plan", "doctor", "migrate")
        and option not in _NEEDS
    ):
        said += ["--group", "billing"] if option not in ("--described", "--kafka") else []
    return [*said, *_NEEDS.get(option, ()), f"{option}={value}"]


#: They are for what is said beside them, and that is asked for first.
_BESIDE = {("migrate", "--rocketmq-config"), ("audit", "--kafka-config")}
CASES = [
    pytest.param(words, option.option_strings[-1], id=" ".join((*words, option.option_strings[-1])))
    for words, command in leaves(parser())
    for option in command._actions
    if option.option_strings and option.nargs != 0 and any(True for _ in wrong_values(option))
    if (words[0], option.option_strings[-1]) not in _BESIDE
]


@pytest.mark.parametrize(("words", "name"), CASES)
def test_a_wrong_value_is_refused_by_its_option_and_with_a_remedy(
    words: tuple[str, ...], name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(*_: object, **__: object) -> NoReturn:
        raise AssertionError("somebody is asked")

    monkeypatch.setattr(socket, "create_connection", connect)
    command = dict(leaves(parser()))[words]
    [option] = [each for each in command._actions if name in each.option_strings]
    for value in wrong_values(option):
        try:
            code = main(asked(words, command, name, value))
        except SystemExit as ended:
            code = int(str(ended.code))
        told = capsys.readouterr()
        said = told.err.splitlines()
        assert code == 2, (value, told)
        assert "Traceback" not in told.err
        # A command that changes something tells by a line of its own that it has not.
        sentence = next((each for each in said if name in each and not each.startswith("usage:")), "")
        assert sentence, (value, said)
        if name in _HIDDEN:
            assert len(value) < 8 or value[:20] not in told.err, value
            continue
        shown = value[:20] if name != "--redis" else value.rpartition("?")[0]
        assert shown in sentence or repr(value)[1:-1][:20] in sentence, (value, said)
        remedy = sentence.partition(value[:20])[2] if value else sentence
        assert len(remedy) > len(value) + 10, (value, said)


def test_where_a_group_is_to_go_on_has_all_its_forms_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["reset", "--group", "g", "--topic", "t", "--to", "earlyest", "--no-store", "--bootstrap", "127.0.0.1:1"])
    told = capsys.readouterr().err
    for form in ("earliest", "latest", "4711", "-1000", "+1000", "2026-11-20T10:00:00Z"):
        assert form in told
