"""A connection to a server that is slow, silent, half alive or gone: each request is answered once, no thread stays."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.rocketmq.remoting.answers import Malformed, NoAnswer
from holdfast.adapters.rocketmq.remoting.channel import Channel, connect, split_address
from holdfast.adapters.rocketmq.remoting.connection import Connection
from holdfast.adapters.rocketmq.remoting.frame import MOST_BYTES, Command, FrameReader, encode
from holdfast.adapters.rocketmq.remoting.in_flight import Request
from holdfast.errors import SettingError, SourceError, SourceFatal, SourceUnavailable, StateError
from holdfast.timing import Deadline
from tests.harness.clocks import HandClock
from tests.harness.waiting import until
from tests.unit.rocketmq_fake import FakeServer, Peer

if TYPE_CHECKING:
    from collections.abc import Iterator

ASK = Request(14, "asking", {"topic": "t"})
LONG_S = 30.0  # nothing here takes so long unless it is wrong


@contextmanager
def connected(address: str, **settings: Any) -> Iterator[Connection]:
    connection = Connection(address, **settings)
    before = set(threading.enumerate())
    try:
        yield connection
    finally:
        connection.close(LONG_S)
        ours = {each for each in set(threading.enumerate()) - before if each.name.startswith("holdfast-rocketmq")}
        assert not ours


def echo(command: Command, peer: Peer) -> None:
    peer.answer(command, {"code": str(command.code)}, command.body)


def begun(connection: Connection, request: Request = ASK, timeout_s: float = LONG_S) -> SimpleQueue[Any]:
    answers: SimpleQueue[Any] = SimpleQueue()
    connection.begin(request, timeout_s, answers.put)
    return answers


def unused_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def test_answers_find_their_requests_whatever_their_order() -> None:
    held: list[Command] = []

    def backwards(command: Command, peer: Peer) -> None:
        held.append(command)
        if len(held) == 20:
            for each in reversed(held):
                echo(each, peer)

    with FakeServer(backwards) as server, connected(server.address) as connection:
        asked = [begun(connection, Request(code, "asking", {})) for code in range(20)]
        assert [each.get(timeout=LONG_S).fields["code"] for each in asked] == [str(code) for code in range(20)]


def test_a_name_is_resolved_at_each_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a name server may move to another machine behind its name."""
    with FakeServer(echo) as old, FakeServer(echo) as new:
        where = [old.port]

        def resolved(host: str, port: int, **_: Any) -> list[Any]:
            assert (host, port) == ("names.example", 9876)
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", where[0]))]

        monkeypatch.setattr(socket, "getaddrinfo", resolved)
        with connected("names.example:9876") as connection:
            connection.ask(ASK, Deadline(LONG_S))
            where[0] = new.port
            old.close()
            until(lambda: connection.ask(ASK, Deadline(LONG_S)), despite=(SourceError,))
        assert (len(old.received), len(new.received)) == (1, 1)


