"""Apps as they are told of outside of their process: names, offsets and figures, and nothing that may be secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.printable import without_credentials

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.plugin.observe.health import Health, Watchable
    from holdfast.plugin.observe.snapshot import Snapshot


class Outside:
    """Some apps of one process. Any thread but that of an event loop: each question waits for their loops.

    Args:
        apps: one or more.
        stall_s: as for `Holdfast.health`.
        silent_s: as for `Holdfast.health`.
    """

    def __init__(self, apps: Sequence[Watchable], stall_s: float, silent_s: float) -> None:
        self._apps, self._stall_s, self._silent_s = apps, stall_s, silent_s
        #: Before each reason: whose it is. Asked once, since a loop that does not answer is waited for.
        self._whose = [f"{app.snapshot().group}: " for app in apps] if len(apps) > 1 else [""]

    def health(self) -> dict[str, Any]:
        """Whether all of them are live and ready, and why not, for JSON."""
        return self._of([self._ask(app) for app in self._apps])

    def status(self) -> dict[str, Any]:
        """Health, and the figures of each app, for JSON."""
        healths = [self._ask(app) for app in self._apps]
        told = [_told(app.snapshot(), health) for app, health in zip(self._apps, healths, strict=True)]
        return {**self._of(healths), "apps": told}

    def _ask(self, app: Watchable) -> Health:
        return app.health(stall_s=self._stall_s, silent_s=self._silent_s)

    def _of(self, healths: Sequence[Health]) -> dict[str, Any]:
        return {
            "live": all(each.live for each in healths),
            "ready": all(each.ready for each in healths),
            "reasons": [
                f"{whose}{reason}"
                for whose, each in zip(self._whose, healths, strict=True)
                for reason in _reasons(each)
            ],
        }


def _told(snapshot: Snapshot, health: Health) -> dict[str, Any]:
    """A snapshot without what handlers' own errors say, and without the session's id, by which Redis knows the app."""
    found = snapshot.as_dict()
    del found["error"], found["store"]["session"]
    if (joining := found["joining"]) is not None and joining["trouble"] is not None:
        joining["trouble"] = without_credentials(joining["trouble"])
    return {**found, "live": health.live, "ready": health.ready, "reasons": _reasons(health)}


def _reasons(health: Health) -> list[str]:
    """A reason may quote what a broker's client has said, with the address that it was given."""
    return [without_credentials(each) for each in health.reasons]
