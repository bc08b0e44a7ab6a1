"""A hand-over trial with several versions of confluent-kafka, on a real broker; `make compat` has allowed ones.

    python -m tests.compat.kafka_clients [VERSION ...]
    python -m tests.compat.kafka_clients --refused 2.12.2           one that holdfast refuses: what does it skip?
    python -m tests.compat.kafka_clients --refused --blind 2.12.2   the same, where the engine believes every gap

Each version is installed into a folder of its own under .servers/kafka-clients, and its trial is a process of its own.
Ends with 1 where a record was lost or handled twice, or, of a version that is allowed, where its client skipped one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.harness.servers.kafka import KafkaServer

_ROOT = Path(__file__).resolve().parents[2]
#: The oldest that is allowed, some between, and whatever is the newest today.
_VERSIONS = ("2.13.2", "2.14.2", "2.15.1", "")
_COLUMNS = ("records", "rebalances", "skipped", "lost", "twice")


def install(version: str) -> Path:
    """Put it into its folder, and nothing else: the rest is as in this environment."""
    folder = _ROOT / ".servers" / "kafka-clients" / (version or "newest")
    if version and (folder / "confluent_kafka").exists():
        return folder
    wanted = f"confluent-kafka=={version}" if version else "confluent-kafka"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--upgrade"]
    subprocess.run([*pip, "--target", str(folder), wanted], check=True)
    return folder


def trial(version: str, bootstrap: str, *options: str) -> dict[str, Any]:
    """One trial. Raises CalledProcessError: its process failed."""
    path = os.pathsep.join((str(install(version)), str(_ROOT)))
    done = subprocess.run(
        [sys.executable, "-m", "tests.compat.kafka_trial", bootstrap, *options],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Returns: the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat.kafka_clients", description=__doc__)
    parser.add_argument(
        "versions", nargs="*", help="of confluent-kafka; the oldest allowed to the newest, if none is named"
    )
    parser.add_argument("--refused", action="store_true", help="also versions that holdfast refuses")
    parser.add_argument("--blind", action="store_true", help="the engine takes every gap for the log's")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long members come and go")
    parser.add_argument("--seed", type=int, default=1, help="who comes and goes, and where records go")
    given = parser.parse_args()
    options = [f"--seconds={given.seconds}", f"--seed={given.seed}"]
    options += [f"--{name}" for name in ("refused", "blind") if getattr(given, name)]
    failed = False
    with KafkaServer() as kafka:
        print("| confluent-kafka | librdkafka |", " | ".join(_COLUMNS), "|", flush=True)
        for version in given.versions or _VERSIONS:
            found = trial(version, kafka.bootstrap, *options)
            failed |= bool(found["lost"] or found["twice"] or (found["skipped"] and not given.refused))
            print(
                f"| {found['confluent_kafka']} | {found['librdkafka']} |",
                " | ".join(str(found[each]) for each in _COLUMNS),
                "|",
                flush=True,
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
