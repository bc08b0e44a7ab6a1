"""The page at `/`: what it may load, what it reads and who may read it; and that its answers give nothing away."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import re
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Settings
from holdfast.adapters.watching import serve
from holdfast.adapters.watching.access import Access
from holdfast.adapters.watching.members import members_of, summary
from holdfast.adapters.watching.page import page
from holdfast.errors import SettingError
from holdfast.plugin.events import RebalanceReport
from holdfast.plugin.observe.health import Health
from holdfast.plugin.observe.snapshot import (
    CallFigures,
    HandlerFigures,
    OpenRecord,
    PartitionFigures,
    RebalanceFigures,
    Snapshot,
    StoreFigures,
)
from holdfast.plugin.observe.source_state import Joining
from holdfast.records import Partition
from holdfast.tools.audit_report.pages import style
from tests.harness.engine import Bench, numbered
from tests.harness.waiting import until

if TYPE_CHECKING:
    from holdfast.adapters.watching import Endpoint
    from holdfast.dedup.claims import ClaimStore

HOSTILE = "<script>alert(1)</script>"
TOKEN = "0123456789abcdef"  # noqa: S105 - of the tests
BODY, HEADERS = page()
PAGE = BODY.decode()
[SCRIPT] = re.findall(r"<script>(.*?)</script>", PAGE, re.DOTALL)
[STYLE] = re.findall(r"<style>(.*?)</style>", PAGE, re.DOTALL)
#: The names under which the script has what is read from an answer.
_READ = re.compile(
    r"\b(?:app|all|each|found|from|handler|last|load|records|report|row|status|taken|app\.\w+)\.([a-z_]+)\b(?!\()"
)
#: Of arrays, texts and elements.
_OF_THE_LANGUAGE = frozenset({"length", "ok", "json", "scope", "dataset", "class", "group_by", "index"})


def ask(endpoint: Endpoint, path: str, authorization: str = "") -> tuple[int, dict[str, str], str]:
    """Code, headers, body."""
    with closing(http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=60)) as connection:
        connection.request("GET", path, headers={"Authorization": authorization} if authorization else {})
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read().decode()


def basic(password: str, user: str = "any") -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


class Told:
    """An app that tells one snapshot, with reasons."""

    def __init__(self, snapshot: Snapshot, *reasons: str, claims: ClaimStore | None = None) -> None:
        self._snapshot, self._reasons, self.claims = snapshot, reasons, claims

    def snapshot(self) -> Snapshot:
        return self._snapshot

    def health(self, **_: float) -> Health:
        return Health(state=self._snapshot.state, live=True, ready=True, reasons=self._reasons)


def full() -> Snapshot:
    """Something of everything, under names that strangers chose."""
    partition = Partition(HOSTILE, 0)
    report = RebalanceReport(
        trigger="assigned", protocol="consumer", group=HOSTILE, began_ms=1, gained=(partition,), phases_s={"drain": 1.0}
    )
    return Snapshot(
        state="running",
        group=HOSTILE,
        member=HOSTILE,
        at_ms=1,
        handlers={HOSTILE: HandlerFigures(calls=1)},
        store=StoreFigures(session="the-session", calls={"mark": CallFigures(calls=1)}),
        rebalances=RebalanceFigures(by_trigger={"assigned": 1}, last=(report,)),
        partitions=(
            PartitionFigures(
                partition=partition,
                phase="owned",
                watermark=0,
                log_end=1,
                paused="its next record is not due yet",
                next_retry_ms=1,
                lowest=OpenRecord(offset=0, handler=HOSTILE, for_s=1.0, waits_for=f"its handler {HOSTILE}"),
            ),
        ),
        joining=Joining(for_s=1.0, trouble="redis://me:hush@redis:6379 is away", trouble_s=1.0),
        error="hush",
        error_type="HandlerFailed",
    )


class TestThePage:
    def test_a_browser_is_answered_at_once(self) -> None:
        with serve(Told(full()), port=0) as endpoint:
            code, headers, body = ask(endpoint, "/")
            assert (code, headers["Content-Type"], body) == (200, "text/html; charset=utf-8", PAGE)
            assert ask(endpoint, "/?from=bookmark")[0] == 200
            assert headers["Cache-Control"] == "no-store"

    def test_it_may_load_nothing_but_its_own_style_and_script_and_ask_only_its_own_address(self) -> None:
        policy = dict(HEADERS)["Content-Security-Policy"]
        allowed = dict(each.strip().split(" ", 1) for each in policy.split(";"))
        for kind, text in (("style-src", STYLE), ("script-src", SCRIPT)):
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert allowed[kind] == f"'sha256-{digest}'"
        assert (allowed["default-src"], allowed["connect-src"]) == ("'none'", "'self'")
        assert not re.findall(r"https?://(?!:TOKEN@HOST)", PAGE)
        assert not re.findall(r"\bon[a-z]+=|style=|@import|url\(|<(?:link|img|iframe|object)(?! rel=\"icon\")", PAGE)

    def test_its_script_never_reads_a_value_as_html(self) -> None:
        assert not re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|eval|Function\(",
            SCRIPT,
        )
        assert "setAttribute" not in SCRIPT

    def test_each_figure_that_it_reads_is_in_the_answer(self) -> None:
        with serve(Told(full()), port=0) as endpoint:
            status = json.loads(ask(endpoint, "/status")[2])
        [app] = status["apps"]
        group = {"groups": [{"group": "g", "members": members_of({"a": summary(app)}, 1), "trouble": None}]}
        read = set(_READ.findall(SCRIPT)) - _OF_THE_LANGUAGE
        assert {"waits_for", "suppressed_by_key", "duplicates_suppressed", "paused", "buckets_s"} <= read
        assert read <= keys(status) | keys(group)

    def test_it_has_the_colours_of_the_audit_s_report(self) -> None:
        for theirs in (style._LIGHT, style._DARK):
            ours = next(block for block in re.findall(r":root\{(.*?)\}", STYLE) if theirs[:16] in block)
            mine = [each for each in ours.split(";") if each.startswith("--")]
            assert mine
            assert set(mine) <= set(theirs.split(";"))
        assert {each.lower() for each in re.findall(r"\.f[0-5]\{background:(#\w+)\}", STYLE)} <= set(style._MEMBERS)


def keys(value: object) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(keys, value.values()))
    return set[str]().union(*map(keys, value)) if isinstance(value, list) else set()


class TestItsAnswers:
    def test_they_are_json_by_their_type_whatever_names_are_in_them(self) -> None:
        with serve(Told(full(), f"{HOSTILE} stands still"), port=0) as endpoint:
            _, headers, body = ask(endpoint, "/status")
        assert (headers["Content-Type"], headers["X-Content-Type-Options"]) == ("application/json", "nosniff")
        [app] = json.loads(body)["apps"]
        assert app["partitions"][0]["partition"] == f"{HOSTILE}-0"
        assert app["rebalances"]["last"][0]["gained"] == f"{HOSTILE}-[0]"

    def test_no_credential_no_error_s_text_and_no_session_is_in_them(self) -> None:
        told = Told(full(), "Kafka at sasl://me:hush@broker has not answered this client for 9 s")
        with serve(told, port=0, token=TOKEN) as endpoint:
            said = [
                ask(endpoint, path, f"Bearer {TOKEN}")[2] for path in ("/", "/status", "/live", "/ready", "/metrics")
            ]
        assert "sasl://***@broker" in said[1]
        assert "redis://***@redis" in said[1]
        for each in said:
            assert not re.search(f"hush|the-session|{TOKEN}", each)

    def test_a_rebalance_shows_with_its_phases_and_what_became_of_the_records(self) -> None:
        with Bench(orders=2) as bench:
            member = bench.member(settings=Settings(workers=4, commit_interval_s=0.01))
            with serve(member.app, port=0) as endpoint:

                def app() -> dict[str, Any]:
                    [found] = json.loads(ask(endpoint, "/status")[2])["apps"]
                    return dict(found)

                until(lambda: len(app()["partitions"]) == 2)
                bench.broker.produce("orders", 0, *numbered("x", range(5)))
                bench.broker.produce("orders", 1, *numbered("y", range(5)))
                bench.wait_ended("x4", "y4")
                other = bench.member("b")
                until(lambda: [each["trigger"] for each in app()["rebalances"]["last"]] == ["assigned", "revoked"])
                given = app()["rebalances"]["last"][-1]
                assert given["given"] in ("orders-[0]", "orders-[1]")
                assert [*given["phases_s"]] == ["fence", "drain", "settle", "commit", "let_go"]
                assert len(app()["partitions"]) == 1
                assert app()["handlers"]["handle"]["calls"] == 10
                other.stop()
                until(lambda: len(app()["partitions"]) == 2)


class TestAccess:
    def test_with_a_token_the_page_and_the_figures_ask_for_it_and_scrapers_go_on(self) -> None:
        with serve(Told(full()), port=0, token=TOKEN) as endpoint:
            for path in ("/", "/status"):
                for wrong in (
                    "",
                    "Bearer",
                    "Bearer x",
                    basic("x"),
                    basic("", TOKEN),
                    "Basic %%",
                    f"Digest {TOKEN}",
                    "\xff",
                ):
                    code, headers, body = ask(endpoint, path, wrong)
                    assert (code, HOSTILE in body) == (401, False), wrong
                    assert headers["WWW-Authenticate"].startswith("Basic realm=")
                for right in (f"Bearer {TOKEN}", basic(TOKEN), basic(TOKEN, ""), f"bearer  {TOKEN} "):
                    assert ask(endpoint, path, right)[0] == 200, right
            assert [ask(endpoint, path)[0] for path in ("/live", "/ready", "/metrics")] == [200, 200, 200]

    @pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1"])  # noqa: S104 - nothing listens there
    def test_at_another_address_without_a_token_there_is_no_page_and_all_else_is_as_it_was(self, address: str) -> None:
        access = Access(None, address)
        refused = access.refuses("/", "")
        assert refused is not None
        assert refused.code == 403
        assert "HOLDFAST_RUN_TOKEN" in refused.why
        assert [access.refuses(path, "") for path in ("/status", "/live", "/ready", "/metrics")] == [None] * 4
        assert Access(TOKEN, address).refuses("/", f"Bearer {TOKEN}") is None

    @pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1"])
    def test_at_the_loopback_the_page_needs_none(self, address: str) -> None:
        assert Access(None, address).refuses("/", "") is None

    @pytest.mark.parametrize("token", ["", "hush", "hush hush hush hush", "hush" * 100, "hushhushhushhush\n"])
    def test_a_token_that_can_be_guessed_or_not_sent_is_refused_and_not_shown(self, token: str) -> None:
        with pytest.raises(SettingError, match="use 16 to 200 letters") as raised:
            serve(Told(full()), port=0, token=token)
        assert "hush" not in str(raised.value)
