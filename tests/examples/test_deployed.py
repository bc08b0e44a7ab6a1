"""examples/ops: the app as its image starts it, probed and ended as by Kubernetes, on a real Kafka and Redis."""

from __future__ import annotations

import os
import shutil
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from tests.examples.bench import ROOT
from tests.examples.deployed import KUBERNETES, OPS, dockerfile, of, read
from tests.examples.running import Running
from tests.harness.processes import free_ports
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.examples.bench import Shop

CONTAINER = read(KUBERNETES / "statefulset.yaml")["spec"]["template"]["spec"]["containers"][0]


@pytest.fixture
def environment(shop: Shop) -> Mapping[str, str]:
    """Of the pod billing-0, with the tests' servers."""
    names = [each["name"] for each in CONTAINER["env"]]
    [port] = free_ports(1)
    given = {
        "KAFKA": shop.kafka.bootstrap,
        "GROUP": f"billing-{shop.topic}",
        "TOPIC": shop.topic,
        "REDIS": shop.redis_url,
        "STATIC_ID": "billing-0",
    }
    assert sorted(names) == sorted(given)
    return {**os.environ, **given, "SERVE_PORT": str(port), "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """The folder that the Dockerfile makes."""
    for step in of(dockerfile(OPS / "Dockerfile")[-1], "COPY"):
        if "--from" not in step.rest:
            shutil.copy(ROOT / step.words[0], tmp_path)
    return tmp_path


def asked(environment: Mapping[str, str], probe: str) -> int:
    url = f"http://127.0.0.1:{environment['SERVE_PORT']}{CONTAINER[probe]['httpGet']['path']}"
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except urllib.error.URLError:  # it does not serve yet
        return 0


def billed(pod: Running) -> list[str]:
    return [line.split()[-1] for line in list(pod.errors) if " billed " in line]


@contextmanager
def running(image: Path, environment: Mapping[str, str]) -> Iterator[Running]:
    """What the image starts."""
    [entry] = of(dockerfile(OPS / "Dockerfile")[-1], "ENTRYPOINT")
    python, *rest = entry.words
    assert python == "python"
    pod = Running([sys.executable, *rest], environment, cwd=image)
    try:
        yield pod
    finally:
        pod.close()


def lived(image: Path, environment: Mapping[str, str], orders: int) -> list[str]:
    """Start it, wait until so many orders are billed, end it by SIGTERM; which they are."""
    with running(image, environment) as pod:
        until(lambda: asked(environment, "readinessProbe") == 200, lambda: pod.errors[-5:])
        assert asked(environment, "livenessProbe") == 200
        pod.until(lambda: len(billed(pod)) >= orders)
        assert pod.end() == 0, pod.errors
        return billed(pod)


@pytest.mark.full
def test_a_pod_and_its_successor_bill_each_order_once_and_stay_one_static_member(
    shop: Shop, image: Path, environment: Mapping[str, str]
) -> None:
    ids = [f"order-{number}" for number in range(40)]
    shop.send(*ids[:20])
    seen = lived(image, environment, 20)
    shop.send(*ids[20:])
    seen += lived(image, environment, 20)
    assert sorted(seen) == sorted(ids)
    admin = AdminClient({"bootstrap.servers": shop.kafka.bootstrap})
    [group] = admin.describe_consumer_groups([environment["GROUP"]]).values()
    assert [member.group_instance_id for member in group.result(PATIENCE_S).members] == ["billing-0"]


def test_an_image_that_is_started_without_an_address_says_so(image: Path, environment: Mapping[str, str]) -> None:
    with running(image, {name: value for name, value in environment.items() if name != "KAFKA"}) as pod:
        assert pod.ended() == 1
        assert "KAFKA" in pod.errors[-1]
