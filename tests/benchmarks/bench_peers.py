"""What a record costs in peers, each in an environment of its own, beside ours and a bare loop of the same run."""

from __future__ import annotations

import subprocess
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from tests.benchmarks import consumers
from tests.benchmarks.costs import cost, elsewhere
from tests.benchmarks.peers.environments import ARROYO, FASTSTREAM, QUIX_STREAMS, ROOT, python_of
from tests.benchmarks.registry import Row, benchmark

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.benchmarks.lab import Lab, Speed

_BARE = "bare consume(500) loop"
_RECORDS = 200_000
#: Tells whether a peer runs at all, before the rounds.
_TRIAL = 1_000
_PATIENCE_S = 300.0


class _Ours(NamedTuple):
    measure: Callable[..., Speed]
    note: str


class _Peer(NamedTuple):
    requirement: str
    module: str
    note: str
    words: tuple[str, ...] = ()
    #: A record at a time through a thread and an event loop takes half a millisecond.
    records: int = _RECORDS


_APP = partial(consumers.app, ordering="partition")
_POSITION = "position dedup in Redis, drain"
_OURS = {
    "holdfast, in the polling thread": _Ours(partial(_APP, workers=0), _POSITION),
    "holdfast, 16 workers": _Ours(partial(consumers.app, workers=16), f'{_POSITION}; ordering="key"'),
    "holdfast, batch handler": _Ours(partial(consumers.app, workers=2, batch=True), f"{_POSITION}; up to 500 records"),
    "holdfast, key=record_key(), 16 workers": _Ours(
        partial(consumers.app, keys=True, workers=16), "a claim in Redis on each record's key besides"
    ),
    "holdfast, async def": _Ours(partial(consumers.app, coroutine=True), _POSITION),
}
_NO_DEDUP = "no dedup"
_FASTSTREAM_MODULE = "faststream_confluent"
_PEERS = {
    "quix-streams, update()": _Peer(
        QUIX_STREAMS,
        "quix_streams",
        f"{_NO_DEDUP}; a crash repeats up to 5 s; handlers one after the other, in the polling thread",
    ),
    "arroyo, RunTask": _Peer(
        ARROYO,
        "sentry_arroyo",
        f"{_NO_DEDUP}; a crash repeats what its commits have not; handlers one after the other, in the polling thread",
    ),
    "faststream, as by default": _Peer(
        FASTSTREAM, _FASTSTREAM_MODULE, f"{_NO_DEDUP}; at most once: a crash loses records", records=20_000
    ),
    "faststream, AckPolicy.ACK": _Peer(
        FASTSTREAM, _FASTSTREAM_MODULE, f"{_NO_DEDUP}, no drain; a commit for each record", ("ack",), 20_000
    ),
    "faststream, AckPolicy.ACK, batch=True, max_records=500": _Peer(
        FASTSTREAM, _FASTSTREAM_MODULE, f"{_NO_DEDUP}, no drain; a commit for each batch", ("batch",)
    ),
}


@benchmark("peers", by_name_alone=True)
def peers(lab: Lab) -> list[Row]:
    """Each consumes a topic to its end: a trivial handler, 8 partitions, messages of 100 bytes. A peer that cannot be
    installed, or does not run, is a row that says so."""
    some = 20_000 if lab.quick else _RECORDS
    measures = {_BARE: partial(lab.consume, consumers.bare, some, store=False)}
    measures |= {name: partial(lab.consume, each.measure, some) for name, each in _OURS.items() if lab.wants(name)}
    notes = {name: each.note for name, each in _OURS.items()}
    absent: list[Row] = []
    for name, each in _PEERS.items():
        if not lab.wants(name):
            continue
        notes[name] = f"{each.requirement}; {each.note}"
        try:
            run = partial(_measure_peer, lab, each, python_of(each.module, each.requirement))
            run(_TRIAL)
        except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
            said = str(error).strip().splitlines()[-1]
            absent.append(Row(what=name, figure=float("nan"), unit=" us", note=f"{each.requirement}: {said}"))
            continue
        measures[name] = partial(run, min(each.records, some))
    speeds = lab.in_turns(5, measures)
    return [
        cost(name, own, against=None if name == _BARE else speeds[_BARE], note=notes.get(name, ""))
        for name, own in speeds.items()
    ] + absent


def _measure_peer(lab: Lab, peer: _Peer, python: Path, records: int) -> Speed:
    """Raises: RuntimeError, TimeoutExpired: it did not come to the end."""
    module = f"tests.benchmarks.peers.{peer.module}"
    group = f"bench-{uuid4().hex[:8]}"
    command = [str(python), "-m", module, lab.kafka.bootstrap, lab.topic(records), group, str(records), *peer.words]
    return elsewhere(command, _PATIENCE_S, {"PYTHONPATH": str(ROOT)})
