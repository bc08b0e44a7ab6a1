"""An app as it is seen from outside: what the endpoint answers, and what the health file says."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, closing
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Holdfast, MemoryClaims, Settings, Unretriable
from holdfast.adapters.watching import endpoint as endpoint_module
from holdfast.adapters.watching import serve, write_health
from holdfast.adapters.watching.endpoint import Answer, Endpoint, _Server
from holdfast.errors import HandlerFailed, SettingError
from holdfast.plugin.events import StoreDown
from holdfast.plugin.observe.health import Health
from holdfast.plugin.observe.snapshot import Snapshot
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.clocks import HandClock
from tests.harness.engine import Bench, FlakyClaims
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.records import Record

ROOT = Path(__file__).parents[2]
#: Somebody asks for a probe while no file can be opened; then one can be. Says what was answered at last, and of each
#: try of the server how often it had waited before.
NO_FILES = """
import http.client, resource, socket, socketserver
from holdfast import Holdfast, MemoryClaims
from holdfast.adapters.watching import endpoint
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource

tries, pauses = [], []
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
accept, clock = socketserver.TCPServer.get_request, endpoint.SYSTEM_CLOCK

class Clock:
    now = staticmethod(lambda: 1.0)

    def sleep(self, seconds):
        pauses.append(seconds)
        if len(pauses) == 5:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        clock.sleep(seconds / 10)

def counted(self):
    tries.append(len(pauses))
    return accept(self)

endpoint.SYSTEM_CLOCK = Clock()
socketserver.TCPServer.get_request = counted
app = Holdfast(MemoryPartitionedSource(MemoryBroker(orders=1)), claims=MemoryClaims())
with endpoint.serve(app, port=0) as served:
    asked = http.client.HTTPConnection(served.host, served.port, timeout=60)
    asked.sock = socket.socket()
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    asked.sock.connect((served.host, served.port))
    asked.request("GET", "/live")
    print(asked.getresponse().status, *tries)
"""
#: A forked child, as a pool of processes has some, lives on when its parent has closed the endpoint. Says whether the
#: port is free then, and how the child, which closes it too, has ended.
FORKED = """
import os
from holdfast import Holdfast, MemoryClaims
from holdfast.adapters.watching import serve
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource

app = Holdfast(MemoryPartitionedSource(MemoryBroker(orders=1)), claims=MemoryClaims())
served = serve(app, port=0)
waits, goes_on = os.pipe()
child = os.fork()
if child == 0:
    os.read(waits, 1)
    served.close()
    os._exit(7)
served.close()
try:
    serve(app, port=served.port).close()
    print("free")
except Exception as error:
    print(error)
os.write(goes_on, b".")
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
STATES_OF_A_PROBE = {200: True, 503: False}


def ask(endpoint: Endpoint, path: str, method: str = "GET") -> tuple[int, str, str]:
    """Code, content type, body."""
    with closing(http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=60)) as connection:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()


def probe(endpoint: Endpoint, path: str) -> tuple[int, list[str]]:
    """Code and reasons."""
    code, kind, body = ask(endpoint, path)
    found = json.loads(body)
    assert kind == "application/json"
    assert found[path.strip("/")] is STATES_OF_A_PROBE[code]
    return code, found["reasons"]