def test_threads_share_a_connection() -> None:
    failed: list[object] = []

    def ask(connection: Connection, number: int) -> None:
        for each in range(50):
            body = b"%d-%d" % (number, each) * 100
            if connection.ask(Request(1, "asking", {}, body), Deadline(LONG_S)).body != body:
                failed.append((number, each))

    with FakeServer(echo) as server, connected(server.address) as connection:
        threads = [threading.Thread(target=ask, args=(connection, number)) for number in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(LONG_S)
        assert not failed
        assert len(server.peers) == 1


def test_an_answer_in_single_bytes_is_read() -> None:
    def drip(command: Command, peer: Peer) -> None:
        for byte in encode(Command(0, command.opaque, 1, None, {"offset": "5"})):
            peer.write(bytes([byte]))

    with FakeServer(drip) as server, connected(server.address) as connection:
        assert connection.ask(ASK, Deadline(LONG_S)).fields == {"offset": "5"}


def test_a_large_request_and_a_large_answer_pass_each_other() -> None:
    body = bytes(range(256)) * 40_000  # more than any socket's buffer takes at once
    with FakeServer(echo) as server, connected(server.address) as connection:
        asked = [begun(connection, Request(1, "asking", {}, body)) for _ in range(4)]
        assert all(each.get(timeout=LONG_S).body == body for each in asked)


def test_silence_is_no_answer_and_not_longer_than_the_deadline() -> None:
    with FakeServer() as server, connected(server.address) as connection:
        with pytest.raises(NoAnswer):
            connection.ask(ASK, Deadline(0.05))
        assert isinstance(begun(connection, timeout_s=0.05).get(timeout=LONG_S), NoAnswer)
        assert not connection.broken  # so short a silence says nothing of the connection


def test_what_has_no_time_left_is_not_sent() -> None:
    with FakeServer(echo) as server, connected(server.address) as connection:
        with pytest.raises(NoAnswer):
            connection.ask(Request(15, "committing", {}), Deadline(0.0))
        connection.ask(ASK, Deadline(LONG_S))
        assert [each.code for each in server.received] == [14]


def test_an_answer_that_comes_too_late_goes_to_nobody() -> None:
    held: list[tuple[Command, Peer]] = []

    def second_time(command: Command, peer: Peer) -> None:
        if command.code == ASK.code:
            echo(command, peer)
            return
        held.append((command, peer))
        if len(held) == 2:
            for each, to in held:
                to.answer(each, {"of": str(each.code)})

    with FakeServer(second_time) as server, connected(server.address) as connection:
        connection.ask(ASK, Deadline(LONG_S))  # what ran out of time before there is a connection is not sent at all
        late = begun(connection, Request(1, "asking", {}), 0.02)
        assert isinstance(late.get(timeout=LONG_S), NoAnswer)
        assert connection.ask(Request(2, "asking", {}), Deadline(LONG_S)).fields == {"of": "2"}
        assert late.empty()


def test_a_connection_that_breaks_fails_all_its_requests_at_once_and_is_made_again() -> None:
    def moody(command: Command, peer: Peer) -> None:
        if command.code == 99:
            peer.hang_up()
        elif command.code == 1:
            echo(command, peer)

    with FakeServer(moody) as server, connected(server.address) as connection:
        waiting = [begun(connection) for _ in range(3)]
        fatal = begun(connection, Request(99, "asking", {}))
        for each in (*waiting, fatal):
            error = each.get(timeout=LONG_S)
            assert isinstance(error, SourceUnavailable)
            assert not isinstance(error, NoAnswer)
        assert connection.ask(Request(1, "asking", {}), Deadline(LONG_S)).fields == {"code": "1"}
        assert len(server.peers) == 2


def test_what_is_asked_in_the_moment_that_it_breaks_goes_over_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def moody(command: Command, peer: Peer) -> None:
        if command.code == 99:
            peer.hang_up()
        else:
            echo(command, peer)

    close = Channel.close
    asked: list[SimpleQueue[Any]] = []

    def closed(channel: Channel) -> None:
        close(channel)
        if not asked:
            asked.append(begun(connection))

    monkeypatch.setattr(Channel, "close", closed)
    with FakeServer(moody) as server, connected(server.address) as connection:
        assert isinstance(begun(connection, Request(99, "asking", {})).get(timeout=LONG_S), SourceUnavailable)
        assert asked[0].get(timeout=LONG_S).fields == {"code": "14"}
        assert len(server.peers) == 2


def test_a_frame_that_is_cut_by_the_end_of_the_stream_is_no_answer() -> None:
    def cut(command: Command, peer: Peer) -> None:
        peer.write(encode(Command(0, command.opaque, 1, None, {"offset": "5"}))[:-3])
        peer.hang_up()

    with FakeServer(cut) as server, connected(server.address) as connection, pytest.raises(SourceUnavailable):
        connection.ask(ASK, Deadline(LONG_S))


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\xff\xff\xff\xff",
        b"\0\0\0\4\0\0\0\5",
        (MOST_BYTES + 1).to_bytes(4, "big"),
    ],
)
def test_what_is_no_rocketmq_breaks_the_connection_and_nothing_more(said: bytes) -> None:
    with (
        FakeServer(lambda _, peer: peer.write(said)) as server,
        connected(server.address) as connection,
        pytest.raises(SourceUnavailable, match="no connection to"),
    ):
        connection.ask(ASK, Deadline(LONG_S))


