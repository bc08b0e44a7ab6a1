"""What could not be found out of a group is told by each command that asks about it, for people and for programs."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.cli import migrate, options
from holdfast.adapters.cli.entry import main
from holdfast.tools.advice.emit import KafkaBrokers
from tests.unit.test_doctor_group import P, at, kafka, member

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.tools.advice.group_view import GroupView

_HIDDEN = kafka(
    member(1, *P),
    partitions=[at(each, end=None, fault="no leader") for each in P],
    unseen={"refunds": "this user may not describe it"},
    notes=("the brokers' racks are not known",),
    assignor="range",
    protocol="classic",
)


class Views:
    """A group that is always so."""

    def __init__(self, view: GroupView) -> None:
        self._view = view

    def view(self, *_: object, **__: object) -> GroupView:
        return self._view


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> str:
    @contextmanager
    def views(_: object) -> Iterator[Views]:
        yield Views(_HIDDEN)

    monkeypatch.setattr(options, "group_views_of", views)
    monkeypatch.setattr(migrate, "kafka_brokers", lambda _: KafkaBrokers.of_version("4.1"))
    return _HIDDEN.group


@pytest.mark.parametrize(
    "command",
    [("doctor", "--looks", "1"), ("lag",), ("plan",), ("migrate", "--to", "cooperative")],
    ids=lambda each: each[0],
)
def test_topics_that_cannot_be_described_and_what_else_is_unknown(
    command: tuple[str, ...], group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [*command, "--group", group, "--bootstrap", "broker:9092"]
    main(asked)
    told = capsys.readouterr()
    for said in ("refunds", "this user may not describe it", "racks are not known"):
        assert said in told.out + told.err
    main([*asked, "--json"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for said in ("refunds", "this user may not describe it", "racks are not known"):
        assert any(said in json.dumps(each) for each in lines)


def test_a_lag_of_which_nothing_is_known_is_not_told_as_a_number(
    group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["doctor", "--group", group, "--bootstrap", "broker:9092", "--looks", "1"])
    assert "lag unknown in 4 partitions, 1 topic cannot be described" in capsys.readouterr().out
    main(["doctor", "--group", group, "--bootstrap", "broker:9092", "--looks", "1", "--json"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    [last] = [each for each in lines if each["type"] == "diagnosis"]
    assert last["lag_not_known_in"] == len(P)
