"""`holdfast status` asks a running process, and `holdfast healthy` reads its file."""

from __future__ import annotations

import json
import os
import socket
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, cast

import pytest

from holdfast.adapters.cli.interrupt import Interrupt
from holdfast.adapters.watching import serve, write_health
from holdfast.plugin.observe.snapshot import PartitionFigures, Snapshot
from tests.cli.bench import lines
from tests.harness.engine import Bench, partition
from tests.harness.kafka_brokers import closed_port
from tests.harness.waiting import until
from tests.unit.test_watching import Scripted, other

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast import Holdfast
    from holdfast.adapters.watching import Endpoint
    from tests.cli.conftest import Here

__all__ = ["closed_port"]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """Of an app of two partitions: in one a handler runs, and in the other a record waits for its key."""
    with Bench(orders=2) as bench:
        bench.work.hold("first")
        member = bench.member(key=lambda _: b"one")
        bench.broker.produce("orders", 0, "first", "next")
        bench.wait_running("first")
        bench.broker.produce("orders", 1, "second")

        def waits() -> bool:
            return any(
                each.lowest is not None and "claimed" in each.lowest.waits_for
                for each in member.app.snapshot().partitions
            )

        until(waits)
        with serve(member.app, port=0) as endpoint:
            until(lambda: member.app.health().ready)
            yield endpoint
        bench.work.let_go()


