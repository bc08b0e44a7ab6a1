"""What an app is made of: for those who start it, check it before a deployment, or show its settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.errors import SettingError

if TYPE_CHECKING:
    from holdfast.dedup.claims import ClaimStore
    from holdfast.plugin.handlers import Routes
    from holdfast.plugin.ports import DeadLetters, LeasedSource, PartitionedSource
    from holdfast.plugin.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class AppParts:
    """The parts of one app. Any thread."""

    source: PartitionedSource | LeasedSource
    #: `NoClaims` where the app goes without a store.
    claims: ClaimStore
    settings: Settings
    routes: Routes

    def check(self) -> None:
        """Hold handlers and settings against each other, before anything is reached.

        Raises:
            SettingError: they cannot run together.
        """
        if not self.routes.handlers:
            raise SettingError("handlers", (), "register at least one handler before run()")
        none_timed = all(each.timeout_s is None for each in self.routes.handlers)
        if self.settings.on_handler_timeout == "stop" and none_timed:
            raise SettingError(
                "on_handler_timeout", "stop", "no handler has a timeout: set handler_timeout_s, or timeout_s of one"
            )
        self.routes.check_letters()

    @property
    def wants_letters(self) -> bool:
        """Whether a record may have to be put away: by a handler's dead letters, or by the broker's retries."""
        return (
            getattr(self.source, "retries", None) is not None
            or getattr(self.source, "unroutable_letters", None) is not None
            or any(handler.dead_letter for handler in self.routes.handlers)
        )

    def own_letters(self) -> DeadLetters:
        """Make the source's own dead letters. Raises SettingError: it has none."""
        make = getattr(self.source, "dead_letters", None)
        if make is None:
            raise SettingError("dead_letters", None, "this source has none of its own: pass Holdfast(dead_letters=...)")
        letters: DeadLetters = make()
        return letters
