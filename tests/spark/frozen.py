"""A driver that stands still before one of its steps, and goes on when its successor has finished."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

_PATIENCE_S = 300.0


class Frozen:
    """Run `body` in a thread that stands still before its n-th step; every other thread passes all steps.

    Steps are calls of what `watch` was given: of files, tables, the store.
    """

    def __init__(self, body: Callable[[], object], before: int | None = None) -> None:
        self.steps: list[str] = []
        self.error: BaseException | None = None
        self._before = before
        self._stands, self._go_on = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=(body,), daemon=True)

    def watch(self, patch: pytest.MonkeyPatch, owner: Any, *names: str) -> None:
        """Calls of these are steps."""
        for name in names:
            patch.setattr(owner, name, self.watched(f"{owner.__name__}.{name}", getattr(owner, name)))

    def stand(self) -> bool:
        """Start. False: it came to its end before that step."""
        self._thread.start()
        assert self._stands.wait(_PATIENCE_S), "it neither stands nor has it ended"
        return self._thread.is_alive() and not self._go_on.is_set()

    def go_on(self) -> None:
        """To its end. What it raised is in `error`."""
        self._go_on.set()
        self._thread.join(_PATIENCE_S)
        assert not self._thread.is_alive()

    def _run(self, body: Callable[[], object]) -> None:
        try:
            body()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        finally:
            if not self._stands.is_set():
                self._go_on.set()
                self._stands.set()

    def watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose calls are steps."""

        @functools.wraps(function)
        def step(*args: Any, **given: Any) -> Any:
            if threading.current_thread() is self._thread:
                if len(self.steps) == self._before:
                    self._stands.set()
                    assert self._go_on.wait(_PATIENCE_S)
                self.steps.append(name)
            return function(*args, **given)

        return step
