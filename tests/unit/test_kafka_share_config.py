"""What a ShareSource refuses before any connection, and what it gives its clients."""

from __future__ import annotations

import math
from typing import Any

import pytest

from holdfast import Holdfast, MemoryClaims, Retry, Settings
from holdfast.adapters.kafka import ShareSource
from holdfast.adapters.kafka.share.config import check_share
from holdfast.adapters.kafka.share.limits import Limits, beginning, check_times
from holdfast.errors import SettingError
from holdfast.plugin.handlers import Handler

CONF = {"bootstrap.servers": "localhost:9092", "group.id": "jobs"}
LIMITS = Limits(lock_s=30.0, deliveries=5, begins="latest", begins_by_choice=False)


def app(settings: Settings | None = None, **handler: Any) -> Holdfast:
    made = Holdfast(ShareSource(CONF), claims=MemoryClaims(), settings=settings)
    made.handler("jobs", **handler)(print)
    return made


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("auto.offset.reset", "earliest", "share.auto.offset.reset"),
        ("isolation.level", "read_committed", "share.isolation.level"),
        ("group.instance.id", "a", "assigns no partitions"),
        ("enable.auto.commit", False, "acknowledged by itself"),
        ("share.acknowledgement.mode", "implicit", "when it is done"),
        ("max.poll.records", 0, "above 0"),
        ("max.pol.records", 5, "did you mean"),
        ("session.timeout.ms", 6000, "share.session.timeout.ms"),
    ],
)
def test_what_a_share_group_has_not_is_refused_with_what_it_has_instead(name: str, value: object, remedy: str) -> None:
    with pytest.raises(SettingError, match=remedy) as caught:
        ShareSource({**CONF, name: value})
    assert caught.value.field == name


@pytest.mark.parametrize("clients", [0, -1, 1.5, True])
def test_a_number_of_clients_is_one_or_more(clients: Any) -> None:
    with pytest.raises(SettingError, match="clients"):
        ShareSource(CONF, clients=clients)


def test_a_client_asks_for_as_much_as_runs_at_a_time_and_may_hold_it_for_a_lock() -> None:
    conf = check_share(CONF, 1).of_client(name="me-0", records=8, lock_s=600.0, own={})
    assert conf["max.poll.records"] == 8
    assert conf["max.poll.interval.ms"] > 600_000
    assert conf["share.acknowledgement.mode"] == "explicit"
    assert conf["client.id"] == "me-0"


def test_what_the_user_has_set_counts() -> None:
    checked = check_share({**CONF, "max.poll.records": "3", "client.id": "mine"}, 1)
    conf = checked.of_client(name="me-0", records=8, lock_s=30.0, own={})
    assert (conf["max.poll.records"], conf["client.id"]) == (3, "mine")


def test_neither_credentials_nor_what_only_a_share_consumer_knows_get_out() -> None:
    checked = check_share({**CONF, "sasl.password": "secret", "max.poll.records": 3}, 1)
    assert "secret" not in repr(checked)
    assert "max.poll.records" not in checked.conf


class TestHandlers:
    def test_each_needs_a_dead_letter_topic(self) -> None:
        with pytest.raises(SettingError, match=r"dead_letter.*share group drops"):
            app(Settings(handler_timeout_s=5.0)).check()

    def test_each_needs_a_timeout(self) -> None:
        with pytest.raises(SettingError, match="cannot be renewed"):
            app(dead_letter="dead").check()
        with pytest.raises(SettingError, match="cannot be renewed"):
            app(Settings(handler_timeout_s=5.0), dead_letter="dead", timeout_s=math.inf).check()

    def test_one_of_its_own_or_that_of_the_settings_will_do(self) -> None:
        app(Settings(handler_timeout_s=5.0), dead_letter="dead").check()
        app(dead_letter="dead", timeout_s=5.0).check()

    @pytest.mark.parametrize(("timeout_s", "fits"), [(17.5, True), (18.0, False)])
    def test_timeout_and_grace_take_three_quarters_of_the_lock_at_most(self, timeout_s: float, fits: bool) -> None:
        handler = Handler(
            call=print, topics=("jobs",), name="resize", dead_letter="dead", timeout_s=timeout_s, retry=Retry()
        )
        if fits:
            check_times(LIMITS, "jobs", [handler], Settings(handler_grace_s=5.0))
            return
        with pytest.raises(SettingError, match=r"resize.*share.record.lock.duration.ms=31000"):
            check_times(LIMITS, "jobs", [handler], Settings(handler_grace_s=5.0))


def test_a_beginning_that_nobody_has_chosen_is_told_of() -> None:
    said = beginning("jobs", LIMITS)
    assert said is not None
    assert "share.auto.offset.reset=earliest" in said
    assert beginning("jobs", LIMITS._replace(begins_by_choice=True)) is None
    assert beginning("jobs", LIMITS._replace(begins="earliest")) is None
