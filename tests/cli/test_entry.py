"""The command as such: exit codes, sentences instead of tracebacks, no credentials, what is missing."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from holdfast.plugin.listening import await_listener
from tests.cli.bench import ROOT, holdfast
from tests.harness.kafka_brokers import closed_port
from tests.harness.servers.redis import RedisServer
from tests.harness.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Here

__all__ = ["closed_port"]

CLAIMS = ("claims", "show", "1", "--scope", "s")
LIST = ("dead-letters", "list", "--topic", "t")
RESET = ("reset", "--group", "g", "--topic", "t", "--to", "earliest")


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("claims",),
        ("claims", "show"),
        ("claims", "forget"),
        ("claims", "stats"),
        ("reset",),
        ("lag",),
        ("plan",),
        ("group", "show"),
        ("dead-letters",),
        ("dead-letters", "list"),
        ("dead-letters", "replay"),
        ("emit",),
        ("migrate",),
        ("new",),
        ("completion",),
    ],
)
def test_every_command_explains_itself(command: tuple[str, ...]) -> None:
    told = holdfast(*command, "--help").stdout
    assert told.startswith("usage: holdfast")
    assert not command or command in (("claims",), ("dead-letters",)) or "example" in told


def test_the_version_is_told() -> None:
    assert holdfast("--version").stdout.startswith("holdfast ")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nothing",),
        (*CLAIMS,),
        ("claims", "show", "1", "--redis", "redis://x"),
        ("claims", "show", "--redis", "redis://x", "--scope", "s"),
        (*LIST,),
        (*LIST, "--bootstrap", "x:1", "--pending"),
        (*RESET, "--bootstrap", "x:1"),
        ("reset", "--group", "g", "--topic", "t", "--to", "soon", "--redis", "redis://x", "--bootstrap", "x:1"),
        (*LIST, "--kafka-config", "/no/such/file"),
        (*CLAIMS, "--redis", "@/no/such/file"),
    ],
)
def test_what_cannot_be_meant_is_usage(arguments: tuple[str, ...]) -> None:
    assert holdfast(*arguments, code=2).stderr


MISTAKES = (
    (*CLAIMS, "--redis", "redis://x", "--scope", "", "--group", "g"),
    ("claims", "show", "--redis", "redis://x", "--scope", "s"),
    (*LIST,),
    (*LIST, "--since", "abc"),
    (*LIST, "--bootstrap", "x:1", "--pending"),
    ("lag", "--group", "g"),
    ("plan",),
    ("plan", "--topics", "a=3", "--members", "2", "--assignor", "best"),
    ("plan", "--topics", "a=3", "--members", "2", "--leave", "till-9"),
    ("plan", "--topics", "a=3", "--members", "2", "--grow", "b=9"),
    ("doctor",),
    ("doctor", "--group", "g"),
    ("emit", "--handler", "1s"),
    ("emit", "--handler", "1s", "--kafka", "4.1", "--restart", "0s"),
    ("emit", "--handler", "1s", "--kafka", "4.1", "--static-id", "a b"),
    ("emit", "--handler", "1s", "--kafka", "4.1", "--drain", "400s"),
    ("emit", "--handler", "1s", "--kafka", "3.9", "--protocol", "consumer"),
    ("emit", "--handler", "1s", "--rocketmq", "5.5", "--workers", "100000"),
    ("migrate",),
    ("audit",),
    ("reset", "--group", "g"),
    ("nothing",),
)


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_a_mistake_is_told_in_the_words_of_the_command_line(here: Here, arguments: tuple[str, ...]) -> None:
    told = here(*arguments, code=2).stderr
    assert "None" not in told
    assert not re.search(r"\b\w+_s=", told)
    assert len([line for line in told.splitlines() if "usage:" in line or line.startswith(" ")]) <= 1
    assert len(told.splitlines()) <= 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("emit", "--handler", "1s", "--kafka", "4.1", "--restart", "0s"), "holdfast: --restart=0.0: use a number"),
        (("emit", "--handler", "1s", "--kafka", "4.1", "--static-id", "a b"), "holdfast: --static-id='a b': use"),
        (("lag", "--group", "g"), "holdfast: --bootstrap: give host:port"),
        (("lag", "--group", "g", "--namesrv", "nowhere"), "host:port is wanted"),
        (
            (*LIST, "--since", "abc"),
            "argument --since: 'abc' is neither a time ago nor a point in time: write it as 90s",
        ),
        (("reset", "--group", "g"), "usage: holdfast reset --group NAME"),
    ],
)
def test_what_is_wrong_has_the_options_name(here: Here, arguments: tuple[str, ...], says: str) -> None:
    assert says in here(*arguments, code=2).stderr


@pytest.mark.parametrize("broker", ["--bootstrap", "--namesrv"])
def test_a_port_that_refuses_is_told_at_once_and_given_up_soon(
    broker: str, here: Here, closed_port: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("holdfast.plugin.listening.PATIENCE_S", 0.3)
    told = here("lag", "--group", "g", broker, closed_port, code=3).stderr
    assert f"{closed_port} refuses connections: nothing listens there: check the address" in told
    assert [each.getMessage() for each in caplog.records if "trying for another 0.3 s" in each.getMessage()]


def test_a_listener_that_comes_in_time_is_found(caplog: pytest.LogCaptureFixture) -> None:
    with ThreadPoolExecutor(1) as pool, socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        waits = pool.submit(await_listener, f"PLAINTEXT://127.0.0.1:{server.getsockname()[1]}", 9092, 60.0)
        until(lambda: caplog.records)
        server.listen()
        waits.result(60)


def test_what_cannot_be_told_is_left_to_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> socket.socket:
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", silent)
    await_listener("a:1,b:2", 9092, 60.0)
    await_listener("not//an address", 9092, 60.0)


def test_a_property_that_the_client_does_not_know_is_a_setting(tmp_path: Path) -> None:
    config = tmp_path / "kafka"
    config.write_text("bootstrap.servers=x:1\nno.such.property=hush\n")
    told = holdfast(*LIST, "--kafka-config", config, code=2).stderr
    assert "no.such.property" in told
    assert "hush" not in told


def test_no_answer_is_told_apart_from_a_refusal_and_names_no_password(closed_port: str, tmp_path: Path) -> None:
    config, redis = tmp_path / "kafka", tmp_path / "redis"
    config.write_text(f"bootstrap.servers={closed_port}\nsasl.password=hush\nsasl.username=me\n")
    redis.write_text(f"redis://me:hush@{closed_port}/0")
    for command in ((*LIST, "--kafka-config", config, "--timeout", 1), (*CLAIMS, "--redis", f"@{redis}")):
        told = holdfast(*command, code=3).stderr
        assert closed_port in told
        assert "hush" not in told
        causes = [line for line in told.splitlines() if not line.startswith("docs: ")]
        assert len(causes) == (2 if command[0] == "dead-letters" else 1)  # at once, and at the end
    with RedisServer(password="right") as server:  # noqa: S106 - of this test's server
        wrong = server.url.replace("right", "wrong")
        told = holdfast(*CLAIMS, "--redis", wrong, code=1).stderr
        assert "credentials" in told
        assert "wrong" not in told


def test_without_the_kafka_client_the_extra_is_named_and_claims_work(redis_url: str) -> None:
    code = "import sys; sys.modules['confluent_kafka'] = None; from holdfast.adapters.cli import main; sys.exit(main())"
    for command, said, became in (
        ((*LIST, "--bootstrap", "x:1"), "pip install 'holdfast-mq[kafka]'", 2),
        ((*CLAIMS, "--redis", redis_url), "no namespace", 1),
    ):
        ran = subprocess.run(
            [sys.executable, "-c", code, *command], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert ran.returncode == became
        assert said in ran.stderr
        assert [line for line in ran.stderr.splitlines() if not line.startswith("docs: ")] == [
            ran.stderr.splitlines()[0]
        ]


def test_debug_shows_the_traceback(redis_url: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "holdfast", *CLAIMS, "--redis", redis_url, "--debug"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "Traceback" in ran.stderr


@pytest.mark.parametrize("at", ["holdfast.adapters.cli.entry", "holdfast.adapters.cli.plan", "holdfast.errors"])
def test_ctrl_c_while_a_command_is_imported_is_one_line(at: str) -> None:
    """An import takes as long as a command that only looks."""
    code = f"""if True:
        import sys
        class Struck:
            def find_spec(self, name, *_):
                if name == {at!r}:
                    raise KeyboardInterrupt
        sys.meta_path.insert(0, Struck())
        from holdfast.adapters.cli import main
        sys.exit(main(["lag"]))
    """
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (130, "holdfast: interrupted\n")
