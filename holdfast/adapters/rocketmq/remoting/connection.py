"""Connection: one server. Connects with the first request, and again with the first one after it broke.

Each connection has a thread, which connects, writes what could not be sent at once, reads, runs callbacks, and watches
the timeout of every request.

- RocketMQ's brokers have no fencing. Therefore a request that times out before there is a connection is never sent: a
  commit must not happen late. A request that was sent may take effect at any time.
- OpenSSL allows one thread at a time. Sockets do not block, and sender and reader share a lock for each call.
- If a request with a timeout of 3 s or more times out, and nothing was received meanwhile, the connection counts as
  dead, although neither side has closed it.
"""

from __future__ import annotations

import itertools
import logging
import random
import ssl
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from holdfast.adapters.rocketmq.remoting import codes
from holdfast.adapters.rocketmq.remoting.answers import Malformed, NoAnswer, NotTrusted
from holdfast.adapters.rocketmq.remoting.channel import READ, WRITE, Channel, Waiter, connect
from holdfast.adapters.rocketmq.remoting.frame import Command, FrameReader, encode
from holdfast.adapters.rocketmq.remoting.in_flight import Asked, InFlight
from holdfast.errors import SourceError, SourceFatal, SourceUnavailable, StateError
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.adapters.rocketmq.remoting.in_flight import Request
    from holdfast.timing import Clock, Deadline

_log = logging.getLogger("holdfast.rocketmq")

_MOST_UNSENT_BYTES: Final = 64 * 1024 * 1024
#: The most bytes of answers to the server's own requests that are kept while it does not read.
_MOST_UNREAD_BYTES: Final = 1024 * 1024
#: Requests made in callbacks are sent once they have this many bytes, about five pulls. More sends would cost time:
#: after each, the thread may have to wait for the interpreter's lock. Fewer would delay the answers.
_TOGETHER_BYTES: Final = 1_500
_FIRST_BACKOFF_S: Final = 0.1
_MOST_BACKOFF_S: Final = 3.0
#: The timeout from which a request without an answer, while nothing else was received, means a dead connection.
_SILENCE_S: Final = 3.0


class _Closing(Exception):
    """Raised on the connection's thread to end it."""


