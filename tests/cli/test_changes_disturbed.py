"""Every command that changes something, its output closed at each line, and killed at any moment: it is done, or says
that it is not; and run again to its end, nothing is lost, and nothing is done twice that was known as done."""

from __future__ import annotations

import contextlib
import random
import secrets
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pytest

from tests.cli.bench import Shop, holdfast, lay_out, lines
from tests.cli.changing import CHANGES, Change, Servers, last_line
from tests.harness import forks
from tests.harness.rocketmq_field import Field
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.harness.servers.kafka import KafkaServer
    from tests.harness.servers.rocketmq import RocketMQServer

pytestmark = pytest.mark.full
#: Of a command that says more, some lines are drawn.
_LINES = 8
#: How long a command lasts at most: it is learned from those that were struck too late.
_WHOLE_S = 3.0
_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


@pytest.fixture
def servers(kafka: KafkaServer, rocketmq: RocketMQServer, redis_url: str, tmp_path: Path) -> Servers:
    return Servers(kafka, rocketmq, redis_url, tmp_path)


@pytest.fixture
def drawn(request: pytest.FixtureRequest) -> random.Random:
    """As `--seed` says; else each run draws others, and says which."""
    seed = request.config.getoption("--seed") or secrets.randbelow(1 << 31) + 1
    print(f"again with: --seed {seed}")
    return random.Random(f"{seed} {request.node.nodeid}")


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["table", "json"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_done_whichever_line_was_the_last_that_was_read(
    name: str, form: Sequence[str], servers: Servers, drawn: random.Random
) -> None:
    made = CHANGES[name][0]
    with made(servers) as calm:
        ran = holdfast(*calm.command, *form, code=calm.code)
        calm.done()
    count = len((ran.stdout + ran.stderr).splitlines())
    lines = range(count + 1) if count <= _LINES else sorted(drawn.sample(range(count + 1), _LINES))
    for line in lines:
        with made(servers) as change, tempfile.TemporaryFile() as nowhere:
            cut = ("tests.harness.cutting", str(line), "holdfast", *change.command, *form)
            process = forks.fork(*cut, out=nowhere.fileno(), err=nowhere.fileno())
            assert process.wait(PATIENCE_S) == change.code, line
            change.done()


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_is_killed_is_made_by_the_next_run(name: str, servers: Servers, drawn: random.Random) -> None:
    made, kills = CHANGES[name]
    whole_s, number = _WHOLE_S, 0
    while number < kills:
        how = _SIGNALS[number % len(_SIGNALS)]
        with made(servers) as change:
            struck = _struck(change, how, drawn.uniform(0.0, whole_s))
            if struck.too_late:
                whole_s = min(whole_s, struck.lived_s)
            else:
                number += 1
                change.disturbed(struck.told)
                if struck.told is None and how is not signal.SIGKILL:
                    change.untouched()
            for _ in range(2):
                holdfast(*change.command, code=(change.code, change.code_again))
                change.done()


class _Struck(NamedTuple):
    """A command that got a signal."""

    #: It had ended by itself.
    too_late: bool
    lived_s: float
    #: Its last line; None: it had no time for one.
    told: Mapping[str, Any] | None


def _struck(change: Change, how: signal.Signals, after_s: float) -> _Struck:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.monotonic()
        process = forks.fork("holdfast", *change.command, "--json", out=out.fileno(), err=err.fileno())
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(after_s)
        lived_s = time.monotonic() - began
        too_late = process.poll() is not None
        process.send_signal(how)
        code = process.wait(PATIENCE_S)
        out.seek(0)
        err.seek(0)
        said, noted = out.read().decode(), err.read().decode()
    print(f"{how.name} after {after_s:.3f} s: {'too late' if too_late else f'exit code {code}'}")
    told = last_line(said)
    assert code in (change.code, -how, 130), noted
    assert code != 130 or "Traceback" not in noted, noted
    return _Struck(too_late, lived_s, told)


class _AgainAndAgain:
    """A command, run until the end of the context; what it says and how it ends."""

    def __init__(self, *command: str) -> None:
        self._command, self._over = command, threading.Event()
        self.ends: list[tuple[int, dict[str, Any]]] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        until(lambda: self.ends, "the first run has no end")
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            ran = holdfast(*self._command, code=(0, 1, 3))
            self.ends.append((ran.returncode, lines(ran)[-1]))

    def until_refused(self) -> None:
        """Wait for a run that began since now, and was refused."""
        since = len(self.ends) + 1
        until(lambda: [code for code, _ in self.ends[since:] if code == 1], lambda: self.ends)


def _refused_or_before(ends: Sequence[tuple[int, dict[str, Any]]]) -> None:
    """Resets were made before a member had joined, and none since the first one that was refused."""
    codes = [code for code, _ in ends]
    assert 0 not in codes[codes.index(1) :]
    for code, told in ends:
        assert (told["type"], told["done"]) == ("reset", code == 0)
        assert code == 0 or (told["offsets"] == "unchanged" and told["error"])


def test_a_reset_beside_a_group_of_kafka_that_starts_and_works_is_refused_and_nothing_runs_twice(
    kafka: KafkaServer, redis_url: str
) -> None:
    lay_out(redis_url)
    shop = Shop(kafka, redis_url, key=None)
    shop.send(range(200))
    reset = ("reset", "--group", shop.group, "--topic", shop.topic, "--to", "earliest", "--yes", "--new", "--json")
    with _AgainAndAgain(*reset, *shop.both) as resets, shop.app():
        shop.until(billed=200)
        resets.until_refused()
        resets.__exit__()
    assert shop.billed == Counter(range(200))
    _refused_or_before(resets.ends)


def test_a_reset_beside_a_group_of_rocketmq_that_starts_and_works_is_refused_and_nothing_runs_twice(
    rocketmq: RocketMQServer, redis_url: str
) -> None:
    lay_out(redis_url)
    with Field(rocketmq, redis_url, queues=2) as field:
        orders = field.fill("order-", 50)
        where = ("--namesrv", rocketmq.namesrv, "--redis", redis_url)
        reset = (
            "reset",
            "--group",
            field.group,
            "--topic",
            field.topic,
            "--to",
            "earliest",
            "--yes",
            "--new",
            "--json",
        )
        with _AgainAndAgain(*reset, *where) as resets:
            field.app()
            field.wait_handled(*orders)
            resets.until_refused()
        assert Counter(field.values()) == Counter(orders)
        _refused_or_before(resets.ends)


def test_letters_that_go_back_beside_a_group_at_work_are_handled_once_each(kafka: KafkaServer, redis_url: str) -> None:
    lay_out(redis_url)
    shop = Shop(kafka, redis_url)
    shop.declined = set(range(0, 200, 2))
    with shop.app():
        shop.send(range(200))
        shop.until(billed=100)
        shop.until_letters(100)
        shop.declined.clear()
        replay = ("dead-letters", "replay", "--topic", shop.dlq, "--origin", shop.topic, "--yes", "--json", *shop.both)
        told = [lines(holdfast(*replay))[-1] for _ in range(2)]
        shop.until(billed=200)
    assert [each["sent"] for each in told] == [{shop.topic: 100}, {}]
    assert shop.billed == Counter(range(200))
