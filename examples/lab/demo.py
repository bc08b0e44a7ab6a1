"""`make demo`: what happens to orders when a group of consumers changes, without holdfast and with it.

The demo starts an embedded broker, an embedded Redis and three groups of member processes: two of plain
confluent-kafka, one of holdfast. All groups get the same orders, and the same happens to each: a member joins, one
leaves, one is killed, one is frozen for longer than the group waits, one order takes longer than a loop may be away
from `poll()`. Each handler writes to a ledger. The ledger belongs to no consumer, and tells what was done twice and
what was never done.

    python -m examples.lab.demo
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from examples.lab.embedded_redis import EmbeddedRedis, RedisMissing
from examples.lab.group import KINDS, Group, Kind
from examples.lab.ledger import LedgerReader
from examples.lab.mock_broker import MockBroker, MockBrokerError
from examples.lab.orders import OrderStream
from examples.lab.progress import Progress
from examples.lab.referee import Mark, Verdict, judge
from examples.lab.script import END_S, SCRIPT, Step
from examples.lab.side import Side
from examples.lab.table import explanation, table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

_PARTITIONS = 8
_SETTLE_S = 15.0
#: The end's own: a group that hands the slow order round never catches up.
_LAST_S = 5.0
_SLOW_ORDER_S = 9.0
_LEAVE_TIMEOUT_S = 20.0


class DemoFailed(RuntimeError):
    """The demo could not be carried out. The message says why."""


class Demo:
    """One run of the script."""

    def __init__(self, sides: Sequence[Side], stream: OrderStream, progress: Progress, *, per_second: float) -> None:
        self._sides = sides
        self._stream = stream
        self._progress = progress
        self._calm = per_second / 2
        self.events: list[tuple[float, str]] = []
        self.until = 0.0

    def run(self) -> None:
        """All steps, then the end of the stream, then everybody leaves."""
        began = time.monotonic()
        for step, following in zip(SCRIPT, [*(step.at_s for step in SCRIPT[1:]), END_S], strict=True):
            self._do(step, began + following)
        self._stream.stop()
        self._progress.say("no more orders; the groups finish what is left")
        self._watch(since=time.monotonic(), calm=0, until=time.monotonic() + _LAST_S)
        self._leave()

    def _do(self, step: Step, following: float) -> None:
        self._progress.say(step.told)
        self.events.append((time.monotonic(), step.label))
        if step.slow_order:
            self._stream.slow()
        for side in self._sides:
            now = time.monotonic()
            victim = step.do(side)
            if step.phase:
                side.marks.append(Mark(name=step.phase, at=now, graceful=step.graceful, victim=victim))
        # A slow machine gets more time, so that what one event causes is not counted with the next.
        self._watch(since=following, calm=self._calm, until=following + (_SETTLE_S if step.settles else 0))

    def _watch(self, *, since: float, calm: float, until: float) -> None:
        """Look on until `since`, and then until no group has more than `calm` orders waiting; at most till `until`."""
        while (now := time.monotonic()) < until:
            self._look()
            if now >= since and all(self._waiting(side) <= calm for side in self._sides):
                return
            time.sleep(0.05)  # how often the ledgers are read

    def _look(self) -> None:
        for side in self._sides:
            side.catch_up()
            for member in side.group.look():
                log = side.group.log_of(member)
                last = log.read_text(errors="replace").strip().splitlines()[-12:]
                raise DemoFailed(
                    f"member {member} of {side.group.kind.title!r} ended by itself. The end of {log}:\n"
                    + "\n".join(f"    {line}" for line in last)
                )
        if self._stream.failure is not None:
            raise DemoFailed(self._stream.failure)
        self._progress.tick("   ".join(self._standing(side) for side in self._sides))

    def _waiting(self, side: Side) -> int:
        return len(self._stream.produced[side.topic]) - len(side.done)

    def _standing(self, side: Side) -> str:
        again = side.started - len(side.begun)
        return f"{side.group.kind.name} {len(side.done):,} / {again:,} / {max(0, self._waiting(side)):,}"

    def _leave(self) -> None:
        self._progress.say("all members leave (SIGTERM)")
        for side in self._sides:
            side.marks.append(Mark(name="end", at=time.monotonic(), graceful=True))
            for member in side.group.running():
                side.group.terminate(member)
        give_up = time.monotonic() + _LEAVE_TIMEOUT_S
        while any(side.group.running() for side in self._sides):
            self._look()
            if time.monotonic() > give_up:
                late = [f"{side.group.kind.title}: {', '.join(side.group.running())}" for side in self._sides]
                raise DemoFailed(f"still running {_LEAVE_TIMEOUT_S:.0f} s after SIGTERM: {'; '.join(late)}")
            time.sleep(0.05)
        self._look()
        self.until = time.monotonic()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.lab.demo", description=(__doc__ or "").split("\n\n")[0])
    names = [kind.name for kind in KINDS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="leave the other consumers out")
    parser.add_argument("--per-second", type=float, default=300, help="orders for each consumer (default %(default)s)")
    parser.add_argument("--backlog", type=int, default=300, help="orders that wait at the start (default %(default)s)")
    parser.add_argument("--handler-ms", type=float, default=3, help="how long an order takes (default %(default)s)")
    parser.add_argument(
        "--workers",
        type=int,
        default=4,
        help="holdfast's handlers at a time in each process (default %(default)s; a plain loop has one)",
    )
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="folder for results (default %(default)s)")
    parser.add_argument("--events", action="store_true", help="members tell what they do, in OUT/events")
    options = parser.parse_args(arguments)
    options.out = options.out.resolve()  # members run in the checkout's folder, wherever this one was started
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; the exit status says whether holdfast kept its promise."""
    options = _options(arguments)
    # A plain kill is to clean up as well: both ways out unwind through the context managers below.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _run(options)
    except KeyboardInterrupt:
        print("\nstopped; all processes have ended", file=sys.stderr)
        return 130
    except (DemoFailed, MockBrokerError, RedisMissing) as error:
        print(f"\nThe demo could not be carried out: {error}", file=sys.stderr)
        return 2


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _run(options: argparse.Namespace) -> int:
    progress = Progress()
    for folder in ("events", "logs"):  # of another run
        shutil.rmtree(options.out / folder, ignore_errors=True)
    kinds = [kind for kind in KINDS if kind.name in options.only]
    topics = {kind: f"orders-{kind.name}" for kind in kinds}
    with contextlib.ExitStack() as cleanup:
        progress.say("starting an embedded broker (librdkafka's mock cluster)")
        broker = cleanup.enter_context(MockBroker(dict.fromkeys(topics.values(), _PARTITIONS)))
        redis_url = ""
        if any(kind.name == "holdfast" for kind in kinds):
            server = EmbeddedRedis()
            progress.say(f"starting an embedded Redis ({server.binary})")
            redis_url = cleanup.enter_context(server).url
        for kind in kinds:
            progress.say(f"{kind.title}: {kind.what}")
        stream = OrderStream(
            broker.bootstrap_servers, list(topics.values()), per_second=options.per_second, backlog=options.backlog
        )
        servers = ["--bootstrap-servers", broker.bootstrap_servers, "--redis-url", redis_url]
        sides = [_side(kind, topics[kind], servers=servers, options=options) for kind in kinds]
        for side in sides:
            cleanup.callback(side.reader.close)
            cleanup.callback(side.group.close)
        progress.say(f"{options.backlog:,} orders wait for each, {options.per_second:.0f} a second follow")
        stream.start()
        progress.say("from now on, for each: handled / handled again / waiting")
        cleanup.callback(stream.stop)
        demo = Demo(sides, stream, progress, per_second=options.per_second)
        demo.run()
        progress.say("counting")
        verdicts = {
            side.group.kind: judge(
                stream.produced[side.topic],
                side.entries,
                side.marks,
                per_second=options.per_second,
                until=demo.until,
            )
            for side in sides
        }
        progress.say("drawing the picture")
        pictures = _draw(sides, verdicts, demo, options.out)
        progress.done()
    return _report(verdicts, pictures, options.out)


