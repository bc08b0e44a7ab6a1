"""The page at `/` in a real browser: what a person sees of a rebalance, of names that are hostile, of a store that is
away, and of a process that answers no more."""

from __future__ import annotations

import shutil
import subprocess
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, MemoryClaims, Settings
from holdfast.adapters.watching import serve
from holdfast.plugin.events import StoreDown
from holdfast.plugin.observe.health import Health
from holdfast.plugin.observe.snapshot import Snapshot
from tests.harness.engine import Bench, FlakyClaims, numbered
from tests.harness.group.field import Field
from tests.harness.waiting import until
from tests.simulation.brokers.leased import MemoryLeasedSource, MemoryQueue

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.servers.kafka import KafkaServer

pytestmark = pytest.mark.full

HOSTILE = "<script>document.title='caught'</script>"
TOKEN = "0123456789abcdef"  # noqa: S105 - of the tests


class Seen(HTMLParser):
    """A page as a browser has drawn it: its texts, and the rows of its tables by the heading above them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.scripts = 0
        self.texts: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self._open: list[str] = []
        self._heading = ""
        self.feed(html)
        self.text = " ".join(self.texts)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._open.append(tag)
        self.scripts += tag == "script"
        if tag == "tr":
            self.tables.setdefault(self._heading, []).append([])
        elif tag in ("td", "th"):
            self.tables[self._heading][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if {"script", "style"} & set(self._open):
            return
        self.texts.append(data.strip())
        if "h2" in self._open:
            self._heading = data
        elif {"td", "th"} & set(self._open):
            self.tables[self._heading][-1][-1] += data

    def column(self, table: str, name: str) -> list[str]:
        head, *rows = self.tables[table]
        return [row[head.index(name)] for row in rows]


def chromium(profile: Path) -> list[str]:
    """The command, without what it is to do."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.fail("no Chromium is on PATH: make setup-all installs it")
    return [found, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]


class Browser:
    def __init__(self, profile: Path) -> None:
        self._command = chromium(profile)

    def sees(self, url: str, *, for_ms: int = 2_500) -> Seen:
        """What is drawn after so many milliseconds by the page's own clock."""
        asked = [*self._command, f"--virtual-time-budget={for_ms}", "--dump-dom", url]
        return Seen(subprocess.run(asked, capture_output=True, text=True, timeout=120, check=True).stdout)


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    return Browser(tmp_path / "profile")


def test_partitions_move_and_the_rebalance_is_listed_with_its_phases(browser: Browser) -> None:
    with Bench(orders=2) as bench:
        bench.work.hold("x0")
        member = bench.member(settings=Settings(workers=2, commit_interval_s=0.01))
        until(lambda: len(member.app.snapshot().partitions) == 2)
        bench.broker.produce("orders", 0, *numbered("x", range(5)))
        bench.broker.produce("orders", 1, *numbered("y", range(5)))
        bench.wait_ended("y4")
        with serve(member.app, port=0) as endpoint:
            seen = browser.sees(endpoint.url)
            assert seen.texts.count("live and ready") == 1
            assert seen.column("Partitions", "partition") == ["orders-0", "orders-1"]
            assert seen.column("Partitions", "lag") == ["5", "0"]
            assert seen.column("Partitions", "waits for") == ["its handler handle", "\N{EN DASH}"]
            assert seen.column("Handlers", "calls") != ["0"]
            bench.work.let_go()
            bench.wait_ended("x4")
            other = bench.member("b")
            until(lambda: [each.trigger for each in member.app.snapshot().rebalances.last] == ["assigned", "revoked"])
            seen = browser.sees(endpoint.url)
            assert len(seen.column("Partitions", "partition")) == 1
            assert seen.column("Last rebalances", "reason") == ["revoked", "assigned"]
            assert seen.column("Last rebalances", "given")[0] in ("orders-[0]", "orders-[1]")
            assert seen.column("Last rebalances", "phases")[1].startswith("take over ")
            other.stop()
            until(lambda: len(member.app.snapshot().partitions) == 2)
            assert len(browser.sees(endpoint.url).column("Partitions", "partition")) == 2


