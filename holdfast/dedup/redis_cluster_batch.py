"""Batch: the commands of one call that go to one node of a Redis Cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redis import exceptions

from holdfast.dedup.redis_client import Exchange, key_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis import ConnectionPool
    from redis.cluster import ClusterNode

    from holdfast.dedup.redis_client import Command, Confirm


class Batch:
    """The commands of one call for one node."""

    def __init__(self, node: ClusterNode, pool: ConnectionPool) -> None:
        self.node, self._exchange = node, Exchange(pool)
        self.items: list[int] = []
        self.asking: set[int] = set()
        self.confirmed: list[Any] = []
        #: For each outstanding reply, what it belongs to: an item, "confirm", or "asking".
        self._due: list[int | str] = []

    def write(self, commands: Sequence[Command], confirm: Confirm | None) -> None:
        """Send all commands. Args: commands: all of the call."""
        sent: list[Command] = []
        for item in self.items:
            self._add(sent, commands[item], item, asking=item in self.asking)
        if confirm is not None:
            for command in confirm(key_of(commands[self.items[0]])):
                self._add(sent, command, "confirm", asking=bool(self.asking))
        self._exchange.write(sent)

    def _add(self, sent: list[Command], command: Command, due: int | str, *, asking: bool) -> None:
        if asking:
            sent.append(("ASKING",))
            self._due.append("asking")
        sent.append(command)
        self._due.append(due)

    def read(self, replies: list[Any]) -> None:
        """Read all outstanding replies into `replies`."""
        for due, reply in zip(self._due, self._exchange.read(), strict=True):
            if isinstance(due, int):
                replies[due] = reply
            elif due == "confirm":
                self.confirmed.append(reply)

    def release(self) -> None:
        """Give the connection back; it is closed before, if replies are outstanding."""
        self._exchange.release()

    def redirected(self, replies: Sequence[Any]) -> bool:
        """Whether the node has redirected all of the commands."""
        return all(isinstance(replies[item], exceptions.AskError) for item in self.items)
