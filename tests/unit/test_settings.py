"""Settings that cannot work are refused where they are written, by name, value and remedy."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError, fields
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BatchOf, Holdfast, MemoryClaims, Ramp, RedisCoordinator, Retry, Settings, idempotent
from holdfast.adapters.kafka import KafkaConsumer, KafkaSource
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable


def test_the_defaults_work() -> None:
    assert Settings() == Settings()


def test_settings_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings().workers = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Settings(worker=3), "worker=3: Settings has no setting of that name: did you mean workers?"),  # type: ignore[call-arg]
        (lambda: Retry(attempt=3), "attempt=3: Retry has no setting of that name: did you mean attempts?"),  # type: ignore[call-arg]
        (lambda: BatchOf(zzz=3), "zzz=3: BatchOf has no setting of that name: there are records, wait_s"),  # type: ignore[call-arg]
        (lambda: Ramp(head=3), "head=3: Ramp has no setting of that name: did you mean headroom?"),  # type: ignore[call-arg]
        (lambda: Settings(16), "Settings=16: say which one it is: workers=..., as in Settings(...)"),  # type: ignore[call-arg]
    ],
)
def test_a_setting_that_there_is_not_is_one_sentence_with_the_nearest(make: Callable[[], object], told: str) -> None:
    with pytest.raises(SettingError) as caught:
        make()
    assert str(caught.value) == told


def test_a_signature_still_tells_the_settings() -> None:
    assert "workers" in inspect.signature(Settings).parameters


NUMBERS = [field.name for field in fields(Settings) if isinstance(field.default, (int, float))]
WHOLE = [field.name for field in fields(Settings) if isinstance(field.default, int)]
WORDS = {"ordering": "keys", "missing_key": "skip", "store_down": "closed", "on_handler_timeout": "retry"}
AT_ONCE = ("workers", "drain_timeout_s", "linger_timeout_s", "handler_grace_s", "status_interval_s")


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-1, "8", None, True])
def test_a_number_must_be_one_and_not_below_zero(name: str, value: Any) -> None:
    with pytest.raises(SettingError, match=f"^{name}=") as caught:
        Settings(**{name: value})
    assert (caught.value.field, caught.value.value) == (name, value)
    assert caught.value.remedy


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match=f"^{name}=nan"):
        Settings(**{name: float("nan")})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", WHOLE)
def test_a_count_must_be_whole(name: str) -> None:
    with pytest.raises(SettingError, match=f"^{name}=.*whole number"):
        Settings(**{name: 2.5})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NUMBERS)
def test_zero_works_only_where_it_means_at_once(name: str) -> None:
    if name in AT_ONCE:
        Settings(**{name: 0})  # type: ignore[arg-type]
    else:
        with pytest.raises(SettingError, match=f"^{name}=0: use a value above 0"):
            Settings(**{name: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [name for name in NUMBERS if name not in WHOLE])
def test_seconds_may_be_whole_numbers(name: str) -> None:
    assert getattr(Settings(**{name: 3}), name) == 3  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "value"), WORDS.items())
def test_a_word_that_is_not_known_is_refused_with_those_that_are(name: str, value: str) -> None:
    with pytest.raises(SettingError, match=f"^{name}='{value}': use one of '"):
        Settings(**{name: value})  # type: ignore[arg-type]


def test_handlers_may_run_however_long_unless_somebody_says_for_how_long() -> None:
    assert Settings().handler_timeout_s is None
    assert Settings(handler_timeout_s=None) == Settings()
    assert Settings(handler_timeout_s=30).handler_timeout_s == 30
    for value in (0, -1.0, float("nan"), "30", True):
        with pytest.raises(SettingError, match=r"^handler_timeout_s="):
            Settings(handler_timeout_s=value)  # type: ignore[arg-type]


def test_there_is_room_for_a_record_in_each_worker() -> None:
    with pytest.raises(SettingError, match="max_in_flight=4: use at least workers=8"):
        Settings(workers=8, max_in_flight=4)


def test_the_thread_that_polls_cannot_watch_itself() -> None:
    assert Settings(workers=0).workers == 0
    with pytest.raises(SettingError, match="handler_timeout_s=5: use workers=1 or more"):
        Settings(workers=0, handler_timeout_s=5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("records", 0),
        ("records", 2.5),
        ("records", "5"),
        ("records", True),
        ("wait_s", -0.1),
        ("wait_s", "1"),
        ("wait_s", float("nan")),
    ],
)
def test_batches_too(name: str, value: Any) -> None:
    with pytest.raises(SettingError, match=f"^{name}={value!r}: "):
        BatchOf(**{name: value})


URL = "redis://:secret@localhost:6379/0"
CONF = {"bootstrap.servers": "localhost:1", "group.id": "billing"}


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("claims", lambda wrong: Holdfast(KafkaSource(CONF), claims=wrong)),
        ("claims", lambda wrong: KafkaConsumer(CONF, claims=wrong)),
        ("claims", lambda wrong: idempotent(wrong, key="order_id")),
        ("store", RedisCoordinator),
        ("source", lambda wrong: Holdfast(wrong, claims=None)),
        ("settings", lambda wrong: Holdfast(KafkaSource(CONF), claims=None, settings=wrong)),
        ("settings", lambda wrong: KafkaConsumer(CONF, claims=None, settings=wrong)),
        ("observers", lambda wrong: Holdfast(KafkaSource(CONF), claims=None, observers=wrong)),
    ],
)
@pytest.mark.parametrize("wrong", [URL, {"url": URL}, print], ids=["url", "dict", "function"])
def test_what_an_app_is_made_of_is_looked_at_when_it_is_made_and_a_url_is_not_shown(
    field: str, make: Callable[[Any], object], wrong: object
) -> None:
    with pytest.raises(SettingError) as caught:
        make(wrong)
    assert caught.value.field == field
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("make", [Holdfast, KafkaConsumer], ids=lambda make: make.__name__)
def test_an_observer_that_nothing_would_await_is_refused(make: Any) -> None:
    class Waits:
        async def on_event(self, event: object) -> None: ...

    source = KafkaSource(CONF) if make is Holdfast else CONF
    with pytest.raises(SettingError, match=r"^observers='.*Waits.on_event'.*nothing awaits it"):
        make(source, claims=None, observers=[Waits()])


def test_an_idempotent_function_waits_for_a_number_of_seconds() -> None:
    with pytest.raises(SettingError, match=r"^wait_s='3': "):
        idempotent(MemoryClaims(), key="order_id", wait_s="3")  # type: ignore[call-overload]