def _side(kind: Kind, topic: str, *, servers: Sequence[str], options: argparse.Namespace) -> Side:
    logs: Path = options.out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    ledger: Path = options.out / f"ledger-{kind.name}.txt"
    ledger.unlink(missing_ok=True)
    command_line = [
        *servers,
        *("--topic", topic, "--group", f"billing-{kind.name}", "--ledger", str(ledger)),
        *("--handler-ms", str(options.handler_ms), "--slow-order-s", str(_SLOW_ORDER_S)),
        *("--workers", str(options.workers)),
        *(("--events", str(options.out / "events")) if options.events else ()),
    ]
    return Side(Group(kind, command_line, logs), LedgerReader(ledger), topic)


def _draw(sides: Sequence[Side], verdicts: dict[Kind, Verdict], demo: Demo, out: Path) -> list[Path]:
    # Imported here: matplotlib takes a second, which is better spent after the first lines are on the screen.
    from examples.lab.picture import Row, draw  # noqa: PLC0415

    rows = [Row(kind=side.group.kind, verdict=verdicts[side.group.kind], lives=side.group.lives) for side in sides]
    return draw(rows, demo.events, origin=demo.events[0][0], until=demo.until, folder=out)


def _report(verdicts: dict[Kind, Verdict], pictures: Sequence[Path], out: Path) -> int:
    text = f"{table(verdicts)}\n\n{explanation(verdicts)}\n"
    (out / "result.txt").write_text(text)
    print(f"\n{text}")
    print(f"The runs over time: {pictures[0]}")
    ours = next((verdict for kind, verdict in verdicts.items() if kind.name == "holdfast"), None)
    return 1 if ours is not None and ours.broken else 0


if __name__ == "__main__":
    sys.exit(main())
