"""An HTTP endpoint for people, probes, Prometheus and `holdfast status`: the standard library's server in a thread."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urlsplit

from holdfast.adapters.watching.access import Access, check_token
from holdfast.adapters.watching.board import Board, group_of
from holdfast.adapters.watching.outside import Outside
from holdfast.adapters.watching.page import page
from holdfast.dedup.forks import after_fork
from holdfast.errors import MissingExtraError, SettingError
from holdfast.plugin.observe.snapshot import check_groups
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from holdfast.dedup.coordinator import Coordinator
    from holdfast.plugin.observe.health import Watchable

_log = logging.getLogger("holdfast")

#: After a connection that could not be taken: this process has too many open files, as a rule.
_AGAIN_S = 0.2
_SAID_AGAIN_S = 60.0
#: Connections at once: probes and scrapes are few. Anybody who reaches the port could make more.
_MOST = 16
#: A client may take so long to ask, from its connection to the last byte, and as long to take the answer.
_PATIENCE_S = 10.0
_JSON = "application/json"


class Answer(NamedTuple):
    """An answer."""

    code: HTTPStatus
    body: bytes
    content_type: str
    headers: tuple[tuple[str, str], ...] = ()


#: Takes the header `Accept`.
Page = Callable[[str], Answer]


def serve(
    *apps: Watchable,
    host: str = "127.0.0.1",
    port: int = 9464,
    token: str | None = None,
    partitions: bool = False,
    stall_s: float = 300.0,
    silent_s: float = 60.0,
) -> Endpoint:
    """Answer HTTP in a thread of its own, before, while and after the apps run, until `close()` or the process' end.

    `/` is a page for a browser; `/live` and `/ready` answer 200 or 503, with the reasons as JSON; `/status` has the
    figures as JSON; `/metrics` is for Prometheus (`holdfast-mq[prometheus]`). `/group` has a summary of each member
    that serves: every three seconds each writes one into the Redis that they share, if any. Whoever reaches the
    port is told of topics, groups, offsets and handlers, but of no credentials, no records, and nothing that the errors
    of handlers say. An answer takes up to two seconds for each app whose loop waits for a broker or a store.

    Args:
        apps: one or more, of different groups.
        host: the address to listen at; "0.0.0.0" or "::" for all of this machine's.
        port: 0: any that is free, see `Endpoint.port`.
        token: `/`, `/status` and `/group` ask for it, the other paths do not; None: the two are open, and `/` at the
            loopback alone.
        partitions: metrics of each partition too, as for `HoldfastCollector`.
        stall_s: as for `Holdfast.health`.
        silent_s: as for `Holdfast.health`.

    Raises:
        SettingError: the address cannot be listened at; no app, or two of one group; a token that is too short.
    """
    check_groups(apps)
    check_token(token)
    outside = Outside(apps, stall_s, silent_s)
    board = Board(apps, outside)
    pages: dict[str, Page] = {
        "/": _html(),
        "/live": partial(_probe, outside, "live"),
        "/ready": partial(_probe, outside, "ready"),
        "/status": lambda _: Answer(HTTPStatus.OK, _json(outside.status()), _JSON),
        "/group": lambda _: Answer(HTTPStatus.OK, _json({"groups": board.groups()}), _JSON),
    }
    pages["/metrics"], has_metrics = _metrics(apps, partitions=partitions)
    try:
        return Endpoint(_listening(host, port, pages, token), has_metrics=has_metrics, board=board)
    except SettingError:
        board.close()
        raise


def serve_group(coordinator: Coordinator, group: str, *, host: str, port: int, token: str | None) -> Endpoint:
    """Serve the page of a group whose members tell of themselves in a store, from a process that is none of them.

    Raises:
        SettingError: the address cannot be listened at; a token that is too short.
    """
    check_token(token)
    no_app = _json({"live": True, "ready": True, "reasons": [], "apps": []})
    pages: dict[str, Page] = {
        "/": _html(),
        "/status": lambda _: Answer(HTTPStatus.OK, no_app, _JSON),
        "/group": lambda _: Answer(HTTPStatus.OK, _json({"groups": [group_of(coordinator, group)]}), _JSON),
    }
    return Endpoint(_listening(host, port, pages, token))


def _listening(host: str, port: int, pages: dict[str, Page], token: str | None) -> _Server:
    """Raises SettingError."""
    try:
        return _Server((host, port), pages, token)
    except (OSError, OverflowError) as error:
        raise SettingError(
            "host, port",
            (host, port),
            f"cannot listen there ({error}): use a free port, 0 for any, at an address of this machine",
        ) from error


class Endpoint:
    """A server that runs. A context: its end closes it."""

    def __init__(self, server: _Server, *, has_metrics: bool = True, board: Board | None = None) -> None:
        self._server, self._board, self._is_ours = server, board, True
        self.host, self.port = str(server.server_address[0]), int(server.server_address[1])
        self._thread = threading.Thread(target=server.serve_forever, name=f"holdfast-http-{self.port}", daemon=True)
        self._thread.start()
        after_fork(self, Endpoint._let_go)
        paths = ["/metrics"] if has_metrics and "/metrics" in server.pages else []
        paths += [each for each in server.pages if each not in ("/", "/metrics")]
        _log.info("serving %s%s and a page at /", self.url, ", ".join(paths))
        if not has_metrics:
            _log.info("without /metrics: pip install 'holdfast-mq[prometheus]'")

    @property
    def url(self) -> str:
        """Without a path."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def close(self) -> None:
        """Listen no more. Any thread; returns within a second."""
        if not self._is_ours:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        if self._board is not None:
            self._board.close()

    def _let_go(self) -> None:
        """A forked child answers nobody, since no thread of the server is there. With the port open it would keep it
        from the next process, which may come before the child's end, and let probes wait."""
        self._is_ours = False
        self._server.server_close()
        if self._board is not None:
            self._board.forked()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingMixIn, TCPServer):
    """Not HTTPServer: that asks the name service for the host's name, and may wait for it."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], pages: dict[str, Page], token: str | None = None) -> None:
        self.pages = pages
        self._lock = threading.Lock()  # innermost; around the connections, oldest first
        #: When each is closed; None: it is being answered, which is ours to do.
        self._closes_at: dict[socket.socket, float | None] = {}
        self._say_at = 0.0
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Asked)
        self.access = Access(token, str(self.server_address[0]))

    def get_request(self) -> tuple[socket.socket, Any]:
        """Take a connection. One that cannot be taken stays, and the loop would try again at once, and for ever."""
        try:
            return super().get_request()
        except OSError as error:
            now = SYSTEM_CLOCK.now()
            if now >= self._say_at:
                self._say_at = now + _SAID_AGAIN_S
                _log.warning("probes at port %d are not answered: %s", self.server_address[1], error)
            SYSTEM_CLOCK.sleep(_AGAIN_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as socketserver's
        """Take a connection in. Of too many, the one goes that asks for the longest: slow clients keep no probe out."""
        with self._lock:
            if len(self._closes_at) >= _MOST:
                asking = (each for each, closes_at in self._closes_at.items() if closes_at is not None)
                if (slowest := next(asking, None)) is not None:
                    self._break_off(slowest)
            if taken := len(self._closes_at) < _MOST:
                self._closes_at[request] = SYSTEM_CLOCK.now() + _PATIENCE_S
        if taken:
            super().process_request(request, client_address)
        else:
            _log.debug("a connection of %s is refused: %d are being answered", client_address, _MOST)
            self.shutdown_request(request)

    def service_actions(self) -> None:
        """Called twice a second: end what takes too long, however many bytes come meanwhile."""
        now = SYSTEM_CLOCK.now()
        with self._lock:
            for each, closes_at in list(self._closes_at.items()):
                if closes_at is not None and closes_at <= now:
                    self._break_off(each)

    def _break_off(self, connection: socket.socket) -> None:
        """With the lock held. Its thread reads an end, or cannot write, and ends."""
        del self._closes_at[connection]
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def is_answered(self, connection: socket.socket, *, by_us: bool) -> None:
        """Of a connection: we work at its answer, or its client takes it now."""
        with self._lock:
            if connection in self._closes_at:
                self._closes_at[connection] = None if by_us else SYSTEM_CLOCK.now() + _PATIENCE_S

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - as socketserver's
        """Close a connection that is over."""
        with self._lock:
            self._closes_at.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log what failed while it answered: who asked has gone, as a rule."""
        _log.debug("%s: an answer to %s failed", request, client_address, exc_info=True)