def test_hostile_names_are_text(browser: Browser) -> None:
    topic = f"{HOSTILE}\N{RIGHT-TO-LEFT OVERRIDE}"
    topics: dict[str, Any] = {topic: 1}
    with Bench(**topics) as bench:
        bench.broker.produce(topic, 0, "x")
        member = bench.member(topics=[topic])
        bench.wait_ended("x")
        until(lambda: member.app.snapshot().handlers)
        with serve(member.app, port=0) as endpoint:
            seen = browser.sees(endpoint.url)
    assert seen.scripts == 1
    assert "caught" not in seen.texts
    assert seen.column("Partitions", "partition") == [rf"{HOSTILE}\u202e-0"]


def test_a_store_that_is_away_is_told_and_a_token_is_no_hindrance(browser: Browser) -> None:
    store = FlakyClaims()
    with Bench(claims=store) as bench:
        member = bench.member()
        until(lambda: member.app.health().ready)
        store.go_down()
        bench.broker.produce("orders", 0, "x")
        bench.wait(lambda: member.told(StoreDown))
        with serve(member.app, port=0, token=TOKEN) as endpoint:
            seen = browser.sees(endpoint.url.replace("http://", f"http://any:{TOKEN}@"))
            assert "not ready" in seen.texts
            assert "paused: the store does not answer" in seen.texts
            assert "It does not answer." in seen.texts
            assert not browser.sees(endpoint.url).text.strip()
        store.come_back()


def test_a_source_without_partitions_and_several_apps_of_one_process_are_shown(browser: Browser) -> None:
    apps = [Holdfast(MemoryLeasedSource(MemoryQueue(), group=group), claims=MemoryClaims()) for group in ("a", "b")]
    with serve(*apps, port=0) as endpoint:
        seen = browser.sees(endpoint.url)
    assert [each for each in seen.texts if each in ("a", "b")] == ["a", "b"]
    assert seen.texts.count("the app has not been started") == 2
    assert "the broker leases each record" in seen.text


def test_a_process_that_answers_no_more_is_not_shown_as_well(browser: Browser) -> None:
    class Ends:
        """An app that ends with the page's second question."""

        claims = None

        def __init__(self) -> None:
            self.asked = 0

        def snapshot(self) -> Snapshot:
            return Snapshot(state="running", group="g", at_ms=1)

        def health(self, **_: float) -> Health:
            self.asked += 1
            if self.asked > 1:
                raise RuntimeError
            return Health(state="running", live=True, ready=True)

    with serve(Ends(), port=0) as endpoint:
        seen = browser.sees(endpoint.url, for_ms=4_000)
    assert "no answer" in seen.texts
    assert "the figures are of" in seen.text


def test_the_page_has_the_whole_group_and_a_member_that_was_killed(
    browser: Browser, kafka: KafkaServer, redis_url: str, tmp_path: Path
) -> None:
    config = {"session_timeout_ms": 6000}
    with Field(kafka, redis_url, tmp_path, protocol="eager", seed=1, partitions=4, config=config) as field:
        a, b = (field.start(name, endpoint=str(tmp_path / name)) for name in ("a", "b"))
        field.flow(100)
        field.until_spread(a, b)
        url = (tmp_path / "a").read_text()
        seen = until(lambda: _members(browser, url, "running", "running"), patience_s=120)
        others = seen.column("Partitions of the other members", "partition")
        assert sorted([*others, *seen.column("Partitions", "partition")]) == [f"{field.topic}-{n}" for n in range(4)]
        b.may_end = True
        field.kill(b)
        seen = until(lambda: _members(browser, url, "running", "silent for"), patience_s=120)
        assert len(seen.column("Partitions", "partition")) == 4


def _members(browser: Browser, url: str, *states: str) -> Seen | None:
    """The page, once it has these members."""
    seen = browser.sees(url, for_ms=4_000)
    found = sorted(seen.column("Members of the group", "state")) if "Members of the group" in seen.tables else []
    as_meant = len(found) == len(states) and all(map(str.startswith, found, states))
    return seen if as_meant else None
