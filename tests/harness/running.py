"""An app that runs in a thread of its own, and what it tells."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    from holdfast import Holdfast
    from holdfast.plugin.events import Event
    from holdfast.runtime import Condition

E = TypeVar("E")


class Running:
    """Also the app's observer: who makes it gives it to its app, and sets `app`.

    Args:
        changed: is notified of each event, and of the end.
        name: of the thread.
        patience_s: for the end.
    """

    app: Holdfast

    def __init__(self, changed: Condition, name: str = "app", *, patience_s: float = PATIENCE_S) -> None:
        self.name, self._changed, self._patience_s = name, changed, patience_s
        self.events: list[Event] = []
        self.error: BaseException | None = None
        self.over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"member-{name}", daemon=True)

    def on_event(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def start(self) -> Self:
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - raised by `join`
            self.error = error
        finally:
            self.over.set()
            with self._changed:
                self._changed.notify_all()

    def run(self) -> None:
        """In this thread."""
        self.app.run(install_signal_handlers=False)

    def stop(self) -> None:
        """Stop, wait, and raise what the app raised."""
        self.app.stop()
        self.join()

    def join(self) -> None:
        """Wait for its end, and raise what it raised."""
        assert self.over.wait(self._patience_s), f"{self.name} does not end"
        self._thread.join()
        error, self.error = self.error, None
        if error is not None:
            raise error

    def told(self, kind: type[E]) -> list[E]:
        """What it has told of that kind."""
        with self._changed:
            return [event for event in self.events if isinstance(event, kind)]

    @property
    def owns(self) -> set[Any]:
        """Partitions that it may work on: taken over, not only assigned."""
        owners: dict[Any, Any] = getattr(getattr(self.app._engine, "family", None), "owners", {})
        return {partition for partition, owner in list(owners.items()) if owner.open}
