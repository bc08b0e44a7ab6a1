"""README's table of what runs where is what pyproject.toml, the code and the tests' servers say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from holdfast.adapters.kafka.broker_features import _HEARTBEAT_VERSION
from holdfast.adapters.kafka.quirks import client_version
from holdfast.dedup import redis_server

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
HOME = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
COMPOSE = (ROOT / "compose.yaml").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
ROWS = {
    name: (needed, tried)
    for name, needed, tried in re.findall(r"^\| (\w+) \| ([^|]+) \| ([^|]+) \|$", README, re.MULTILINE)
}


def test_python_is_what_the_package_says() -> None:
    needed, tried = ROWS["Python"]
    assert PROJECT["requires-python"] == f">={_first(needed)}"
    versions = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert re.findall(r"3\.\d+", tried) == versions
    systems = {each.rpartition(" ")[2].lower() for each in PROJECT["classifiers"] if "Operating" in each}
    assert set(re.findall(r"linux|macos", needed.lower())) == systems


def test_kafka_s_client_is_the_oldest_that_is_not_refused() -> None:
    needed, tried = ROWS["Kafka"]
    assert EXTRAS["kafka"] == [f"confluent-kafka>={_first(needed)}"]
    assert int("".join(f"{int(each):02x}" for each in _first(needed).split(".")) + "00", 16) == client_version.OLDEST
    assert "from 4.0 on" in needed
    assert _HEARTBEAT_VERSION == 1, "that of Kafka 4.0"
    assert _first(tried) == _image("apache/kafka")


def test_redis_is_the_oldest_that_is_not_refused() -> None:
    assert _first(ROWS["Redis"][0]) == ".".join(map(str, redis_server._OLDEST))


def test_rocketmq_is_the_one_that_tests_run_on() -> None:
    assert _first(ROWS["RocketMQ"][1]) == _image("apache/rocketmq")


def test_spark_is_what_the_extras_say() -> None:
    needed, tried = ROWS["Spark"]
    oldest, newest = re.findall(r"\d+\.\d+", needed)
    major, minor = newest.split(".")
    assert f"pyspark>={oldest},<{major}.{int(minor) + 1}" in EXTRAS["spark"]
    pinned = {each for name in EXTRAS for each in re.findall(r"pyspark\[connect\]==([\d.]+)", " ".join(EXTRAS[name]))}
    assert set(re.findall(r"\d+\.\d+\.\d+", tried)) == pinned


@pytest.mark.parametrize("part", [r"```sh\npip .*?```", r"```python\n.*?```", r"\| \| you need .*?\n\n"])
def test_the_home_page_begins_as_the_readme_does(part: str) -> None:
    [ours], [theirs] = ([*re.findall(part, text, re.DOTALL)][:1] for text in (README, HOME))
    assert theirs == ours.replace("](docs/", "](")


def _first(text: str) -> str:
    [found, *_] = re.findall(r"\d+(?:\.\d+)*", text)
    return str(found)


def _image(name: str) -> str:
    [version] = set(re.findall(rf"{name}:([\d.]+)", COMPOSE))
    return str(version)
