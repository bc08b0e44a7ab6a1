"""Checks the parts of an app or of a consumer for an own loop at construction, not when a first call fails."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.dedup.claims import check_store
from holdfast.dedup.not_run import check_returns, name_of_call
from holdfast.errors import SettingError
from holdfast.plugin.settings import Settings

#: The remedy for a wrong `claims=`.
A_STORE = "RedisClaims.from_url(url); MemoryClaims() for tests in one process; None to go without a store"


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
