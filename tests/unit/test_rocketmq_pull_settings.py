"""What may be said of a RocketMQSource."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.rocketmq.settings import PullOptions, PullSettings
from holdfast.errors import SettingError
from holdfast.plugin.assign import ByConfig, ConsistentHash, MachineRoom, MachineRoomNearby, sticky
from holdfast.records import Partition

if TYPE_CHECKING:
    from holdfast.dedup.groups import Strategy


def settings(**named: Any) -> PullSettings:
    return PullSettings(**{"namesrv": "127.0.0.1:9876", "group": "billing", **named})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("namesrv", ""),
        ("group", "a b"),
        ("group", ""),
        ("message_model", "BROADCASTING"),
        ("consume_from_where", "middle"),
        ("consume_from_where", "CONSUME_FROM_TIMESTAMP"),
        ("consume_timestamp", "20260101000000"),
        ("dedup", "none"),
        ("retry", "never"),
        ("foreign_members", "ignore"),
        ("pull_batch_size", 0),
        ("pull_batch_size", 1.5),
        ("pull_batch_size", 5000),
        ("pull_threshold_size_for_all", -1),
        ("lease_s", float("inf")),
        ("broker_suspend_max_time_s", 100),
        ("secret_key", "hush"),
        ("subscriptions", {"orders": "a||"}),
    ],
)
def test_what_cannot_work_is_refused_by_its_name(name: str, value: object) -> None:
    with pytest.raises(SettingError) as refused:
        settings(**{name: value})
    assert refused.value.field in (name, "consume_timestamp", "access_key")


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("MACHINE_ROOM", r"MachineRoom\(rooms=.*named room@name"),
        ("MACHINE_ROOM_NEARBY-AVG", "MachineRoomNearby"),
        ("CONFIG", "ByConfig"),
        ("AVERAGE", "'AVG' or 'AVG_BY_CIRCLE'"),
    ],
)
def test_a_strategy_that_cannot_work_says_what_to_give_instead(name: str, remedy: str) -> None:
    with pytest.raises(SettingError, match=rf"allocate_strategy='{name}': .*{remedy}"):
        settings(allocate_strategy=name)


NEARBY: Any = {"broker_room": str, "client_room": str}


@pytest.mark.parametrize(
    "strategy",
    [
        "AVG",
        "AVG_BY_CIRCLE",
        "CONSISTENT_HASH",
        ConsistentHash(virtual_nodes=50),
        MachineRoom(rooms={"hz1"}),
        ByConfig(queues={"shop-1": [Partition("orders", 0, "broker-a")]}),
        MachineRoomNearby(**NEARBY),
    ],
)
def test_a_weight_is_refused_where_the_strategy_knows_none(strategy: str | Strategy) -> None:
    assert settings(allocate_strategy=strategy).weight == 1
    with pytest.raises(SettingError, match=r"weight=2: .*'sticky'"):
        settings(allocate_strategy=strategy, weight=2)


@pytest.mark.parametrize("strategy", ["sticky", MachineRoomNearby(**NEARBY, inner=sticky), lambda *_: {}])
def test_a_weight_is_taken_where_it_may_count(strategy: str | Strategy) -> None:
    assert settings(allocate_strategy=strategy, weight=2).weight == 2


def test_broadcasting_is_refused_with_the_reason() -> None:
    with pytest.raises(SettingError, match="nothing to hand over"):
        settings(message_model="BROADCASTING")


@pytest.mark.parametrize("named", ["earliest", "CONSUME_FROM_FIRST_OFFSET"])
def test_a_start_has_two_spellings(named: str) -> None:
    assert settings(consume_from_where=named).start == "earliest"


def test_a_timestamp_is_a_datetime_or_as_javas() -> None:
    when = datetime(2026, 1, 31, 12, tzinfo=UTC)
    local = when.astimezone().strftime("%Y%m%d%H%M%S")
    for said in (when, local):
        found = settings(consume_from_where="CONSUME_FROM_TIMESTAMP", consume_timestamp=said)
        assert found.start_ms == int(when.timestamp() * 1000)


def test_the_secret_key_is_not_shown() -> None:
    keys = {"access_key": "me", "secret_key": "hush"}
    assert "hush" not in repr(settings(**keys))


def test_options_are_the_settings() -> None:
    fields = set(PullSettings.__dataclass_fields__) - {"namesrv", "group"}
    assert set(PullOptions.__annotations__) == fields
