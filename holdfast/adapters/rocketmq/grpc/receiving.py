"""Receiving: threads that poll, one for each topic and broker, as long as the app asks and there is room.

- rocketmq-python-client polls topics and queues in turn, so that of two polls both may wait at one topic and none at
  the other: ours say where. One poll of any queue is one of all queues of its broker.
- After a restart of the proxy the client polls in vain for five minutes (its settings are sent no sooner): it is made
  anew after five seconds without an answer.
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

#: Messages that one poll may bring: the proxy gives no more.
_BATCH = 32
#: Bytes of bodies in the process, as they came, from which on no more are asked for. A poll under way may bring 32
#: messages more, each as large as the broker takes it.
_MOST_BYTES = 64 * 1024 * 1024
#: Who has not asked for so long wants nothing for now: what came would only wait for its lease to end.
_WANTED_S = 1.0
_LOOK_S = 0.1
#: After so long without an answer to any poll the client is made anew.
_RENEW_S = 5.0


class Receiving:
    """`wanted`, `tend` and `trouble` belong to the loop's thread."""

    def __init__(self, client: Proxy, leases: Leases, config: Wanted, runtime: Runtime) -> None:
        self._client, self._leases, self._config, self._runtime = client, leases, config, runtime
        self._threads: dict[PollTarget, Thread] = {}
        self._over = runtime.event()
        self._wanted_at = runtime.now()
        self._trouble: SourceError | None = None
        #: A poll was answered: what this process may do was right then.
        self.let_in = False
        #: Where topics are; a thread whose place is none of them ends.
        self._places: Sequence[PollTarget] = ()
        #: Since when no poll has been answered, or the client was made anew.
        self._ill_since: float | None = None
        self._renewing = False
        self._lock = runtime.lock()

    def tend(self) -> None:
        """Poll wherever the topics are by now. Raises SourceError."""
        self._places = self._client.places()
        for place in self._places:
            thread = self._threads.get(place)
            if thread is None or not thread.is_alive():
                name = f"holdfast-{self._config.group}-{place.topic}-{place.broker}"
                self._threads[place] = self._runtime.spawn(partial(self._run, place), name)

    def wanted(self) -> None:
        """The app asks for messages."""
        self._wanted_at = self._runtime.now()

    def trouble(self) -> SourceError | None:
        """The error since this was last asked for."""
        found, self._trouble = self._trouble, None
        return found

    def stop(self) -> None:
        """Ask for nothing more; polls under way may still bring something."""
        self._over.set()

    @property
    def over(self) -> bool:
        """Whether no poll is under way any more."""
        return not any(thread.is_alive() for thread in self._threads.values())

    def join(self, timeout_s: float) -> None:
        """Once the client is closed, they end."""
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
            asked_at = self._runtime.now()
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