class TestEndpoint:
    def test_a_process_that_can_open_no_more_files_waits_with_the_next_probe(self) -> None:
        """A loop that tries at once, and again, would take a whole core from the handlers."""
        ran = subprocess.run([sys.executable, "-c", NO_FILES], cwd=ROOT, capture_output=True, text=True, check=True)
        assert ran.stdout.split() == ["200", *map(str, range(6))]
        assert "Too many open files" in ran.stderr

    def test_a_forked_child_neither_keeps_the_port_nor_waits_for_a_server_that_it_has_not(self) -> None:
        ran = subprocess.run([sys.executable, "-c", FORKED], cwd=ROOT, capture_output=True, text=True, check=True)
        assert ran.stdout.split() == ["free", "7"]

    def test_probes_follow_the_life_of_an_app(self) -> None:
        store = FlakyClaims()
        with Bench(claims=store) as bench:
            member = bench.member(start=False)
            with serve(member.app, port=0) as endpoint:
                assert probe(endpoint, "/ready") == (503, ["the app has not been started"])
                assert probe(endpoint, "/live")[0] == 200
                member.start()
                until(lambda: probe(endpoint, "/ready") == (200, []))
                store.go_down()
                bench.broker.produce("orders", 0, "x")
                bench.wait(lambda: member.told(StoreDown))
                assert probe(endpoint, "/ready") == (503, ["paused: the store does not answer"])
                assert probe(endpoint, "/live")[0] == 200
                store.come_back()
                until(lambda: probe(endpoint, "/ready") == (200, []))
                member.stop()
                assert probe(endpoint, "/ready") == (503, ["the app has stopped"])
                assert probe(endpoint, "/live")[0] == 200

    def test_a_loop_that_a_handler_holds_up_is_not_live(self) -> None:
        with Bench() as bench:
            began, goes_on = threading.Event(), threading.Event()

            def handle(record: Record) -> None:
                began.set()
                goes_on.wait()

            member = bench.member(handler=handle, settings=Settings(workers=0))
            with serve(member.app, port=0, silent_s=1e-9) as endpoint:
                bench.broker.produce("orders", 0, "x")
                began.wait()
                until(lambda: probe(endpoint, "/live")[0] == 503)
                assert probe(endpoint, "/live")[1][-1].startswith("the polling loop has not run for")
                goes_on.set()

    def test_a_partition_that_a_handler_holds_up_is_named_by_an_app_that_is_ready(self) -> None:
        with Bench() as bench:
            bench.work.hold("x")
            bench.broker.produce("orders", 0, "x", "y")
            member = bench.member()
            bench.wait_running("x")
            with serve(member.app, port=0, stall_s=1e-9) as endpoint:
                reason = "orders-0 has stood still at 0 for 0 s with a lag of 2: it waits for its handler handle"
                until(lambda: probe(endpoint, "/ready") == (200, [reason]))

    def test_status_has_the_figures_and_metrics_the_table(self) -> None:
        with Bench(orders=2) as bench:
            bench.work.hold("x1")
            bench.broker.produce("orders", 0, "x0", "x1", "x2")
            member = bench.member()
            bench.wait_committed(1)
            with serve(member.app, port=0, partitions=True) as endpoint:
                status = json.loads(ask(endpoint, "/status")[2])
                [app] = status.pop("apps")
                assert status == {"live": True, "ready": True, "reasons": []}
                assert (app["group"], app["state"], app["lag"]) == ("g", "running", 2)
                assert [(each["partition"], each["lag"]) for each in app["partitions"]] == [
                    ("orders-0", 2),
                    ("orders-1", 0),
                ]
                assert app["partitions"][0]["lowest"]["handler"] == "handle"
                code, kind, body = ask(endpoint, "/metrics")
                assert (code, kind.partition(";")[0]) == (200, "text/plain")
                found = {
                    (each.name, each.labels.get("partition")): each.value
                    for family in text_string_to_metric_families(body)
                    for each in family.samples
                }
                assert found["holdfast_lag_records", None] == 2
                assert found["holdfast_partition_lag_records", "0"] == 2

    def test_it_tells_nothing_that_a_handler_s_error_or_redis_may_not(self) -> None:
        with Bench() as bench:
            bench.work.fail("x", Unretriable("card 4711-secret"))
            member = bench.member(start=False)
            with serve(member.app, port=0) as endpoint:
                member.start()
                until(lambda: probe(endpoint, "/ready")[0] == 200)
                session = member.session
                said = [ask(endpoint, path)[2] for path in ("/live", "/ready", "/status", "/metrics")]
                assert session
                assert not any(session in each for each in said)
                bench.broker.produce("orders", 0, "x")
                with pytest.raises(HandlerFailed, match="4711-secret"):
                    member.join()
                said = [ask(endpoint, path)[2] for path in ("/live", "/ready", "/status", "/metrics")]
                assert "the app has failed with HandlerFailed" in said[0]
                assert not any("4711-secret" in each for each in said)
                assert probe(endpoint, "/live")[0] == 503

    def test_several_apps_are_ready_when_all_are_and_each_reason_names_its_group(self) -> None:
        with Bench() as bench:
            member = bench.member()
            with serve(member.app, other(), port=0) as endpoint:
                until(lambda: probe(endpoint, "/ready") == (503, ["other: the app has not been started"]))
                assert [each["group"] for each in json.loads(ask(endpoint, "/status")[2])["apps"]] == ["g", "other"]
                assert 'group="other"' in ask(endpoint, "/metrics")[2]

    def test_each_app_is_asked_once_however_many_reasons_it_gives(self) -> None:
        """A loop that does not answer is waited for each time, and a probe has only some seconds."""

        class Silent:
            asked = 0
            claims = None

            def __init__(self, group: str) -> None:
                self.taken = Snapshot(state="running", group=group, at_ms=1)

            def snapshot(self) -> Snapshot:
                self.asked += 1
                return self.taken

            def health(self, **_: float) -> Health:
                reasons = tuple(f"orders-{number} has stood still" for number in range(20))
                return Health(state="running", live=True, ready=True, reasons=reasons)

        apps = Silent("a"), Silent("b")
        with serve(*apps, port=0) as endpoint:
            before = [each.asked for each in apps]
            code, reasons = probe(endpoint, "/ready")
            assert (code, len(reasons), reasons[-1]) == (200, 40, "b: orders-19 has stood still")
            assert [each.asked for each in apps] == before

    def test_other_questions_are_refused_and_the_next_one_is_answered(self) -> None:
        with serve(other(), port=0) as endpoint:
            code, _, body = ask(endpoint, "/health")
            assert (code, body) == (404, "there are /, /live, /ready, /status, /group, /metrics\n")
            assert ask(endpoint, "/status", "POST")[0] == 501
            with socket.create_connection((endpoint.host, endpoint.port)) as silent:
                silent.send(b"GET /live")
                assert ask(endpoint, "/live?from=probe")[0] == 200

    def test_it_listens_at_the_loopback_alone_and_not_after_its_end(self) -> None:
        with serve(other(), port=0) as endpoint:
            assert endpoint.host == "127.0.0.1"
            assert endpoint.url == f"http://127.0.0.1:{endpoint.port}"
            with pytest.raises(SettingError, match="use a free port"):
                serve(other(), port=endpoint.port)
        with pytest.raises(ConnectionRefusedError):
            ask(endpoint, "/live")

    @pytest.mark.parametrize("options", [{"port": 70_000}, {"host": "192.0.2.1"}, {"host": "no such host"}])
    def test_an_address_that_is_none_of_ours_is_refused(self, options: dict[str, Any]) -> None:
        with pytest.raises(SettingError, match="cannot listen there"):
            serve(other(), **options)

    def test_apps_of_one_group_are_refused(self) -> None:
        for apps in ((), (other(), other())):
            with pytest.raises(SettingError, match="each with a group of its own"):
                serve(*apps, port=0)

    def test_without_its_extra_metrics_say_what_to_install_and_probes_work(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "prometheus_client", None)
        monkeypatch.delitem(sys.modules, "holdfast.adapters.prometheus", raising=False)
        with serve(other(), port=0) as endpoint:
            code, _, body = ask(endpoint, "/metrics")
            assert (code, body) == (501, "prometheus-client is not installed: pip install 'holdfast-mq[prometheus]'\n")
            assert ask(endpoint, "/live")[0] == 200


