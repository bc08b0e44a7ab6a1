"""Forks: a child replaces objects that it must not share with its parent, before anything else runs in the child."""

from __future__ import annotations

import itertools
import os
import weakref
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

#: Functions to call in a child, of owners that live. Python's callbacks cannot be removed, so one callback calls them
#: all.
_RENEWALS: dict[int, Callable[[], None]] = {}
_NUMBERS = itertools.count()


def after_fork(owner: T, renew: Callable[[T], None]) -> None:
    """Call `renew(owner)` in each forked child, as long as `owner` lives; in the order of these calls.

    A lock that another thread held at the fork stays locked in the child for ever, and process ids are used again:
    neither a lock nor a comparison of ids would be enough.
    """
    number = next(_NUMBERS)
    reference = weakref.ref(owner, lambda _: _RENEWALS.pop(number, None))

    def in_child() -> None:
        alive = reference()
        if alive is not None:
            renew(alive)

    _RENEWALS[number] = in_child


def _in_child() -> None:
    for renew in list(_RENEWALS.values()):
        renew()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_in_child)