def test_nobody_there_is_told_with_the_cause_and_asked_again_later() -> None:
    address = unused_address()
    with connected(address) as connection:
        with pytest.raises(SourceUnavailable, match="refused"):
            connection.ask(ASK, Deadline(LONG_S))
        assert connection.broken
        with FakeServer(echo, port=int(address.rpartition(":")[2])):
            # Not before the backoff is over, but within the time that the request has.
            assert connection.ask(ASK, Deadline(LONG_S)).fields == {"code": "14"}


def test_what_was_not_sent_in_its_time_is_never_sent() -> None:
    address, clock = unused_address(), HandClock()
    with connected(address, clock=clock) as connection:
        with pytest.raises(SourceUnavailable):
            connection.ask(ASK, Deadline(LONG_S))
        late = begun(connection, Request(15, "committing", {}), 0.01)
        clock.sleep(0.02)  # shorter than the backoff
        assert isinstance(late.get(timeout=LONG_S), NoAnswer)
        clock.sleep(1.0)
        with FakeServer(echo, port=int(address.rpartition(":")[2])) as server:
            connection.ask(ASK, Deadline(LONG_S))
            assert [each.code for each in server.received] == [14]
        assert connection._in_flight.unsent_bytes == 0


def test_nor_is_what_was_over_when_a_process_that_was_stopped_had_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock()

    def stopped(*args: Any, **named: Any) -> socket.socket:
        made = connect(*args, **named)
        clock.sleep(1.0)
        return made

    monkeypatch.setattr("holdfast.adapters.rocketmq.remoting.connection.connect", stopped)
    with FakeServer(echo) as server, connected(server.address, clock=clock) as connection:
        assert isinstance(begun(connection, Request(15, "committing", {}), 0.5).get(timeout=LONG_S), NoAnswer)
        connection.ask(ASK, Deadline(LONG_S))
        assert [each.code for each in server.received] == [14]


def test_an_answer_that_is_there_is_read_before_its_time_is_judged() -> None:
    busy, answered, clock = threading.Event(), threading.Event(), HandClock()

    def tell(command: Command, peer: Peer) -> None:
        echo(command, peer)
        if command.code == 2:
            answered.set()

    def slow(_: object) -> None:  # as a process that is stopped
        busy.set()
        assert answered.wait(LONG_S)
        clock.sleep(0.3)

    with FakeServer(tell) as server, connected(server.address, clock=clock) as connection:
        connection.begin(Request(1, "asking", {}), LONG_S, slow)
        assert busy.wait(LONG_S)
        assert begun(connection, Request(2, "asking", {}), 0.1).get(timeout=LONG_S).fields == {"code": "2"}


def test_who_asks_again_at_once_is_paced() -> None:
    with connected(unused_address()) as connection:
        for _ in range(3):
            with pytest.raises(SourceUnavailable):
                connection.ask(ASK, Deadline(LONG_S))
        assert connection._backoff_s > 0.1


@pytest.mark.parametrize("address", ["nowhere.invalid:1", "a" * 80 + ".invalid:1"])
def test_a_host_that_has_no_address_is_unavailable(address: str) -> None:
    with connected(address) as connection, pytest.raises(SourceUnavailable):
        connection.ask(ASK, Deadline(LONG_S))


