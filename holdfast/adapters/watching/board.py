"""Board: tells the other members of the group what this process's apps are doing, and reads what they tell."""

from __future__ import annotations

import logging
import secrets
import threading
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

from holdfast.adapters.watching.members import forgotten, members_of, summary
from holdfast.dedup.groups_beside import groups_beside
from holdfast.errors import HoldfastError
from holdfast.process_name import process_name
from holdfast.runtime import MACHINE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.watching.outside import Outside
    from holdfast.dedup.coordinator import Coordinator
    from holdfast.plugin.observe.health import Watchable

_log = logging.getLogger("holdfast")

#: How often a member writes its apps' summaries.
_EVERY_S = 3.0
#: After so many writes it removes the summaries of members that are long gone.
_TIDY_EACH = 20
_NO_STORE = "this app's store keeps no figures of members: only this process is shown"


class Board:
    """A thread that puts summaries into the stores of these apps, and a reader. `close` ends it.

    Args:
        apps: of one process. Those without a Redis tell nothing.
        outside: the same apps, as they are seen from outside.
    """

    def __init__(self, apps: Sequence[Watchable], outside: Outside) -> None:
        self._apps, self._outside = apps, outside
        self._stores: list[Coordinator | None] = [groups_beside(each.claims) for each in apps]
        #: The name of each app's summary in the store. It is random, so that two processes of one name do not replace
        #: each other's.
        self._names = [f"{process_name()}#{secrets.token_hex(4)}" for _ in apps]
        #: Apps, by their place in `apps`, that have a summary in the store.
        self._posted: set[int] = set()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        if any(each is not None for each in self._stores):
            self._thread = threading.Thread(target=self._run, name="holdfast-board", daemon=True)
            self._thread.start()

    def groups(self) -> list[dict[str, Any]]:
        """The groups of the apps with all their members, for JSON. Waits for the stores."""
        return [group_of(*each) for each in zip(self._stores, self._groups, self._names, strict=True)]

    def close(self) -> None:
        """Stop writing summaries, and remove those that were written."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
            for number in list(self._posted):
                self._post(number, None)

    def forked(self) -> None:
        """In a child: the summaries are the parent's."""
        self._thread = None

    # ---- inside
    @cached_property
    def _groups(self) -> list[str]:
        return [each.snapshot().group for each in self._apps]

    def _run(self) -> None:
        for turn in count(1):
            if self._closed.wait(_EVERY_S):
                return
            try:
                self._post_all()
                if turn % _TIDY_EACH == 0:
                    self._tidy()
            except Exception:  # noqa: BLE001 - the next turn may be well again
                _log.debug("the group's other members are not told of this process", exc_info=True)

    def _post_all(self) -> None:
        for number, told in enumerate(self._outside.status()["apps"]):
            if told["state"] not in ("new", "starting"):  # until then the app has not tried its store
                self._post(number, summary(told))

    def _post(self, number: int, text: str | None) -> None:
        store = self._stores[number]
        if store is None:
            return
        try:
            store.post(self._groups[number], self._names[number], text)
        except HoldfastError as error:
            _log.debug("the other members of %s are not told of this one: %s", self._groups[number], error)
        else:
            (self._posted.discard if text is None else self._posted.add)(number)

    def _tidy(self) -> None:
        for store, group in zip(self._stores, self._groups, strict=True):
            try:
                if store is not None:
                    for name in forgotten(store.posts(group), MACHINE.wall_ms()):
                        store.post(group, name, None)
            except HoldfastError as error:
                _log.debug("old figures of members of %s are left: %s", group, error)


def group_of(store: Coordinator | None, group: str, reader: str = "") -> dict[str, Any]:
    """A group with all members that tell of themselves, for JSON. Waits for the store.

    Args:
        store: None = they cannot.
        group: its name.
        reader: as for `members_of`.
    """
    if store is None:
        return {"group": group, "members": [], "trouble": _NO_STORE}
    try:
        return {"group": group, "members": members_of(store.posts(group), MACHINE.wall_ms(), reader), "trouble": None}
    except HoldfastError as error:
        return {"group": group, "members": [], "trouble": str(error)}
