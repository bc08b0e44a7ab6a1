"""What a LeasedSource refuses before anything is connected, and what the proxy's codes mean."""

from __future__ import annotations

from concurrent.futures import CancelledError
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.adapters.rocketmq.grpc import faults
from holdfast.adapters.rocketmq.grpc.config import GrpcConfig
from holdfast.adapters.rocketmq.grpc.delivery import Verdict
from holdfast.errors import NotAuthorised, SettingError, SourceUnavailable, UnknownTopic

_SECRETS = {"secret_key": "s3cret"}


def config(**given: Any) -> GrpcConfig:
    usual: dict[str, Any] = {"endpoints": "localhost:8081", "group": "billing", "request_timeout_s": 3}
    return GrpcConfig(**usual | given)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("endpoints", ""),
        ("endpoints", "localhost"),
        ("endpoints", "localhost:8081;other"),
        ("endpoints", "localhost:70000"),
        ("group", " "),
        ("invisible_s", 9),
        ("invisible_s", 43_201),
        ("invisible_s", 10.5),
        ("in_flight", 0),
        ("in_flight", True),
        ("request_timeout_s", 11),
    ],
)
def test_what_cannot_work_is_refused_with_the_field_s_name(field: str, value: object) -> None:
    with pytest.raises(SettingError, match=field):
        config(**{field: value})


def test_half_of_the_credentials_is_refused() -> None:
    with pytest.raises(SettingError, match="secret_key"):
        config(access_key="me")
    with pytest.raises(SettingError, match="access_key"):
        config(**_SECRETS)


def test_credentials_are_not_shown() -> None:
    shown = repr(config(access_key="me-myself", **_SECRETS))
    assert "s3cret" not in shown
    assert "me-myself" not in shown


def test_tags_are_those_of_the_topic_or_all() -> None:
    made = config(tags={"orders": "paid || open"})
    assert (made.expression("orders"), made.expression("other")) == ("paid || open", "*")


class Answer(Exception):
    def __init__(self, code: int) -> None:
        super().__init__("words")
        self.code = code


class Broken(Exception):
    def __init__(self, name: str) -> None:
        super().__init__("words")
        self._name = name

    def code(self) -> SimpleNamespace:
        return SimpleNamespace(name=self._name)

    def details(self) -> str:
        return "words"


@pytest.mark.parametrize(
    ("raised", "kind", "retriable"),
    [
        (Answer(40402), UnknownTopic, False),
        (Answer(40100), NotAuthorised, False),
        (Answer(40300), NotAuthorised, False),
        (Answer(50001), SourceUnavailable, True),
        (Answer(42900), SourceUnavailable, True),
        (Answer(40018), SourceUnavailable, True),
        (Broken("UNAVAILABLE"), SourceUnavailable, True),
        (Broken("DEADLINE_EXCEEDED"), SourceUnavailable, True),
        (Broken("UNAUTHENTICATED"), NotAuthorised, False),
        (CancelledError(), SourceUnavailable, True),
        (KeyError("broker-a"), SourceUnavailable, True),
    ],
)
def test_what_the_client_raises_is_told_by_its_code(raised: Exception, kind: type[Exception], retriable: bool) -> None:
    found = faults.failure(raised, "receiving")
    assert type(found) is kind
    assert found.retriable is retriable


def test_a_request_that_can_never_be_served_stops_the_app() -> None:
    assert faults.failure(Answer(40011), "receiving").retriable is False


def test_verdicts_are_those_of_each_entry_where_there_are_any() -> None:
    done, over, unknown = Verdict.DONE, Verdict.OVER, Verdict.UNKNOWN
    assert faults.verdicts_of(20000, {"a": 20000, "b": 20000}, "ab") == [done, done]
    assert faults.verdicts_of(30000, {"a": 20000, "b": 40013, "c": 50001}, "abc") == [done, over, unknown]
    assert faults.verdicts_of(50001, {}, "ab") == [unknown, unknown]
    assert faults.verdicts_of(40013, {}, "a") == [over]
    assert faults.verdicts_of(30000, {"a": 20000}, "ab") == [unknown, unknown]
    # With enableBatchAck the proxy first has those whose lease is over, then broker by broker (ConsumerProcessor).
    assert faults.verdicts_of(30000, {"c": 40013, "b": 50001, "a": 20000}, "abc") == [done, unknown, over]