class TestStatus:
    def test_a_table_has_a_line_for_each_partition_with_its_oldest_record(self, here: Here, endpoint: Endpoint) -> None:
        told = here("status", endpoint.url).stdout.splitlines()
        assert told[0].startswith("g: running, up for ")
        assert told[0].endswith(", live, ready, store up")
        assert told[1].startswith("lag: 3 in 2 partitions, 3 in flight, 1 in handlers, ")
        names = ["PARTITION", "PHASE", "OFFSET", "END", "LAG", "IN", "FLIGHT", "CLAIMS", "OLDEST", "HANDLER"]
        assert told[2].split()[: len(names)] == names
        first, second = told[3:5]
        assert first.split()[:6] == ["orders-0", "owned", "0", "2", "2", "2"]
        assert first.endswith("handle   its handler handle")
        assert second.split()[:7] == ["orders-1", "owned", "0", "1", "1", "1", "1"]
        assert second.endswith("its key, which another member has claimed")

    def test_an_address_without_a_scheme_and_one_with_the_path_will_do(self, here: Here, endpoint: Endpoint) -> None:
        for url in (f"127.0.0.1:{endpoint.port}", f"{endpoint.url}/", f"{endpoint.url}/status"):
            assert here("status", url).stdout.startswith("g: running")

    def test_json_has_all_that_the_endpoint_tells(self, here: Here, endpoint: Endpoint) -> None:
        [app] = lines(here("status", endpoint.url, "--json"))
        assert (app["type"], app["group"], app["ready"], app["lag"]) == ("app", "g", True, 3)
        assert app["partitions"][0]["lowest"]["handler"] == "handle"

    def test_watching_ends_after_so_many_looks(self, here: Here, endpoint: Endpoint) -> None:
        told = here("status", endpoint.url, "--watch", "--every", "0.01", "--count", "3").stdout
        assert told.count("g: running") == 3

    def test_watching_goes_on_while_nobody_answers(
        self, here: Here, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Interrupt, "before", lambda *_: endpoint.close())  # between two looks
        ran = here("status", endpoint.url, "--watch", "--count", "2", code=3)
        assert ran.stdout.count("g: running") == 1
        assert "no process answers" in ran.stderr
        assert "no process answers" in here("status", endpoint.url, "--watch", "--count", "2", code=3).stderr

    def test_who_is_not_ready_is_exit_code_1_with_the_reason(self, here: Here) -> None:
        with serve(other(), port=0) as endpoint:
            told = here("status", endpoint.url, code=1).stdout
        assert told.splitlines()[0] == "other: new, up for 0s, live, not ready, store up"
        assert told.splitlines()[-1] == "note: the app has not been started"

    def test_a_token_is_given_by_an_option_or_the_environment(
        self, here: Here, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        token = "hush" * 4
        with serve(other(), port=0, token=token) as endpoint:
            told = here("status", endpoint.url, code=2).stderr
            assert "asks for its token: give it, or set HOLDFAST_RUN_TOKEN" in told
            told = here("status", endpoint.url, "--token", "hushhushhushhus-", code=2).stderr
            assert "--token='***': " in told
            assert "hush" not in told
            assert here("status", endpoint.url, "--token", token, code=1).stdout.startswith("other: new")
            monkeypatch.setenv("HOLDFAST_RUN_TOKEN", token)
            assert here("status", endpoint.url, code=1).stdout.startswith("other: new")

    def test_nobody_answers(self, here: Here) -> None:
        with closing(socket.socket()) as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            told = here("status", f"localhost:{port}", code=3).stderr
            assert f"no process answers at localhost:{port} (Connection refused): check the address" in told
            taken.listen()
            told = here("status", f"localhost:{port}", "--timeout", "0.1", code=3).stderr
            assert "(no answer in time)" in told

    @pytest.mark.parametrize("body", [b"hello", b"[]", b'{"apps": [{}]}', b""])
    def test_somebody_else_answers(self, here: Here, body: bytes) -> None:
        class Other(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        with HTTPServer(("127.0.0.1", 0), Other) as server:
            threading.Thread(target=server.handle_request, daemon=True).start()
            told = here("status", f"127.0.0.1:{server.server_port}", code=3).stderr
        assert "is not holdfast's endpoint" in told

    @pytest.mark.parametrize("url", ["redis://localhost", "http://", "localhost:port", "file:///etc/passwd"])
    def test_what_is_no_address_is_refused(self, here: Here, url: str) -> None:
        assert "give http://HOST:PORT" in here("status", url, code=2).stderr


class TestSeveralProcesses:
    def test_each_has_a_line_and_who_gives_no_answer_has_one_too(
        self, here: Here, endpoint: Endpoint, closed_port: str
    ) -> None:
        with serve(other(), port=0) as second:
            told = here("status", endpoint.url, f"localhost:{second.port}", closed_port, code=3).stdout.splitlines()
        names = ["ADDRESS", "GROUP", "MEMBER", "STATE", "PARTITIONS", "LAG", "IN", "FLIGHT", "OLDEST"]
        assert told[0].split() == names
        address, group, _member, *figures = told[1].split()
        assert [address, group, *figures[:4]] == [f"127.0.0.1:{endpoint.port}", "g", "running", "2", "3", "3"]
        assert told[2].split() == [f"localhost:{second.port}", "other", "-", "new,", "not", "ready", "0", "0", "0", "-"]
        assert " ".join(told[3].split()) == f"{closed_port} - - no answer (Connection refused) - - - -"
        assert told[4:] == [
            "2 of 3 addresses answer, lag: 3 in 2 partitions",
            f"note: localhost:{second.port}: the app has not been started",
        ]

    def test_json_has_an_app_or_an_error_for_each(self, here: Here, endpoint: Endpoint, closed_port: str) -> None:
        app, nobody = lines(here("status", endpoint.url, closed_port, "--json", code=3))
        assert (app["type"], app["address"], app["lag"]) == ("app", f"127.0.0.1:{endpoint.port}", 3)
        assert (nobody["type"], nobody["address"]) == ("no_answer", closed_port)
        assert "Connection refused" in nobody["error"]

    def test_the_exit_code_is_of_the_worst(self, here: Here, endpoint: Endpoint) -> None:
        here("status", endpoint.url, endpoint.url)
        with serve(other(), port=0) as second:
            here("status", endpoint.url, second.url, code=1)

    def test_watching_goes_on_while_one_gives_no_answer(self, here: Here, endpoint: Endpoint, closed_port: str) -> None:
        told = here("status", endpoint.url, closed_port, "--watch", "--every", "0.01", "--count", "2", code=3).stdout
        assert told.count("1 of 2 addresses answer") == 2

    def test_a_token_that_is_missing_and_what_is_no_address_are_refused(self, here: Here, endpoint: Endpoint) -> None:
        with serve(other(), port=0, token="hush" * 4) as second:
            assert "asks for its token" in here("status", endpoint.url, second.url, code=2).stderr
        assert "give http://HOST:PORT" in here("status", endpoint.url, "redis://localhost", code=2).stderr


class TestHealthy:
    def test_the_file_of_an_app_that_lives(self, here: Here, tmp_path: Path) -> None:
        path = tmp_path / "health"
        with Bench() as bench:
            member = bench.member(start=False)
            with write_health(path, member.app, every_s=0.001):
                assert here("healthy", path).stdout.startswith("live, not ready")
                assert "the app has not been started" in here("healthy", path, "--ready", code=1).stderr
                member.start()
                until(lambda: json.loads(path.read_text())["ready"])
                assert here("healthy", path, "--ready").stdout.startswith("ready, ")
                both = here("healthy", path, tmp_path / "none", code=1)
                assert both.stdout.startswith(f"{path}: ready, ")
                assert f"{tmp_path / 'none'}: cannot be read" in both.stderr
                [told] = lines(here("healthy", path, "--json"))
                assert (told["type"], told["live"], told["ready"]) == ("health", True, True)

    def test_a_file_that_says_no(self, here: Here, tmp_path: Path) -> None:
        path = tmp_path / "health"
        with write_health(path, cast("Holdfast", Scripted(False))):
            assert "no 1" in here("healthy", path, code=1).stderr

    @pytest.mark.parametrize(
        ("by_s", "why"), [(-100, "1m 40s ago: the process has ended"), (130, "in the future: the clock")]
    )
    def test_one_that_is_too_old_or_of_another_time(self, here: Here, tmp_path: Path, by_s: int, why: str) -> None:
        path = tmp_path / "health"
        with write_health(path, cast("Holdfast", Scripted(True)), every_s=3600):
            now = path.stat().st_mtime
            os.utime(path, (now + by_s, now + by_s))
            assert why in here("healthy", path, "--max-age", 30, code=1).stderr
            here("healthy", path, "--max-age", 1000)

    def test_what_is_not_there_or_not_ours(self, here: Here, tmp_path: Path) -> None:
        path = tmp_path / "health"
        assert "cannot be read (No such file" in here("healthy", path, code=1).stderr
        for text in ("", "{}", "[]", "no"):
            path.write_text(text)
            assert "is not what write_health() writes" in here("healthy", path, code=1).stderr


@pytest.fixture
def answers() -> Iterator[tuple[str, list[Snapshot]]]:
    """Where a process answers, and what: one snapshot after the other; after the last one it is gone."""
    left: list[Snapshot] = []

    class Asked(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(
                {"apps": [{**left.pop(0).as_dict(), "live": True, "ready": True, "reasons": []}]}
            ).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            if not left:
                server.server_close()
                threading.Thread(target=server.shutdown).start()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as of its parent
            pass

    with HTTPServer(("127.0.0.1", 0), Asked) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}", left
        server.shutdown()
        serving.join()


def of_two(second: PartitionFigures) -> Snapshot:
    first = PartitionFigures(partition=partition(0), phase="owned", watermark=90, log_end=100)
    return Snapshot(state="running", group="g", at_ms=0, partitions=(first, second))


def test_the_lag_of_one_partition_is_not_told_as_that_of_two(here: Here, answers: tuple[str, list[Snapshot]]) -> None:
    url, left = answers
    left += [of_two(PartitionFigures(partition=partition(1), phase="assigned", log_end=1_000))] * 2
    assert "lag: 10 in 1 partition, not known in 1 partition, " in here("status", url).stdout
    [app] = lines(here("status", url, "--json"))
    assert (app["lag"], app["lag_known"], app["lag_unknown_in"]) == (None, 10, 1)


def test_the_last_look_decides_the_exit_code(here: Here, answers: tuple[str, list[Snapshot]]) -> None:
    url, left = answers
    left.append(of_two(PartitionFigures(partition=partition(1), phase="owned", watermark=1, log_end=1)))
    told = here("status", url, "--count", "3", "--every", "0.01", code=3)
    assert "lag: 10 in 2 partitions" in told.stdout
    assert "no process answers" in told.stderr
