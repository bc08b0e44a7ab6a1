"""START HERE: several processes of one app under one that starts, restarts and stops them, and imports nothing of it.

A turn of its loop: wait for a signal, for a process that says something or ends, or for what is due; then look at each.
The first process begins alone: an app that cannot be imported is told once, and how long a drain takes is known then.
"""

from __future__ import annotations

import logging
import selectors
import signal
import socket
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from holdfast.adapters.cli.running.child import told
from holdfast.adapters.cli.running.lifeline import CLOSE_S, HURRY, LONGEST_WAIT_S
from holdfast.adapters.cli.running.restarts import Restarts
from holdfast.timing import SYSTEM_CLOCK, wall_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.adapters.cli.running.child import Child

_log = logging.getLogger("holdfast.run")

_ASKS = (signal.SIGTERM, signal.SIGINT)
#: With a grace that is given: so long before its end, what still runs is handed over.
_HURRY_S = 5.0
#: A process that was killed, or that did not end well when it was asked to.
_NOT_WELL = 1


class Changes(Protocol):
    """Changes that make all processes begin anew, in development."""

    every_s: float

    def seen(self) -> str:
        """Look, and tell in words what has changed since the last look; "" = nothing."""
        ...


@dataclass(slots=True, kw_only=True)
class ProcessSlot:
    """A place for one process: those that follow each other in it have one ordinal."""

    ordinal: int
    restarts: Restarts
    child: Child | None = None
    #: When the next one is started; None = not by time.
    due_s: float | None = None
    #: When it is killed, if it has not ended for another to begin; None = it was not asked to.
    kill_at_s: float | None = None
    #: It has ended, and is started again when something has changed.
    waits_for_change: bool = False


