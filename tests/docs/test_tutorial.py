"""The tutorial, played: its program, its commands, and each line that it shows. Only addresses, the topic and the group
are others."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.processes import end, spawn
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.servers.kafka import KafkaServer

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")

#: What a line of the page is made of, and what stands in its place in a run.
_PARTS = re.compile(
    r"(?P<anything>\.\.\.)|(?P<batch>\b[0-9a-f]{4}-(?=\d))|(?P<member>\bweb1-\d+)|(?P<figure>[\d.]*\d)|(?P<space>\s+)|(?P<text>.)"
)
_VARIES = {"anything": ".*", "batch": "[0-9a-f]{4}-", "member": r"\S+", "figure": r"[\d.]*\d", "space": r"\s+"}


class Terminal:
    """`python billing.py`, and what it has printed."""

    def __init__(self, script: Path, log: Path) -> None:
        self._log = log
        self._process = spawn([sys.executable, "-W", "error", str(script)], log, cwd=ROOT)

    def shows(self, block: str, after: int = 0) -> None:
        """Wait for lines of the page, after so many others."""
        for line in block.splitlines():
            until(lambda: any(map(_pattern(line).fullmatch, self.lines()[after:])), lambda: (line, self.lines()))  # noqa: B023

    def lines(self) -> list[str]:
        return self._log.read_text(encoding="utf-8").splitlines()

    def billed(self) -> list[str]:
        return [each for each in self.lines() if each.startswith("bill ")]

    def stop(self, how: signal.Signals = signal.SIGINT) -> int:
        self._process.send_signal(how)
        return self._process.wait(PATIENCE_S)

    def close(self) -> None:
        end(self._process, patience_s=5.0)


class Reader:
    """Follows the page, with a topic and a group of its own: others have `orders` and `billing` on the same broker."""

    def __init__(self, kafka: KafkaServer, redis_url: str, folder: Path, topic: str) -> None:
        self._folder, self._topic = folder, topic
        self._kafka, self._redis_url = kafka.bootstrap, redis_url
        self._opened: list[Terminal] = []
        for each in (topic, f"{topic}.dlq"):  # as compose.yaml makes them
            kafka.create_topic(each, 4)
        kafka.set_session(topic, 1000)

    def blocks(self, section: int, language: str) -> list[str]:
        """Of a section, in their order."""
        [text] = re.findall(rf"^## {section}\. (.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)
        found: list[str] = re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        others = {"orders": self._topic, '"group.id": "billing"': f'"group.id": "{self._topic}"'}
        for of_the_page, ours in (others | {"group=billing": f"group={self._topic}"}).items():
            found = [each.replace(of_the_page, ours) for each in found]
        return found

    def opens(self, program: str) -> Terminal:
        script = self._folder / f"billing-{len(self._opened)}.py"
        script.write_text(self._here(program), encoding="utf-8")
        self._opened.append(Terminal(script, script.with_suffix(".log")))
        return self._opened[-1]

    def runs(self, block: str) -> None:
        """A command prints what the page shows below it."""
        command, *shown = block.removeprefix("$ ").splitlines()
        words = shlex.split(self._here(command))
        if words[0] == "python":
            words = [*words[1:], "--topic", self._topic, "--bootstrap", self._kafka]
        else:
            words = ["-m", *words]
        ran = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        printed = ran.stdout.splitlines()
        assert len(printed) == len(shown), ran.stdout
        differ = [line for line, real in zip(shown, printed, strict=True) if not _pattern(line).fullmatch(real)]
        assert differ == [], printed

    def _here(self, text: str) -> str:
        return text.replace("localhost:9092", self._kafka).replace("redis://localhost:6379/0", self._redis_url)

    def close(self) -> None:
        for each in self._opened:
            each.close()


@pytest.fixture
def reader(kafka: KafkaServer, redis_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Reader]:
    reads = Reader(kafka, redis_url, tmp_path, f"lessons-{len(request.node.name)}")
    yield reads
    reads.close()


def test_orders_that_come_twice_are_billed_once_and_a_dead_letter_is_listed_and_sent_back(reader: Reader) -> None:
    [program], [twice], [stopped] = reader.blocks(2, "python"), reader.blocks(3, "console"), reader.blocks(3, "text")
    consumer = reader.opens(program)
    reader.runs(twice)
    until(lambda: len(consumer.billed()) == 20, consumer.lines)
    consumer.shows("rebalance report: ... duplicates_suppressed=20 ...")
    assert consumer.stop() == 0
    consumer.shows(stopped)
    assert len(set(consumer.billed())) == 20

    [refusal], [refused] = reader.blocks(4, "python"), reader.blocks(4, "text")
    one_more, listed, replayed = reader.blocks(4, "console")
    head, bill = refusal.split("\n\n")
    instead = re.sub(r"^def bill.*?\n\n", f"{bill}\n", program, flags=re.MULTILINE | re.DOTALL)
    consumer = reader.opens(f"{head}\n{instead}")
    reader.runs(one_more)
    consumer.shows(refused)
    assert consumer.stop() == 0
    reader.runs(listed)
    mended = reader.opens(program)
    reader.runs(replayed)
    until(lambda: len(mended.billed()) == 1, mended.lines)


@pytest.mark.full  # half a minute, most of it of members that start
def test_a_member_that_comes_goes_or_is_killed_is_told_of_as_the_page_shows_it(reader: Reader) -> None:
    [program], [thousand], [given] = reader.blocks(2, "python"), reader.blocks(5, "console"), reader.blocks(5, "text")
    left, taken_over = reader.blocks(6, "text")
    first = reader.opens(program)
    reader.runs(thousand)
    until(first.billed, first.lines)
    second = reader.opens(program)
    first.shows(given)
    until(lambda: len(second.billed()) > 8, second.lines)
    assert second.stop() == 0
    second.shows(left)

    killed = reader.opens(program)
    until(lambda: len(killed.billed()) > 8, killed.lines)
    before = len(first.lines())
    killed.stop(signal.SIGKILL)
    first.shows(taken_over, before)
    again = until(lambda: {*first.billed()} & {*killed.billed()})
    assert again <= {*killed.billed()[-8:]}
    assert {*first.billed()} & {*second.billed()} == set()


def _pattern(line: str) -> re.Pattern[str]:
    """The line, but for what differs from run to run."""
    parts = _PARTS.finditer(line.rstrip())
    return re.compile("".join(_VARIES.get(each.lastgroup or "") or re.escape(each[0]) for each in parts))