class _Asked(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "holdfast", ""
    #: Between two bytes; the whole is the server's to bound.
    timeout = int(_PATIENCE_S)

    def do_GET(self) -> None:
        """Answer."""
        self.server.is_answered(self.connection, by_us=True)
        self._answer(self._found(urlsplit(self.path).path))

    def _found(self, path: str) -> Answer:
        if (page := self.server.pages.get(path)) is None:
            return _text(HTTPStatus.NOT_FOUND, f"there are {', '.join(self.server.pages)}\n")
        refused = self.server.access.refuses(path, self.headers.get("Authorization", ""))
        if refused is not None:
            return _text(refused.code, refused.why, refused.headers)
        return page(self.headers.get("Accept", ""))

    def _answer(self, answer: Answer) -> None:
        self.server.is_answered(self.connection, by_us=False)
        self.send_response(answer.code)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in answer.headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as http.server has it
        """Log it for who debugs: probes ask every few seconds."""
        _log.debug("http: " + format, *args)


def _probe(outside: Outside, asks: str, _accept: str) -> Answer:
    found = outside.health()
    return Answer(HTTPStatus.OK if found[asks] else HTTPStatus.SERVICE_UNAVAILABLE, _json(found), _JSON)


def _metrics(apps: tuple[Watchable, ...], *, partitions: bool) -> tuple[Page, bool]:
    """Returns: the page, and whether it has metrics."""
    try:
        from holdfast.adapters.prometheus import HoldfastCollector, exposition  # noqa: PLC0415 - of an extra
    except MissingExtraError as error:
        missing = _text(HTTPStatus.NOT_IMPLEMENTED, f"{error}\n")
        return (lambda _: missing), False
    collector = HoldfastCollector(*apps, partitions=partitions)
    return (lambda accept: Answer(HTTPStatus.OK, *exposition(collector, accept))), True


def _html() -> Page:
    body, headers = page()
    answer = Answer(HTTPStatus.OK, body, "text/html; charset=utf-8", headers)
    return lambda _: answer


def _text(code: HTTPStatus, text: str, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    return Answer(code, text.encode(), "text/plain", headers)


def _json(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"