class Connection:
    """The connection to one server. Any thread.

    Args:
        address: host:port.
        tls: None: plain.
        connect_timeout_s: seconds, for all addresses of the host together, with the TLS handshake.
        on_request: called with the server's own requests; returns the body of the answer; None: not supported. On this
            connection's thread, like all answers.
        on_broken: called each time that the connection broke or failed. On this connection's thread.
    """

    def __init__(
        self,
        address: str,
        *,
        tls: ssl.SSLContext | None = None,
        connect_timeout_s: float = 3.0,
        on_request: Callable[[Command, str], bytes | None] | None = None,
        on_broken: Callable[[str], None] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.address = address
        self._tls, self._connect_timeout_s = tls, connect_timeout_s
        self._on_request, self._on_broken = on_request, on_broken
        self._clock = clock
        self._opaques = itertools.count(1)
        self._lock = threading.Lock()  # guards the fields below; innermost, and no call waits while holding it
        self._channel: Channel | None = None
        self._in_flight = InFlight()
        self._used_at = clock.now()
        self._unsent = bytearray()  # bytes that the socket has not accepted yet
        self._sending = False  # a send has begun, and the sent bytes are not removed from `_unsent` yet
        self._fault: Exception | None = None  # why there is no connection now
        self._closed = False
        self._thread: threading.Thread | None = None  # set by the thread itself, when it runs
        self._starting: threading.Thread | None = None
        self._waiter: Waiter | None = None
        self._connected_at = self._heard_at = 0.0  # only the thread uses this and the fields below
        self._backoff_s = _FIRST_BACKOFF_S
        self._was_made = self._was_heard = False
        self._random = random.Random()  # its own: the module's is the user's to seed

    def __repr__(self) -> str:
        return f"Connection({self.address!r})"

    @property
    def broken(self) -> bool:
        """Whether the last attempt to connect failed, or the connection broke with a request under way, and there is no
        new connection since.

        Servers close connections that were idle for two minutes: that does not count.
        """
        return self._fault is not None

    @property
    def unused_s(self) -> float:
        """Seconds since the last request; 0 while one waits for its answer."""
        return 0.0 if self._in_flight else self._clock.now() - self._used_at

    def begin(self, request: Request, timeout_s: float, on_answer: Callable[[Command | SourceError], None]) -> None:
        """Send a request, now or when connected. Never waits.

        Args:
            request: the request.
            timeout_s: seconds after which the answer is NoAnswer.
            on_answer: called once, on this connection's thread, with a Command of any code, or an error.

        Raises:
            SourceFatal: the connection is closed.
            SourceUnavailable: too many bytes wait to be sent, because the server does not read.
            Malformed: the request is too long.
        """
        opaque = next(self._opaques) & 0x7FFFFFFF
        frame = encode(Command(request.code, opaque, 0, None, request.fields, request.body))
        now = self._clock.now()
        with self._lock:
            if self._closed:
                raise SourceFatal(f"{request.what}: the client is closed")
            if len(self._unsent) + self._in_flight.unsent_bytes + len(frame) > _MOST_UNSENT_BYTES:
                raise SourceUnavailable(f"{request.what}: {self.address} takes nothing; too much waits for it already")
            if self._waiter is None:
                self._waiter = Waiter(self._clock)
            if self._thread is None and (self._starting is None or not self._starting.is_alive()):
                # A signal handler may raise at any point here, so a second thread may be started: it ends at once
                # (`_run`).
                name = f"holdfast-rocketmq-{self.address}"
                self._starting = threading.Thread(target=self._run, name=name, daemon=True)
                self._starting.start()
            asked = Asked(request, now, now + timeout_s, on_answer)
            sooner = self._in_flight.add(opaque, asked)
            self._used_at = now
            if self._channel is None:
                self._in_flight.hold(asked, frame)
                self._waiter.wake()
            elif threading.current_thread() is self._thread and len(self._unsent) < _TOGETHER_BYTES:
                self._unsent += frame  # in a callback: sent together with the requests of the next callbacks
            elif not self._push(frame) or sooner:
                self._waiter.wake()

    def ask(self, request: Request, deadline: Deadline) -> Command:
        """Send a request and wait for the answer, which may have any code.

        Raises:
            NoAnswer: the deadline has passed.
            SourceUnavailable: there is no connection, or it broke.
            SourceFatal: the connection is closed.
            StateError: called from a callback of this connection, where the wait would never end.
        """
        if threading.current_thread() is self._thread:
            raise StateError(f"{request.what}: a callback of this connection cannot wait for it")
        answers: SimpleQueue[Command | SourceError] = SimpleQueue()
        left_s = deadline.left_s()
        if left_s <= 0:
            raise self._no_answer(request, left_s)
        self.begin(request, left_s, answers.put)
        try:
            answer = answers.get(timeout=left_s)
        except Empty:
            raise self._no_answer(request, left_s) from None
        if isinstance(answer, SourceError):
            raise answer
        return answer

    def close(self, timeout_s: float = 1.0) -> None:
        """End the thread. Requests without an answer get SourceFatal. Idempotent.

        Args:
            timeout_s: the longest to wait for a running callback, or for DNS.
        """
        with self._lock:
            self._closed = True
            if self._waiter is not None:
                self._waiter.wake()
            thread, starting = self._thread, self._starting
        if thread is None:  # no thread has begun its work, and none will
            self._end()
            thread = starting
        if thread is not None and thread is not threading.current_thread() and thread.is_alive():
            thread.join(timeout_s)

    # -- any thread, under the lock

    def _push(self, frame: bytes) -> bool:
        """Send as much as possible. Returns whether all was sent; the thread writes the rest."""
        self._unsent += frame
        try:
            self._flush()
        except OSError:
            return False  # the thread will get the same error
        return not self._unsent

    def _flush(self) -> None:
        """Send `_unsent`, as far as the socket accepts it. Raises OSError."""
        if self._sending:
            raise ConnectionAbortedError("a send was interrupted, and how much of it went is not known")
        if self._unsent and self._channel is not None:
            self._sending = True  # a signal handler may raise before the sent bytes are removed
            del self._unsent[: self._channel.send(self._unsent)]
            self._sending = False

    # -- the connection's thread

    def _run(self) -> None:
        with self._lock:
            if self._thread is not None or self._closed:
                return
            self._thread = threading.current_thread()
        try:
            while True:
                self._wait(self._has_work)
                self._was_made = self._was_heard = False
                try:
                    self._serve()
                except (OSError, Malformed, ValueError) as error:  # ValueError: an impossible host name
                    self._break(error)
                again_at = self._clock.now() + self._backoff_s * self._random.uniform(0.5, 1.0)
                self._backoff_s = min(_MOST_BACKOFF_S, 2 * self._backoff_s)
                self._wait(lambda: self._clock.now() >= again_at, again_at)  # noqa: B023 - called before it changes
        except _Closing:
            return
        finally:
            self._end()

    def _has_work(self) -> bool:
        return bool(self._in_flight)

    def _wait(self, reached: Callable[[], bool], until: float = float("inf")) -> None:
        """Wait until `reached()`, watching timeouts and the watched socket meanwhile. Raises _Closing."""
        while not reached():
            self._pause(until)

    def _pause(self, until: float) -> bool:
        """Wait once. Returns whether the watched socket is ready. Raises _Closing."""
        ready = self._waiting.wait(min(until, self._in_flight.look_at))
        if self._closed:
            raise _Closing
        if not ready:  # else read first: after a pause of the process, answers may have arrived in time
            self._expire(self._clock.now())
        return ready

    @property
    def _waiting(self) -> Waiter:
        if self._waiter is None:
            raise StateError("the thread runs without a waiter")
        return self._waiter

    def _serve(self) -> None:
        """Connect, then read and write until it breaks. Raises OSError, Malformed, _Closing."""
        connected = connect(
            self.address,
            self._tls,
            until=self._clock.now() + self._connect_timeout_s,
            clock=self._clock,
            waiter=self._waiting,
            pause=self._pause,
        )
        channel = Channel(connected)
        frames = FrameReader()
        try:
            self._expire(self._clock.now())  # after a pause of the process, do not send requests that have timed out
            with self._lock:
                self._channel, self._fault, self._sending = channel, None, False
                self._unsent += self._in_flight.unsent()
            self._connected_at = self._heard_at = self._clock.now()
            self._was_made = True
            while True:
                with self._lock:
                    self._flush()
                    events = READ | WRITE if self._unsent else READ
                self._waiting.watch(channel.socket, events)
                looked_at = self._clock.now()
                self._pause(0.0 if channel.has_more else float("inf"))
                with self._lock:
                    piece = channel.receive()
                if piece is not None:
                    self._heard_at, self._was_heard = self._clock.now(), True
                    for command in frames.feed(piece):
                        self._backoff_s = _FIRST_BACKOFF_S
                        self._take(command)
                    self._expire(looked_at)
        finally:
            self._waiting.watch(None)
            with self._lock:
                self._channel = None
                self._unsent.clear()
            channel.close()

    def _take(self, command: Command) -> None:
        if not command.is_answer:
            self._requested(command)
            return
        with self._lock:
            asked = self._in_flight.take(command.opaque)
        if asked is not None:  # else it has timed out
            self._call(asked, command)

    def _requested(self, command: Command) -> None:
        answer = command.answered(codes.NOT_SUPPORTED, f"request code {command.code} is not supported")
        try:
            body = None if self._on_request is None else self._on_request(command, self.address)
            frame = encode(answer if body is None else command.answered(codes.SUCCESS, None, body))
        except Exception:  # noqa: BLE001 - logged; the connection must go on
            _log.exception("the request of %s (code %d) could not be handled", self.address, command.code)
            frame = encode(answer)
        if not command.is_oneway:
            with self._lock:
                if len(self._unsent) + len(frame) <= _MOST_UNREAD_BYTES:  # else the server does not read its answers
                    self._push(frame)  # this is the connection's thread: it writes the rest next

    def _call(self, asked: Asked, answer: Command | SourceError) -> None:
        try:
            asked.on_answer(answer)
        except Exception:  # noqa: BLE001 - logged; the connection must go on
            _log.exception("%s at %s: its answer could not be handled", asked.request.what, self.address)

    def _expire(self, now: float) -> None:
        """Answer the requests that have timed out. Raises OSError: nothing at all is received from the server."""
        if now < self._in_flight.look_at:
            return
        with self._lock:
            ended = self._in_flight.take_over(now)
        for asked in ended:
            self._call(asked, self._no_answer(asked.request, asked.until - asked.since))
        if self._channel is not None and any(self._was_silent(asked, now) for asked in ended):
            raise TimeoutError("the server is silent")

    def _was_silent(self, asked: Asked, now: float) -> bool:
        """Whether nothing was received while this request, which has timed out, was with the server."""
        since = max(asked.since, self._connected_at)
        return self._heard_at <= since and now - since >= _SILENCE_S

    def _no_answer(self, request: Request, waited_s: float) -> NoAnswer:
        fault = self._fault
        why = f"; there is no connection: {fault}" if fault is not None else ""
        return NoAnswer(f"{request.what}: no answer of {self.address} within {waited_s:.3g} s{why}")

    def _break(self, error: Exception) -> None:
        with self._lock:
            failed = self._in_flight.take_sent() if self._was_made else self._in_flight.take_all()
            if failed or not self._was_made:
                self._fault = error
        if self._on_broken is not None:
            self._on_broken(self.address)
        for asked in failed:
            # An error object for each request: raising one adds a traceback to it.
            self._call(asked, self._no_connection(asked.request, error))

    def _no_connection(self, request: Request, error: Exception) -> SourceUnavailable:
        said = f"{request.what}: no connection to {self.address}: {error}"
        if isinstance(error, ssl.SSLCertVerificationError):
            return NotTrusted(f"{said}; give tls= a context that trusts the authority of the servers' certificates")
        if isinstance(error, ConnectionError) and self._tls is None and self._was_made and not self._was_heard:
            return SourceUnavailable(f"{said}; if it speaks TLS alone, give tls= a context")
        return SourceUnavailable(said)

    def _end(self) -> None:
        with self._lock:
            self._closed = True
            left = self._in_flight.take_all()
            if self._waiter is not None:
                self._waiter.close()
        for asked in left:
            self._call(asked, SourceFatal(f"{asked.request.what}: the client is closed"))