def test_a_server_that_hears_nothing_any_more_is_left_although_nobody_hung_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.adapters.rocketmq.remoting.connection._SILENCE_S", 0.05)

    def once(command: Command, peer: Peer) -> None:
        if len(server.peers) == 2 or command.code == 1:
            echo(command, peer)

    with FakeServer(once) as server, connected(server.address) as connection:
        connection.ask(Request(1, "asking", {}), Deadline(LONG_S))  # silent is only who was reached
        longer = begun(connection)
        assert isinstance(begun(connection, timeout_s=0.1).get(timeout=LONG_S), NoAnswer)
        assert isinstance(longer.get(timeout=LONG_S), SourceUnavailable)
        assert connection.ask(ASK, Deadline(LONG_S)).fields == {"code": "14"}


def test_one_slow_request_leaves_a_connection_that_answers_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.adapters.rocketmq.remoting.connection._SILENCE_S", 0.05)

    def some(command: Command, peer: Peer) -> None:
        if command.code == 1:
            echo(command, peer)

    clock = HandClock()
    with FakeServer(some) as server, connected(server.address, clock=clock) as connection:
        connection.ask(Request(1, "asking", {}), Deadline(LONG_S))
        slow = begun(connection, timeout_s=0.3)
        clock.sleep(0.1)
        connection.ask(Request(1, "asking", {}), Deadline(LONG_S))
        clock.sleep(0.3)
        assert isinstance(slow.get(timeout=LONG_S), NoAnswer)
        connection.ask(Request(1, "asking", {}), Deadline(LONG_S))
        assert len(server.peers) == 1


def test_closing_answers_what_waits_and_ends_the_thread_at_once() -> None:
    with FakeServer() as server, connected(server.address) as connection:
        waiting = [begun(connection) for _ in range(3)]
        connection.close(LONG_S)
        assert all(isinstance(each.get_nowait(), SourceFatal) for each in waiting)
        with pytest.raises(SourceFatal):
            begun(connection)
        connection.close()


def test_closing_does_not_wait_for_a_connection_that_cannot_be_made() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = full.getsockname()
        stuffed = [socket.socket() for _ in range(4)]
        for each in stuffed:
            each.setblocking(False)
            each.connect_ex(address)
        with connected(f"127.0.0.1:{address[1]}", connect_timeout_s=LONG_S) as connection:
            waiting = begun(connection, timeout_s=0.05)
            assert isinstance(waiting.get(timeout=LONG_S), NoAnswer)  # watched while it connects
            waiting = begun(connection)
            connection.close(LONG_S)
            assert isinstance(waiting.get_nowait(), SourceFatal)
        for each in stuffed:
            each.close()


def test_a_callback_that_raises_is_logged_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def wrong(_: object) -> None:
        msg = "a bug"
        raise ValueError(msg)

    with FakeServer(echo) as server, connected(server.address) as connection:
        connection.begin(ASK, LONG_S, wrong)
        assert connection.ask(ASK, Deadline(LONG_S)).fields == {"code": "14"}
        until(lambda: "could not be handled" in caplog.text, patience_s=LONG_S)


def test_a_callback_may_begin_but_not_wait() -> None:
    with FakeServer(echo) as server, connected(server.address) as connection:
        seen: SimpleQueue[Any] = SimpleQueue()

        def again(_: object) -> None:
            try:
                connection.ask(ASK, Deadline(LONG_S))
            except StateError as error:
                seen.put(error)
            connection.begin(Request(7, "asking", {}), LONG_S, seen.put)

        connection.begin(ASK, LONG_S, again)
        assert isinstance(seen.get(timeout=LONG_S), StateError)
        assert seen.get(timeout=LONG_S).fields == {"code": "7"}


def test_a_callback_may_close_its_connection() -> None:
    with FakeServer(echo) as server, connected(server.address) as connection:
        waiting = begun(connection, Request(8, "asking", {}))
        closed = threading.Event()

        def close(_: object) -> None:
            connection.close()
            closed.set()

        connection.begin(ASK, LONG_S, close)
        assert closed.wait(LONG_S)
        assert isinstance(waiting.get(timeout=LONG_S), Command | SourceFatal)


