"""Clients of others, each in a process of its own: what comes back is their last line."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.costs import elsewhere
from tests.harness.group.process import python_of

if TYPE_CHECKING:
    from tests.benchmarks.lab import Speed

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[2]
_PYTHON = python_of("push")
_LIB = Path(os.environ.get("HOLDFAST_ROCKETMQ_LIB", _ROOT / ".servers" / "rocketmq" / "lib"))
_WARM_UPS = 2
_PATIENCE_S = 300.0


def missing_for_classic() -> str | None:
    """What is missing to run rocketmq-client-python; None = nothing."""
    return None if Path(_PYTHON).exists() else f"there is no {_PYTHON}: run `make setup`"


def missing_for_java() -> str | None:
    """What is missing to run the Java client from its source; None = nothing."""
    modules = subprocess.run(["java", "--list-modules"], capture_output=True, text=True, check=True).stdout
    return None if "jdk.compiler@" in modules else "this Java has no compiler: install a JDK (openjdk-17-jdk-headless)"


def classic_push(namesrv: str, topic: str, group: str, records: int) -> Speed:
    """rocketmq-client-python's PushConsumer."""
    return elsewhere([_PYTHON, str(_HERE / "classic.py"), namesrv, group, topic, str(records)], _PATIENCE_S)


def java_push(namesrv: str, topic: str, group: str, records: int) -> Speed:
    """The Java client's push consumer, in a JVM that has consumed the topic before."""
    java = ["java", "-Duser.home=.", "-Xmx512m", "-cp", f"{_LIB}/*", str(_HERE / "JavaPush.java")]
    return elsewhere([*java, namesrv, group, topic, str(records), str(_WARM_UPS)], _PATIENCE_S)
