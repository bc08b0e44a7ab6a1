"""`make chaos ON=sql`: groups with effects in PostgreSQL, killed, frozen and cut off; SQL counts each effect.
KILLS=200 SEED=1: ten kills a run; each seed has its protocol, its kind of handlers, and its faults."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.harness.effects.field import play
from tests.harness.servers.kafka import KafkaServer
from tests.harness.servers.postgres import PostgresServer
from tests.harness.transactions.field import PROTOCOLS

_A_RUN = 10


def main(arguments: list[str]) -> int:
    """Play the runs. Returns: 1 = an effect is missing, there twice, or out of its order."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.sql", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args(arguments)
    wrong, effects, killed, faults, seed = list[int](), 0, 0, Counter[str](), told.seed
    with (
        KafkaServer() as kafka,
        PostgresServer() as postgres,
        tempfile.TemporaryDirectory(prefix="holdfast-sql-") as folder,
    ):
        while killed < told.kills:
            protocol, began = list(PROTOCOLS)[seed % len(PROTOCOLS)], time.monotonic()
            kills = min(_A_RUN, told.kills - killed)
            played = play(kafka, postgres.database(), Path(folder), seed, protocol=protocol, kills=kills)
            found = played.found
            effects, killed, faults = effects + found.effects, killed + played.kills, faults + played.faults
            said = "right" if found.is_right else f"WRONG: {found}"
            print(f"seed {seed}, {protocol}, {played.kind}: {said}, {time.monotonic() - began:.0f} s", flush=True)
            wrong += [] if found.is_right else [seed]
            seed += 1
    print(f"{seed - told.seed} runs, {killed} kills, {dict(faults)}, {effects} effects; wrong: {wrong or 'none'}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