def test_what_a_server_asks_is_answered_and_what_is_not_supported_is_refused() -> None:
    replies: SimpleQueue[Command] = SimpleQueue()

    def ask_back(command: Command, peer: Peer) -> None:
        if command.is_answer:
            replies.put(command)
            return
        for code in (307, 308, 309):
            peer.write(encode(Command(code, code, 0)))
        peer.write(encode(Command(40, 4, 2, None, {"consumerGroup": "g"})))
        echo(command, peer)

    told: list[int] = []

    def on_request(command: Command, _: str) -> bytes | None:
        told.append(command.code)
        if command.code == 309:
            msg = "a bug"
            raise ValueError(msg)
        return b"running" if command.code == 307 else None

    with FakeServer(ask_back) as server, connected(server.address, on_request=on_request) as connection:
        connection.ask(ASK, Deadline(LONG_S))
        said = [replies.get(timeout=LONG_S) for _ in range(3)]
        assert [(each.opaque, each.code, each.body) for each in said] == [
            (307, 0, b"running"),
            (308, 3, b""),
            (309, 3, b""),
        ]
        assert told == [307, 308, 309, 40]
        assert replies.empty()  # a notice wants no answer


def test_a_server_that_asks_and_reads_no_answers_does_not_fill_the_memory() -> None:
    body = bytes(64 * 1024)
    asked = SimpleQueue[int]()

    def on_request(command: Command, _: str) -> bytes:
        asked.put(command.opaque)
        return body

    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        connected(f"127.0.0.1:{listener.getsockname()[1]}", on_request=on_request) as connection,
    ):
        answer = begun(connection)
        server, _ = listener.accept()
        with server:
            server.recv(65536)
            for number in range(400):
                server.sendall(encode(Command(307, number, 0)))
            server.sendall(encode(Command(0, 1, 1, None, {"offset": "5"})))
            assert answer.get(timeout=LONG_S).fields == {"offset": "5"}
            assert asked.qsize() == 400
            assert len(connection._unsent) <= 1024 * 1024


def test_a_frame_that_was_half_written_is_not_ended_on_the_next_connection() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        connected(f"127.0.0.1:{listener.getsockname()[1]}") as connection,
    ):
        half = begun(connection, Request(1, "sending", {}, bytes(12 * 1024 * 1024)))
        first, _ = listener.accept()
        with first:
            first.recv(1)
        assert isinstance(half.get(timeout=LONG_S), SourceUnavailable)
        whole = begun(connection)
        second, _ = listener.accept()
        with second:
            [command] = FrameReader().feed(second.recv(65536))
            Peer(second).answer(command, {"offset": "5"})
            assert whole.get(timeout=LONG_S).fields == {"offset": "5"}


def test_a_server_that_takes_nothing_does_not_fill_the_memory() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with connected(address) as connection:
            errors: SimpleQueue[SourceError | Command] = SimpleQueue()
            request = Request(1, "sending", {}, bytes(8 * 1024 * 1024))
            started = time.monotonic()

            def fill() -> None:
                for _ in range(40):
                    connection.begin(request, LONG_S, errors.put)

            with pytest.raises(SourceUnavailable, match="takes nothing"):
                fill()
            assert time.monotonic() - started < LONG_S  # none of them waited
            assert len(connection._unsent) <= 64 * 1024 * 1024


def test_a_request_that_is_too_long_is_refused_at_once() -> None:
    with FakeServer() as server, connected(server.address) as connection:
        with pytest.raises(Malformed, match="less at a time"):
            begun(connection, Request(1, "sending", {}, bytes(MOST_BYTES)))
        assert not connection._in_flight


@pytest.mark.parametrize("wrong", ["", "host", "host:", ":1", "host:0", "host:65536", "host:\u0661"])
def test_an_address_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(SettingError):
        split_address(wrong)
    assert split_address("[::1]:9876") == ("::1", 9876)
