"""`holdfast run --check` on a real Kafka and a real Redis: what keeps an app from starting; nothing is changed."""

from __future__ import annotations

import socket
import sys
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.bench import lines
from tests.harness.kafka_brokers import closed_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Here
    from tests.harness.servers.kafka import KafkaServer
    from tests.harness.servers.redis import RedisServer

    Checked = Callable[..., list[tuple[str, str, str]]]

__all__ = ["closed_port"]

APP = """
from holdfast import Holdfast, MemoryClaims, RedisClaims, Retry
from holdfast.adapters.kafka import KafkaSource

conf = {{"bootstrap.servers": {bootstrap!r}, "group.id": {name!r}, **{more!r}}}
app = Holdfast(KafkaSource(conf, assignment={assignment!r}), claims={claims})

@app.handler({topics!r}, name="bill", dead_letter={dead_letter!r}, retry=Retry(topics={delays!r}))
def bill(record): ...
"""


def warnings(found: list[tuple[str, str, str]]) -> list[str]:
    return [detail for check, result, detail in found if (check, result) == ("configuration", "warning")]


@pytest.fixture
def name() -> str:
    return f"shop_{uuid.uuid4().hex[:8]}"


@pytest.fixture
def checked(
    kafka: KafkaServer, redis_url: str, name: str, here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Checked:
    """The checks of an app: name, result, detail."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run(*arguments: str, code: int, **app: Any) -> list[tuple[str, str, str]]:
        usual: dict[str, Any] = {
            "bootstrap": kafka.bootstrap,
            "name": name,
            "more": {},
            "assignment": "sticky",
            "claims": f"RedisClaims.from_url({redis_url!r}, namespace={name!r})",
            "topics": name,
            "dead_letter": None,
            "delays": [],
        }
        module = f"app_{uuid.uuid4().hex}"
        (tmp_path / f"{module}.py").write_text(APP.format(**usual | app))
        ran = here("run", f"{module}:app", "--app-dir", tmp_path, "--check", "--json", *arguments, code=code)
        return [(each["check"], each["result"], each["detail"]) for each in lines(ran)]

    return run


def test_an_app_that_would_start_says_so_and_nothing_is_left_behind(
    checked: Checked, kafka: KafkaServer, redis_server: RedisServer, name: str
) -> None:
    kafka.create_topic(name, 3)
    kafka.create_topic(f"{name}.dlq", 1)
    found = checked(code=0, dead_letter=f"{name}.dlq")
    assert [each[:2] for each in found] == [
        ("import", "ok"),
        ("settings", "ok"),
        ("handlers", "ok"),
        ("broker", "ok"),
        ("configuration", "ok"),
        ("topic", "ok"),
        ("topic", "ok"),
        ("store", "ok"),
    ]
    details = [detail for _, _, detail in found]
    assert f"Kafka at {kafka.bootstrap} answers" in details[3]
    assert details[5:7] == [f"{name}: 3 partitions", f"{name}.dlq (dead letters): 1 partition"]
    assert "persistence" in details[7]
    with redis_server.client() as client:
        assert client.keys("*") == []


def test_a_topic_that_is_missing_fails_and_is_not_made(checked: Checked, kafka: KafkaServer, name: str) -> None:
    for _ in range(2):
        found = checked(code=1, dead_letter=f"{name}.dlq")
        missing = [detail for check, result, detail in found if (check, result) == ("topic", "error")]
        assert [each.split(":")[0] for each in missing] == [name, f"{name}.dlq (dead letters)"]


def test_a_retry_topic_that_is_missing_fails_too(checked: Checked, kafka: KafkaServer, name: str) -> None:
    kafka.create_topic(name, 1)
    kafka.create_topic(f"{name}.{name}.retry.10s", 2)
    found = checked(code=1, delays=["10s", "1min"])
    there, ready, missing = [(result, detail.split(":")[0]) for check, result, detail in found if check == "topic"]
    assert (there, ready) == (("ok", name), ("ok", f"{name}.{name}.retry.10s (retries)"))
    assert missing == ("error", f"{name}.{name}.retry.1min (retries)")


def test_topics_that_lose_what_waits_in_them_are_told(checked: Checked, kafka: KafkaServer, name: str) -> None:
    retry, letters = f"{name}.{name}.retry.10s", f"{name}.dlq"
    kafka.create_topic(name, 1)
    kafka.create_topic(retry, 1, {"cleanup.policy": "compact"})
    kafka.create_topic(letters, 1, {"cleanup.policy": "compact"})
    found = checked(code=1, delays=["10s"], dead_letter=letters)
    wrong = {result: detail for check, result, detail in found if check == "topic" and result != "ok"}
    assert wrong["error"].startswith(f"{retry} has cleanup.policy=compact")
    assert wrong["warning"].startswith(f"{letters} has cleanup.policy=compact")


def test_a_pattern_tells_what_it_matches_now(checked: Checked, kafka: KafkaServer, name: str) -> None:
    pattern = f"^{name}-.*"
    assert ("topic", "warning", f"{pattern}: no topic matches it now") in checked(code=4, topics=pattern)
    kafka.create_topic(f"{name}-a", 1)
    assert ("topic", "ok", f"{pattern}: {name}-a") in checked(code=0, topics=pattern)


def test_servers_that_do_not_answer_are_told_each(checked: Checked, closed_port: str) -> None:
    store = f"RedisClaims.from_url('redis://me:hush@{closed_port}/0')"
    found = checked("--timeout", "0.1", code=1, bootstrap=closed_port, claims=store)
    results = {check: (result, detail) for check, result, detail in found}
    assert results["broker"][0] == results["store"][0] == "error"
    assert closed_port in results["broker"][1]
    assert closed_port in results["store"][1]
    assert results["topic"] == ("skipped", "the broker was not reached")
    assert "hush" not in str(found)


def test_offline_asks_nobody(checked: Checked, closed_port: str) -> None:
    store = f"RedisClaims.from_url('redis://{closed_port}/0')"
    found = checked("--offline", code=0, bootstrap=closed_port, claims=store)
    assert [check for check, _, _ in found] == ["import", "settings", "handlers", "configuration"]


def test_what_the_doctor_finds_is_a_check_that_is_not_well(checked: Checked) -> None:
    found = checked("--offline", code=4, more={"session.timeout.ms": 3_000})
    assert warnings(found)[0].endswith("[session-refused]")


def test_what_the_source_itself_warns_of_is_one_too(checked: Checked) -> None:
    [detail] = warnings(checked("--offline", code=4, assignment=None))
    assert "every rebalance stops the whole group" in detail


def test_a_store_that_is_none_or_in_memory_is_told(checked: Checked, kafka: KafkaServer, name: str) -> None:
    kafka.create_topic(name, 1)
    assert checked(code=0, claims="None")[-1] == ("store", "ok", "none, as claims=None says")
    assert checked(code=4, claims="MemoryClaims()")[-1][:2] == ("store", "warning")


def test_a_namespace_that_is_laid_out_in_another_way_is_told(
    checked: Checked, kafka: KafkaServer, redis_url: str, name: str
) -> None:
    from holdfast import RedisClaims  # noqa: PLC0415 - beside what it lays out

    kafka.create_topic(name, 1)
    store = RedisClaims.from_url(redis_url, namespace=name)
    store.connect()
    store.close()
    claims = f"RedisClaims.from_url({redis_url!r}, namespace={name!r}, hash_keys=True)"
    check, result, detail = checked(code=1, claims=claims)[-1]
    assert (check, result) == ("store", "error")
    assert "is laid out as" in detail


@pytest.mark.parametrize(
    ("arguments", "more", "says"),
    [
        (["--processes", "2"], {"group.instance.id": "till-1"}, "--static and leave"),
        (["--static", "shop"], {"group.instance.id": "till-1"}, "till-1"),
    ],
)
def test_names_that_no_run_could_have_fail_the_check(
    checked: Checked, arguments: list[str], more: dict[str, str], says: str
) -> None:
    [detail] = [
        detail
        for check, result, detail in checked("--offline", *arguments, code=1, more=more)
        if (check, result) == ("processes", "error")
    ]
    assert says in detail


def test_a_port_that_is_taken_and_a_health_file_without_its_folder_fail_the_check(
    checked: Checked, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        found = checked("--offline", "--port", port, "--health-file", str(tmp_path / "no" / "health"), code=1)
    assert [(check, result) for check, result, _ in found if check in ("port", "health file")] == [
        ("port", "error"),
        ("health file", "error"),
    ]


def test_a_check_leaves_the_health_file_of_a_running_app_as_it_is(checked: Checked, tmp_path: Path) -> None:
    file = tmp_path / "health"
    file.write_text("{}")
    assert ("health file", "ok", str(file)) in checked("--offline", "--health-file", str(file), "--port", "0", code=0)
    assert file.read_text() == "{}"
    assert [each.name for each in tmp_path.glob("health*")] == ["health"]
