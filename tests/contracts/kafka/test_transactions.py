"""Transactions on a real broker: each output once, in the order of its key, whatever becomes of the members."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from holdfast import Holdfast, Outputs, Record, Settings
from holdfast.adapters.kafka import KafkaSource, Transactions, transactional_producer
from holdfast.errors import SourceError
from holdfast.plugin.handling.outputs import Output
from tests.harness.servers.kafka import KafkaServer
from tests.harness.transactions.field import PROTOCOLS, Field, play
from tests.harness.transactions.member import KINDS, Kind, app_of
from tests.harness.waiting import PATIENCE_S, until
from tests.tiers import first_and_full

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast import HandlerCall

#: Ten of them, over all protocols and kinds of handlers; `make test` has one of each.
_RUNS = [(seed, list(PROTOCOLS)[seed % 3], KINDS[seed // 3 % 3]) for seed in range(10)]
RUNS = [run if run[0] in (0, 4, 8) else pytest.param(*run, marks=pytest.mark.full) for run in _RUNS]


@pytest.mark.parametrize(("seed", "protocol", "kind"), RUNS)
def test_each_output_is_there_once_and_in_the_order_of_its_key_though_members_are_killed(
    kafka: KafkaServer, tmp_path: Path, seed: int, protocol: str, kind: Kind
) -> None:
    found = play(kafka, tmp_path, seed, protocol=protocol, kind=kind)
    assert found.is_right, found
    assert found.expected > 300


def running(field: Field, **how: Any) -> Iterator[Holdfast]:
    """A member in this process."""
    app = app_of(field.told(**how))
    app.start()
    try:
        yield app
    finally:
        app.stop(wait=True)


member = contextmanager(running)


@pytest.fixture(params=first_and_full(reversed(list(PROTOCOLS)), 1))
def field(request: pytest.FixtureRequest, kafka: KafkaServer, tmp_path: Path) -> Iterator[Field]:
    with Field(kafka, tmp_path, protocol=request.param) as made:
        yield made


@pytest.fixture
def group(kafka: KafkaServer, tmp_path: Path) -> Iterator[Field]:
    """On one protocol."""
    with Field(kafka, tmp_path, protocol="consumer") as made:
        yield made


class Unclear:
    """A producer whose commits have no clear end: made or not, the client is finished."""

    def __init__(self, conf: dict[str, Any], ends: list[bool]) -> None:
        self._real, self._ends, self._wrote = Producer(conf), ends, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def produce(self, *args: Any, **kwargs: Any) -> None:
        self._wrote = True
        self._real.produce(*args, **kwargs)

    def commit_transaction(self, timeout: float) -> None:
        wrote, self._wrote = self._wrote, False
        if not self._ends or not wrote:
            self._real.commit_transaction(timeout)
            return
        if self._ends.pop():
            self._real.commit_transaction(timeout)
        raise KafkaException(KafkaError(KafkaError._FATAL, "not clear", True))


@pytest.mark.parametrize("made", [True, False])
def test_what_became_of_a_transaction_without_a_clear_end_is_read_from_the_groups_offsets(
    group: Field, monkeypatch: pytest.MonkeyPatch, made: bool
) -> None:
    ends = [made] * 3
    monkeypatch.setitem(vars(transactional_producer), "Producer", lambda conf: Unclear(conf, ends))
    with member(group):
        for _ in range(6):
            group.produce(20)
            group.await_committed()
    assert ends == []
    assert group.found().is_right


def test_of_who_died_in_the_middle_of_a_transaction_the_next_owner_waits_for_its_end(field: Field) -> None:
    dying = field.join(dies=("commit_transaction", 2))
    field.produce(200)
    dying.wait(PATIENCE_S)
    with member(field):
        field.await_committed()
    assert field.found().is_right


def test_a_member_that_another_producer_of_its_name_has_fenced_goes_on(group: Field) -> None:
    with member(group, static_id="one"):
        group.produce(50)
        group.await_committed()
        name = f"{group.group}:one"
        other = Producer({"bootstrap.servers": group.kafka.bootstrap, "transactional.id": name, "log_level": 0})
        other.init_transactions(PATIENCE_S)
        group.produce(50)
        group.await_committed()
    assert group.found().is_right


@pytest.mark.parametrize("why", first_and_full(["size", "topic"], 1))
def test_an_output_that_no_broker_will_take_stops_the_app_and_names_the_topic(group: Field, why: str) -> None:
    app = app_of(group.told(target=group.target if why == "size" else f"{group.target}.missing"))

    @app.use
    def larger(call: HandlerCall) -> Iterator[None]:
        yield
        if why == "size":
            current_made(call).append(Output(group.target, None, bytes(2_000_000)))

    group.produce(5, "well")
    with pytest.raises(SourceError, match=rf"writing an output to {group.target}"):
        app.run(install_signal_handlers=False)
    assert sum(group.kafka.committed(group.group, group.source).values()) == 0


def current_made(call: HandlerCall) -> list[Output]:
    """What the handler of that call has sent."""
    owner: Any = call.record.fence
    sent: list[Output] = owner.made._calls[call.record.offset].outputs
    return sent


@pytest.mark.full
def test_a_producer_that_the_broker_has_forgotten_is_replaced(tmp_path: Path) -> None:
    forgets = {
        "transactional.id.expiration.ms": "1000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    }
    with KafkaServer(properties=forgets) as kafka, Field(kafka, tmp_path, protocol="consumer") as group:
        with member(group):
            group.produce(100)
            group.await_committed()
            until(lambda: group.group not in kafka.transactional_ids())
            group.produce(100)
            group.await_committed()
        assert group.found().is_right


@pytest.mark.full
def test_a_broker_that_restarts_costs_no_output(tmp_path: Path) -> None:
    with KafkaServer() as kafka, Field(kafka, tmp_path, protocol="consumer") as group:
        with member(group):
            group.produce(100)
            group.await_committed()
            for _ in range(2):
                group.produce(300)
                kafka.restart()
            group.produce(100)
            group.await_committed()
        assert group.found().is_right


def test_what_a_handler_makes_that_outlives_its_drain_is_dropped_and_the_new_owner_makes_it(group: Field) -> None:
    let_go, calls = threading.Event(), list[tuple[str, int, int]]()

    def app(name: str) -> Holdfast:
        conf = {"bootstrap.servers": group.kafka.bootstrap, "group.id": group.group, **group.protocol}
        source = KafkaSource(conf, assignment="keep", transactions=Transactions())
        made = Holdfast(source, claims=None, settings=Settings(workers=8, drain_timeout_s=0.5, ramp=None))

        @made.handler(group.source)
        def handle(record: Record, *, out: Outputs) -> None:
            calls.append((name, record.partition.number, record.offset))
            if name == "first":
                let_go.wait(PATIENCE_S)
            out.send(group.target, key=record.key, value=record.value)

        return made

    group.produce(60, "well")
    first, second = app("first"), app("second")
    first.start()
    until(lambda: len(calls) >= 6)
    second.start()
    until(lambda: any(name == "second" for name, *_ in calls))
    let_go.set()
    group.await_committed()
    for each in (first, second):
        each.stop(wait=True)
    twice = {(number, offset) for name, number, offset in calls if name == "first"}.intersection(
        (number, offset) for name, number, offset in calls if name == "second"
    )
    assert twice
    assert group.found().is_right