class Supervisor:
    """One thread, the main one.

    Args:
        start: starts the process of an ordinal.
        processes: so many.
        restarts: of one process in a row, before all is given up.
        grace_s: what a stop may take in all; None: as long as the app's own bounds allow.
        changes: None: nothing is watched.
    """

    def __init__(
        self,
        start: Callable[[int], Child],
        processes: int,
        *,
        restarts: int,
        grace_s: float | None = None,
        changes: Changes | None = None,
    ) -> None:
        self._start, self._grace_s, self._changes = start, grace_s, changes
        self._places = [ProcessSlot(ordinal=each, restarts=Restarts(restarts)) for each in range(processes)]
        self._selector = selectors.DefaultSelector()
        self._code = 0
        self._stopping = self._loaded = False
        #: While it stops: when it hurries, and when it kills.
        self._hurry_at_s = self._kill_at_s = 0.0
        self._look_at_s = SYSTEM_CLOCK.now()

    def run(self) -> int:
        """Start them, and keep them until a signal or until one is given up. Returns: the exit code."""
        ours, wakes = socket.socketpair()
        for each in (ours, wakes):
            each.setblocking(False)
        before = {number: signal.signal(number, lambda *_: None) for number in (*_ASKS, signal.SIGCHLD)}
        woken = signal.set_wakeup_fd(wakes.fileno())
        self._selector.register(ours, selectors.EVENT_READ)
        try:
            self._launch(self._places[0])
            while not self._stopping or any(place.child for place in self._places):
                self._turn(ours)
        finally:
            signal.set_wakeup_fd(woken)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._selector.close()
            ours.close()
            wakes.close()
        return self._code

    def _turn(self, ours: socket.socket) -> None:
        self._wait(ours)
        for place in self._places:
            self._look(place)
        if not self._loaded and any(place.child is not None and place.child.loaded for place in self._places):
            self._loaded = True
            for place in self._places[1:]:
                self._launch(place)
        if self._stopping:
            self._end_what_hangs()
            return
        for place in self._places:
            if place.kill_at_s is not None and SYSTEM_CLOCK.now() >= place.kill_at_s:
                self._kill(place)
        if self._changes is not None and SYSTEM_CLOCK.now() >= self._look_at_s:
            self._look_at_s = SYSTEM_CLOCK.now() + self._changes.every_s
            if what := self._changes.seen():
                self._begin_anew(what)

    def _wait(self, ours: socket.socket) -> None:
        """Wait for news, and take it in. Signals come before what they have done to the processes."""
        for key, _ in self._selector.select(self._patience_s()):
            if key.fileobj is ours:
                for number in ours.recv(1024):
                    self._signalled(number)
            elif not key.data.hear():
                self._selector.unregister(key.fileobj)

    def _patience_s(self) -> float | None:
        due = [place.due_s for place in self._places if place.due_s is not None]
        if self._stopping:
            due += [at_s for at_s in (self._hurry_at_s, self._kill_at_s) if at_s]
        else:
            due += [place.kill_at_s for place in self._places if place.kill_at_s is not None]
            if self._changes is not None:
                due.append(self._look_at_s)
        return min(max(min(due) - SYSTEM_CLOCK.now(), 0.0), LONGEST_WAIT_S) if due else None

    # ---- one process
    def _launch(self, place: ProcessSlot) -> None:
        if self._stopping or place.child is not None:
            return
        place.due_s, place.waits_for_change = None, False
        try:
            place.child = child = self._start(place.ordinal)
        except OSError as error:  # no memory, or one process too many: those that run go on meanwhile
            self._again(place, f"process {place.ordinal} could not be started ({error})", 0.0, _NOT_WELL)
            return
        self._selector.register(child.socket, selectors.EVENT_READ, child)
        _log.info("process %d has begun (pid %d)", place.ordinal, child.pid)

    def _look(self, place: ProcessSlot) -> None:
        if place.due_s is not None and SYSTEM_CLOCK.now() >= place.due_s:
            self._launch(place)
        child = place.child
        if child is None or (code := child.ended()) is None:
            return
        place.child = place.kill_at_s = None
        if child.socket in self._selector.get_map():
            self._selector.unregister(child.socket)
        child.socket.close()
        if not child.asked:
            self._unasked(place, child, code)
            return
        _log.info("process %d has ended (%s)", place.ordinal, told(code))
        if self._stopping:
            # Before it had an app, there was nothing to end well.
            self._code = self._code or (_NOT_WELL if code and child.loaded else 0)
        else:
            self._launch(place)

    def _unasked(self, place: ProcessSlot, child: Child, code: int) -> None:
        """A process has ended by itself, or somebody has ended it."""
        lived_s = SYSTEM_CLOCK.now() - child.started_s
        how = f"process {place.ordinal} has ended ({told(code)}) after {lived_s:.1f} s"
        if self._stopping:
            _log.warning("%s", how)
            self._code = self._code or _NOT_WELL
            return
        if self._changes is not None:
            place.waits_for_change = True
            _log.error("%s; it begins again when a file changes", how)
            return
        if child.failed is not None and not child.failed["again"]:
            _log.error("%s: a restart would not help (%s)", how, child.failed["why"])
            self._stop(f"process {place.ordinal} cannot run", code)
            return
        self._again(place, how, lived_s, code)

    def _again(self, place: ProcessSlot, how: str, lived_s: float, code: int) -> None:
        """Start it again after a while, or give up."""
        wait_s = place.restarts.after(lived_s, wall_ms())
        if wait_s is not None:
            _log.error("%s; it is started again in %.1f s", how, wait_s)
            place.due_s = SYSTEM_CLOCK.now() + wait_s
            return
        since = datetime.fromtimestamp(place.restarts.since_ms / 1000).astimezone().isoformat(timespec="seconds")
        _log.error("%s, the %d. time in a row since %s: giving up", how, place.restarts.ends, since)
        self._stop(f"process {place.ordinal} ends again and again", code if code > 0 else _NOT_WELL)

    # ---- all of them
    def _begin_anew(self, what: str) -> None:
        _log.info("%s: all processes begin anew", what)
        for place in self._places:
            if place.child is not None:
                if not place.child.asked:
                    place.child.stop("reload")
                    place.kill_at_s = SYSTEM_CLOCK.now() + self._grace_of([place.child])
            elif place.waits_for_change:
                self._launch(place)

    def _signalled(self, number: int) -> None:
        if number not in _ASKS:
            return
        if not self._stopping:
            self._stop(signal.Signals(number).name, 0)
            return
        _log.info("a second signal: running records are handed over")
        self._hurry()

    def _stop(self, why: str, code: int) -> None:
        self._stopping, self._code = True, code
        running = [place.child for place in self._places if place.child is not None]
        grace_s = self._grace_of(running)
        now_s = SYSTEM_CLOCK.now()
        self._kill_at_s = now_s + grace_s
        self._hurry_at_s = 0.0 if self._grace_s is None else now_s + max(grace_s - _HURRY_S, grace_s / 2)
        _log.info("stopping: why=%s processes=%d grace_s=%.1f", why, len(running), grace_s)
        for place in self._places:
            place.due_s = None
        for child in running:
            child.stop(why)

    def _grace_of(self, running: Sequence[Child]) -> float:
        """How long these may take to end."""
        bounds = [child.loaded["stop_s"] for child in running if child.loaded is not None]
        return max(bounds, default=CLOSE_S) if self._grace_s is None else self._grace_s

    def _hurry(self) -> None:
        self._hurry_at_s = 0.0
        for place in self._places:
            if place.child is not None:
                place.child.tell(HURRY)

    def _end_what_hangs(self) -> None:
        now_s = SYSTEM_CLOCK.now()
        if self._hurry_at_s and now_s >= self._hurry_at_s:
            _log.warning("the grace is nearly over: running records are handed over")
            self._hurry()
        if not self._kill_at_s or now_s < self._kill_at_s:
            return
        self._kill_at_s = 0.0
        for place in self._places:
            if place.child is not None:
                self._kill(place)
                self._code = self._code or _NOT_WELL

    def _kill(self, place: ProcessSlot) -> None:
        place.kill_at_s = None
        if place.child is not None:
            _log.error("process %d has not ended within the grace: it is killed", place.ordinal)
            place.child.kill()
