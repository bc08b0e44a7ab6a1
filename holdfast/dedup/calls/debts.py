"""What is owed to the store: said again in the background until it has been answered."""

from __future__ import annotations

import logging
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from holdfast.dedup.claims import Verdict
from holdfast.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.dedup.claims import Claim, ClaimSession

log = logging.getLogger("holdfast.dedup")

_PAUSE_FIRST_S, _PAUSE_MOST_S = 0.05, 1.0


class Finish(NamedTuple):
    """These keys are done: the body has run."""

    session: ClaimSession
    claims: Sequence[Claim]
    results: Sequence[str]

    def pay(self) -> None:
        """Raises StoreError: no answer."""
        verdicts = self.session.finish(self.claims, self.results)
        for claim, verdict in zip(self.claims, verdicts, strict=True):
            if verdict is Verdict.FENCED:
                log.warning("a call of %s had been taken over before it was known to be done", claim.key.scope)


class GiveBack(NamedTuple):
    """These keys are not in use: the body has failed, or was never run."""

    session: ClaimSession
    claims: Sequence[Claim]

    def pay(self) -> None:
        """Raises StoreError: no answer."""
        if self.session.live():  # else the keys are free already, or soon will be
            self.session.unclaim(self.claims)


class Debts:
    """Of one process to one store. Any thread; nothing here blocks but `pay`."""

    def __init__(self) -> None:
        self._owed: deque[Finish | GiveBack] = deque()
        self._lock = threading.Lock()  # innermost; around the queue and the thread's start and end
        self._paying = threading.Lock()  # held while the store is asked
        self._thread: threading.Thread | None = None

    def __bool__(self) -> bool:
        return bool(self._owed)

    def add(self, debt: Finish | GiveBack) -> None:
        """Owe it. A thread pays, for as long as anything is owed."""
        with self._lock:
            self._owed.append(debt)
            if self._thread is None:
                thread = threading.Thread(target=self._pay_all, name="holdfast-debts", daemon=True)
                with suppress(RuntimeError):  # the interpreter ends: it is paid then, or the lease decides
                    thread.start()
                    self._thread = thread

    def pay(self) -> None:
        """Pay what is owed now, unless another thread is about it.

        Raises:
            StoreError: no answer; it stays owed.
        """
        if not self._owed or not self._paying.acquire(blocking=False):
            return
        try:
            for debt in list(self._owed):
                debt.pay()
                with self._lock:
                    self._owed.popleft()  # only who holds `_paying` takes from the left
        finally:
            self._paying.release()

    def _pay_all(self) -> None:
        pause_s, wait = _PAUSE_FIRST_S, threading.Event().wait
        while True:
            try:
                self.pay()
                pause_s = _PAUSE_FIRST_S
            except StoreError:
                pass  # no answer: it stays owed
            except Exception:
                # Must not end the thread: nobody else would pay, and the keys would stay busy for as long as we live.
                log.exception("what is owed to the store was not told, and will be told again")
            with self._lock:
                if not self._owed:
                    self._thread = None
                    return
            wait(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MOST_S)
