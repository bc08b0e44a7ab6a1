"""A supervised process' line to its supervisor: it hears when to stop, and it hears when the supervisor is gone.

A socket, not signals: whoever signals the whole group of processes (systemd does) would otherwise seem to ask twice,
and a drain would be cut short. When the supervisor dies, by SIGKILL too, its end closes: on Linux and on macOS.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import threading
from typing import TYPE_CHECKING

from holdfast.plugin.overrides import LIFELINE, PROCESS
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger("holdfast.run")

#: What the supervisor says, and why it says so behind a blank.
STOP, HURRY = "stop", "hurry"
#: Beyond drain and linger: the last commit (5 s), a client whose brokers are silent (12 s), who is told of dead letters
#: and those on their way (5 s each).
CLOSE_S = 27.0
#: A wait ends after that and begins again: none may be longer than 24 days, and a linger may have no end.
LONGEST_WAIT_S = 3600.0


class Lifeline:
    """The process' end. `tell` belongs to the main thread; a thread of its own listens.

    Args:
        file: the socket.
        ordinal: which of the processes this is, from 0 on.
    """

    def __init__(self, file: int, ordinal: int) -> None:
        self.ordinal = ordinal
        os.set_inheritable(file, False)
        self._socket = socket.socket(fileno=file)
        self._stop: Callable[[str], None] = _end_at_once
        self._hurry: Callable[[], None] = lambda: None
        self._grace_s = 0.0
        threading.Thread(target=self._listen, name="holdfast-lifeline", daemon=True).start()

    @classmethod
    def of_this_process(cls) -> Lifeline | None:
        """The line that this process was started with; None = nobody supervises it. Once."""
        file = os.environ.pop(LIFELINE, None)  # what the app starts is not supervised
        return None if file is None else cls(int(file), int(os.environ[PROCESS]))

    def serve(self, stop: Callable[[str], None], hurry: Callable[[], None], grace_s: float) -> None:
        """From now on call these in the place of ending at once. Any thread calls them.

        Args:
            stop: drain and leave; gets the reason, and may be called more than once.
            hurry: drain no longer.
            grace_s: how long `stop` may take if the supervisor is gone.
        """
        self._grace_s, self._hurry, self._stop = grace_s, hurry, stop

    def tell(self, **message: object) -> None:
        """Tell the supervisor. If it is gone, nobody hears it."""
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            _log.debug("the supervisor does not hear %s", message)

    def _listen(self) -> None:
        heard = b""
        while part := self._hear():
            *lines, heard = (heard + part).split(b"\n")
            for line in lines:
                what, _, why = line.decode().partition(" ")
                if what == STOP:
                    self._stop(why)
                else:
                    self._hurry()
        _log.warning("the supervisor has gone: stopping")
        self._stop("the supervisor has gone")
        over_at_s = SYSTEM_CLOCK.now() + self._grace_s
        while (left_s := over_at_s - SYSTEM_CLOCK.now()) > 0:
            SYSTEM_CLOCK.sleep(min(left_s, LONGEST_WAIT_S))
        os.kill(os.getpid(), signal.SIGKILL)  # nobody else would

    def _hear(self) -> bytes:
        try:
            return self._socket.recv(4096)
        except OSError:
            return b""


def _end_at_once(_: str) -> None:
    """Before there is an app: nothing has to be drained."""
    os.kill(os.getpid(), signal.SIGTERM)