def other() -> Holdfast:
    """An app of another group that is not started."""

    class Source:
        group = "other"

    return Holdfast(cast("Any", Source()), claims=MemoryClaims())


class Scripted:
    """An app whose health is told one after the other; the last one again and again."""

    def __init__(self, *live: bool) -> None:
        self._live = list(live)
        self.asked = 0

    def health(self, **_: float) -> Health:
        self.asked += 1
        live = self._live.pop(0) if len(self._live) > 1 else self._live[0]
        return Health(state="running", live=live, ready=live, reasons=() if live else (f"no {self.asked}",))


class TestHealthFile:
    def test_it_says_at_once_what_is_so_and_is_written_again_and_again(self, tmp_path: Path) -> None:
        path = tmp_path / "health"
        with Bench() as bench:
            member = bench.member(start=False)
            with write_health(path, member.app, every_s=0.001):
                found = json.loads(path.read_text())
                assert found.pop("at_ms") > 0
                assert found == {"live": True, "ready": False, "reasons": ["the app has not been started"]}
                member.start()
                until(lambda: json.loads(path.read_text())["ready"])
                before = path.stat().st_mtime_ns
                until(lambda: path.stat().st_mtime_ns > before)
        assert [each.name for each in tmp_path.iterdir()] == ["health"]

    def test_an_app_that_is_not_live_is_told_of_once_and_then_the_file_grows_old(self, tmp_path: Path) -> None:
        path, app = tmp_path / "health", Scripted(True, True, False)
        with write_health(path, cast("Holdfast", app), every_s=0.001):
            until(lambda: app.asked >= 10)
            assert json.loads(path.read_text())["reasons"] == ["no 3"]

    def test_it_is_written_again_when_the_app_lives_again(self, tmp_path: Path) -> None:
        path, app = tmp_path / "health", Scripted(False, False, True)
        with write_health(path, cast("Holdfast", app), every_s=0.001):
            until(lambda: json.loads(path.read_text())["live"])

    def test_a_folder_that_is_not_there_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SettingError, match="cannot be written"):
            write_health(tmp_path / "none" / "health", other())
        with pytest.raises(SettingError, match="give one app"):
            write_health(tmp_path / "health")

    @pytest.mark.parametrize("every_s", [0, -1.0, float("nan"), float("inf")])
    def test_one_that_would_be_written_without_a_pause_or_never_is_refused(
        self, every_s: float, tmp_path: Path
    ) -> None:
        with pytest.raises(SettingError, match=r"every_s.*seconds above 0"):
            write_health(tmp_path / "health", other(), every_s=every_s)


