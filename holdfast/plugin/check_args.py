"""Parts of an app, or of a consumer for a loop: looked at when it is made, not by the first call that fails."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.dedup.claims import check_store
from holdfast.dedup.not_run import check_returns, name_of_call
from holdfast.errors import SettingError
from holdfast.plugin.settings import Settings

#: What to give for `claims=`.
A_STORE = "RedisClaims.from_url(url); MemoryClaims() for tests in one process; None to go without a store"


def check_parts(*, claims: object, settings: object, observers: object) -> None:
    """Hold each against what it has to be; None stands for none, and for the defaults. Raises SettingError, which shows
    no value: a URL has a password, a configuration too."""
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
