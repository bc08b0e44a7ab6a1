"""Receiving: threads that poll, one for each topic and broker, while the app polls and there is room.

- rocketmq-python-client polls topics and queues in turn, so that two polls may both wait at one topic, and none at the
  other. Here each poll names topic and broker. A poll of any queue polls all queues of its broker.
- The proxy holds a poll for 5 s at least if no message comes. At a stop, a poll that has waited for a while is ended:
  a message that is on its way to it at that very moment is hidden from all members until its lease ends. A younger one
  may just be getting messages, which would be hidden so too.
- After a restart of the proxy the client polls in vain for five minutes, until it sends its settings again. Therefore
  it is replaced after five seconds without an answer.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from holdfast.errors import SourceError
from holdfast.plugin.retrying.retry import BACKOFF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.rocketmq.grpc.config import Wanted
    from holdfast.adapters.rocketmq.grpc.delivery import PollTarget, Proxy
    from holdfast.adapters.rocketmq.grpc.leases import Leases
    from holdfast.runtime import Runtime, Thread

#: The most messages of one poll; the proxy returns no more.
_BATCH = 32
#: With this many bytes of bodies in the process, as received, no more messages are requested. A poll under way may
#: bring 32 messages more, each as large as the broker accepts.
_MOST_BYTES = 64 * 1024 * 1024
#: If the app has not polled for this long, no messages are requested: they would only wait, and their leases end.
_WANTED_S = 1.0
_LOOK_S = 0.1
#: A poll without an answer for so long waits for messages.
_WAITS_S = 0.3
#: The time without an answer to any poll after which the client is replaced.
_RENEW_S = 5.0


class Receiving:
    """The polling threads. `wanted`, `tend` and `trouble` are for the loop's thread."""

    def __init__(self, client: Proxy, leases: Leases, config: Wanted, runtime: Runtime) -> None:
        self._client, self._leases, self._config, self._runtime = client, leases, config, runtime
        self._threads: dict[PollTarget, Thread] = {}
        #: When the poll under way of each place was sent.
        self._asked_at: dict[PollTarget, float] = {}
        self._over = runtime.event()
        self._wanted_at = runtime.now()
        self._trouble: SourceError | None = None
        #: The proxy has answered a poll: this user had the permissions then.
        self.let_in = False
        #: The topics and brokers to poll; a thread for any other ends.
        self._places: Sequence[PollTarget] = ()
        #: The time since which no poll was answered, or at which the client was replaced; None: polls are answered.
        self._ill_since: float | None = None
        self._renewing = False
        self._lock = runtime.lock()

    def tend(self) -> None:
        """Start threads for all topics and brokers of the newest routes. Raises SourceError. After `stop`,
        stop again."""
        if self._over.is_set():
            self.stop()
            return
        self._places = self._client.places()
        for place in self._places:
            thread = self._threads.get(place)
            if thread is None or not thread.is_alive():
                name = f"holdfast-{self._config.group}-{place.topic}-{place.broker}"
                self._threads[place] = self._runtime.spawn(partial(self._run, place), name)

    def wanted(self) -> None:
        """Note that the app polls."""
        self._wanted_at = self._runtime.now()

    def trouble(self) -> SourceError | None:
        """The last error since the previous call; None: there was none."""
        found, self._trouble = self._trouble, None
        return found

    def stop(self) -> None:
        """Send no more polls, and end those that wait for messages. The others may still bring some. Idempotent; call
        it again for polls that wait by then."""
        self._over.set()
        latest = self._runtime.now() - _WAITS_S
        for place, asked_at in list(self._asked_at.items()):
            if asked_at < latest:
                self._client.end_poll(place)

    @property
    def over(self) -> bool:
        """Whether no poll is under way any more."""
        return not any(thread.is_alive() for thread in self._threads.values())

    def join(self, timeout_s: float) -> None:
        """Wait for the threads, which end once the client is closed."""
        for thread in self._threads.values():
            thread.join(timeout_s)

    # ---- the threads
    def _run(self, place: PollTarget) -> None:
        failures = 0
        while not self._over.is_set() and place in self._places:
            room = self._room()
            if not room:
                self._over.wait(_LOOK_S)
                continue
            asked_at = self._asked_at[place] = self._runtime.now()
            try:
                found = self._client.receive(place, room)
            except SourceError as error:
                if self._over.is_set():
                    return
                self._trouble = error
                failures += 1
                self._renew()
                self._over.wait(BACKOFF.wait_s(failures, error, self._runtime.random) or _LOOK_S)
                continue
            failures, self._ill_since, self.let_in = 0, None, True
            self._leases.arrived(found, asked_at)

    def _renew(self) -> None:
        now = self._runtime.now()
        with self._lock:
            since = self._ill_since
            if since is None:
                self._ill_since = now
            if since is None or now - since < _RENEW_S or self._renewing:
                return
            self._renewing = True
        try:
            self._client.renew()
        except SourceError as error:
            self._trouble = error
        finally:
            self._ill_since = self._runtime.now()
            self._renewing = False

    def _room(self) -> int:
        if self._runtime.now() - self._wanted_at > _WANTED_S:
            return 0
        if self._leases.size >= _MOST_BYTES:
            return 0
        return max(0, min(_BATCH, self._config.in_flight - self._leases.load))