class TestSlowClients:
    @pytest.fixture
    def endpoint(self) -> Iterator[Endpoint]:
        with Endpoint(
            _Server(("127.0.0.1", 0), {"/live": lambda _: Answer(HTTPStatus.OK, b"ok", "text/plain")})
        ) as made:
            yield made

    def test_however_many_there_are_they_are_few_at_once_and_keep_no_probe_out(self, endpoint: Endpoint) -> None:
        with ExitStack() as stack:
            for _ in range(60):
                slow = stack.enter_context(socket.create_connection((endpoint.host, endpoint.port), 30))
                slow.sendall(b"GET /live HTTP/1.1\r\nX: ")
            until(lambda: len(self.threads_of(endpoint)) == 16)
            for _ in range(3):
                assert self.answer(endpoint) == b"ok"
            until(lambda: len(self.threads_of(endpoint)) <= 16)  # one may have answered, and not ended yet

    def test_one_that_goes_on_sending_bytes_is_closed_all_the_same(
        self, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = HandClock()
        monkeypatch.setattr(endpoint_module, "SYSTEM_CLOCK", clock)
        with socket.create_connection((endpoint.host, endpoint.port), 30) as slow:
            slow.sendall(b"GET /live HTTP/1.1\r\nX: a")
            until(lambda: self.threads_of(endpoint))
            clock.sleep(9.0)
            slow.sendall(b"a")
            assert self.answer(endpoint) == b"ok"
            assert self.threads_of(endpoint)
            clock.sleep(1.5)
            assert slow.recv(1) == b""
        until(lambda: not self.threads_of(endpoint))

    def test_one_that_does_not_take_its_answer_is_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = HandClock()
        monkeypatch.setattr(endpoint_module, "SYSTEM_CLOCK", clock)
        large = b"x" * 50_000_000
        with (
            Endpoint(
                _Server(("127.0.0.1", 0), {"/live": lambda _: Answer(HTTPStatus.OK, large, "text/plain")})
            ) as made,
            socket.create_connection((made.host, made.port), 30) as slow,
        ):
            slow.sendall(b"GET /live HTTP/1.0\r\n\r\n")
            assert slow.recv(1)
            clock.sleep(10.5)
            until(lambda: not self.threads_of(made))

    @staticmethod
    def threads_of(endpoint: Endpoint) -> list[threading.Thread]:
        return [each for each in threading.enumerate() if "process_request_thread" in each.name]

    @staticmethod
    def answer(endpoint: Endpoint) -> bytes:
        with closing(http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=30)) as connection:
            connection.request("GET", "/live")
            return connection.getresponse().read()


def test_a_health_file_follows_no_link_that_another_has_laid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder for all, such as /tmp, under the very name that is to be written."""
    theirs = tmp_path / "theirs"
    theirs.write_text("precious")
    (tmp_path / "health").symlink_to(theirs)
    monkeypatch.setattr("holdfast.adapters.watching.health_file.secrets.token_hex", lambda _: "guessed")
    (tmp_path / "health.guessed.new").symlink_to(theirs)
    app = Holdfast(MemoryPartitionedSource(MemoryBroker(orders=1)), claims=MemoryClaims())
    with pytest.raises(SettingError, match="File exists"):
        write_health(tmp_path / "health", app)
    assert theirs.read_text() == "precious"
    monkeypatch.undo()
    with write_health(tmp_path / "health", app):
        assert json.loads((tmp_path / "health").read_text())["live"] in (True, False)
    assert theirs.read_text() == "precious"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["health", "health.guessed.new", "theirs"]
