"""What the figures hang on; no names of hosts, and no paths."""

from __future__ import annotations

import functools
import platform
import re
import subprocess
from typing import TYPE_CHECKING

from tests.benchmarks import report
from tests.harness.servers.kafka_node import jars
from tests.harness.servers.postgres import binaries
from tests.harness.servers.rocketmq import jars as rocketmq_jars

if TYPE_CHECKING:
    from pathlib import Path


@functools.cache
def machine() -> dict[str, str]:
    """By names, in the order in which they are told."""
    found = report.machine()
    return {
        "commit": found["commit"],
        "cores": found["cores"],
        "memory": found["memory"],
        "machine": found["machine"],
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", found["system"]),
        "Python": found["python"],
        "Kafka": _jar(jars(), "kafka_"),
        "RocketMQ": _jar(rocketmq_jars(), "rocketmq-broker"),
        "Redis": found["redis-server"],
        "PostgreSQL": _postgres(),
    }


def _jar(folder: Path, name: str) -> str:
    """The version in the name of a jar."""
    return next((each.stem.rpartition("-")[2] for each in folder.glob(f"{name}*.jar")), "unknown")


def _postgres() -> str:
    told = subprocess.run([binaries() / "postgres", "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"\d+(\.\d+)?", told)
    return version[0] if version else "unknown"
