"""AppParts: the parts of an app, for code that starts it, checks it before a deployment, or shows its settings.

`check_parts` checks them at construction, also those of a consumer for an own loop.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from holdfast.dedup.claims import check_key, check_store
from holdfast.dedup.not_run import check_returns, name_of_call
from holdfast.errors import SettingError
from holdfast.plugin.ports import LeasedSource, transactions_each_s
from holdfast.plugin.settings import Settings

if TYPE_CHECKING:
    from holdfast.dedup.claims import ClaimStore
    from holdfast.plugin.handlers import Handler, Routes
    from holdfast.plugin.ports import DeadLetters, PartitionedSource

#: The remedy for a wrong `claims=`.
A_STORE = "RedisClaims.from_url(url); MemoryClaims() for tests in one process; None to go without a store"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppParts:
    """The parts of one app. Any thread."""

    source: PartitionedSource | LeasedSource
    #: `NoClaims` where the app goes without a store.
    claims: ClaimStore
    settings: Settings
    routes: Routes

    @property
    def fitted(self) -> Settings:
        """The settings as the engine gets them: the drain fits between two polls."""
        limit_s: float | None = getattr(self.source, "max_poll_interval_s", None)
        return self.settings if limit_s is None else self.settings.fitted(limit_s)

    def check(self) -> None:
        """Check handlers and settings against each other, before any connection.

        Raises:
            SettingError: they cannot run together.
        """
        if not self.routes.handlers:
            raise SettingError("handlers", (), "register at least one handler before run()")
        none_timed = all(each.timeout_s is None for each in self.routes.handlers)
        if self.settings.on_handler_timeout == "stop" and none_timed and self.settings.handler_timeout_s is None:
            raise SettingError(
                "on_handler_timeout", "stop", "no handler has a timeout: set handler_timeout_s, or timeout_s of one"
            )
        if (check_handlers := getattr(self.source, "check_handlers", None)) is not None:
            check_handlers(self.routes.handlers, self.settings)
        self.routes.check_letters()
        self.routes.plan_retries(self.source.group)

    def check_settings(self) -> None:
        """Check the settings against the source and each handler, and the store against the source. Raises
        SettingError."""
        if not getattr(self.claims, "keeps_keys", True) and _claims_identities(self.source):
            raise SettingError(
                "claims",
                type(self.claims).__name__,
                f"give RedisClaims: {type(self.source).__name__} claims each message's identity as a key, and this "
                "store keeps positions alone",
            )
        check = getattr(self.source, "check_settings", None)
        if check is not None:
            check(self.settings)
        for handler in self.routes.handlers:
            self.check_handler(handler)

    def check_handler(self, handler: Handler) -> None:
        """Check a handler against the store and the settings. Raises SettingError."""
        check_key(self.claims, handler.key)
        if transactions_each_s(self.source) is not None:
            _check_in_transactions(handler)
        if handler.transaction is not None and self.settings.store_down == "open":
            raise SettingError(
                "store_down",
                "open",
                f"use 'pause': {handler.name} has transaction=, and cannot run without the database of its effects",
            )
        if self.settings.workers != 0:
            return
        if handler.is_async:
            raise SettingError("workers", 0, f"{handler.name} is an async def, which needs workers=1 or more")
        if handler.timeout_s is not None and handler.timeout_s < math.inf:
            raise SettingError(
                "timeout_s", handler.timeout_s, "use workers=1 or more: the thread that polls cannot watch itself"
            )

    def time_handlers(self) -> None:
        """Give each handler without a timeout that of the settings. Call it once, before the app runs."""
        timeout_s = self.settings.handler_timeout_s
        if timeout_s is not None:
            self.routes.change(lambda each: each if each.timeout_s is not None else replace(each, timeout_s=timeout_s))

    @property
    def wants_letters(self) -> bool:
        """Whether the app may have to send letters: for dead letters, for retry topics, or for the broker's retries."""
        return (
            getattr(self.source, "retries", None) is not None
            or getattr(self.source, "unroutable_letters", None) is not None
            or bool(self.routes.targets)
        )

    def own_letters(self) -> DeadLetters:
        """Make the source's own sender of dead letters. Raises SettingError: it has none."""
        make = getattr(self.source, "dead_letters", None)
        if make is None:
            raise SettingError("dead_letters", None, "this source has none of its own: pass Holdfast(dead_letters=...)")
        letters: DeadLetters = make()
        return letters


def check_parts(*, claims: object, settings: object, observers: object) -> None:
    """Check the types of these arguments; None is allowed for `claims` and `settings`. Raises SettingError, without the
    value: a URL or a configuration may have a password."""
    if claims is not None:
        check_store("claims", claims, "begin", "connect")
    if not isinstance(settings, Settings | None):
        raise SettingError("settings", type(settings).__name__, "use Settings(...)")
    if isinstance(observers, str) or not isinstance(observers, Collection):
        raise SettingError("observers", type(observers).__name__, "give a list of them")
    for each in observers:
        if not callable(getattr(each, "on_event", None)):
            raise SettingError("observers", type(each).__name__, "give objects that have on_event(event)")
        check_returns("observers", each.on_event, name_of_call(each.on_event))


def _check_in_transactions(handler: Handler) -> None:
    """Raises SettingError: the source's transactions cannot do this yet."""
    if handler.key is not None:
        raise SettingError(
            "key",
            getattr(handler.key, "__name__", handler.key),
            "leave it out: with transactions a record is known by its position, and no store remembers keys",
        )
    if handler.letter_too_large != "stop":
        raise SettingError(
            "letter_too_large",
            handler.letter_too_large,
            'use "stop": a dead letter goes in a transaction, and its size is known when the broker refuses all of it',
        )


def _claims_identities(source: PartitionedSource | LeasedSource) -> bool:
    return isinstance(source, LeasedSource) or source.identity is not None
