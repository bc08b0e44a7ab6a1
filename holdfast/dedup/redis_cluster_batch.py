"""Batch: the commands of one call that go to one node of a Redis Cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redis import exceptions

from holdfast.dedup.redis_packing import Packer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import redis
    from redis.cluster import ClusterNode

    Command = tuple[Any, ...]
    #: A key of a node -> what is to be sent behind its commands.
    Confirm = Callable[[bytes], Sequence[Command]]

_SCRIPTS = frozenset({"EVAL", "EVALSHA"})
_PACKER = Packer()  # redis-py's RedisCluster takes none for its connections
_KEYLESS = frozenset({"TIME", "WAIT"})


def key_of(command: Command) -> bytes:
    """The first key; empty = there is none."""
    name = command[0].decode() if isinstance(command[0], bytes) else str(command[0])
    if name in _KEYLESS:
        return b""
    key = command[3] if name in _SCRIPTS else command[1]
    return key if isinstance(key, bytes) else str(key).encode()


class Batch:
    """Commands of one node in one call."""

    def __init__(self, node: ClusterNode, client: redis.Redis) -> None:
        self.node, self._client = node, client
        self.items: list[int] = []
        self.asking: set[int] = set()
        self.confirmed: list[Any] = []
        self._connection: Any = None
        #: What each reply that is to come is for: an item, "confirm", or "asking".
        self._due: list[int | str] = []

    def write(self, commands: Sequence[Command], confirm: Confirm | None) -> None:
        """Send all of them."""
        self._connection = self._client.connection_pool.get_connection()
        packed: list[Command] = []
        for item in self.items:
            self._add(packed, commands[item], item, asking=item in self.asking)
        if confirm is not None:
            for command in confirm(key_of(commands[self.items[0]])):
                self._add(packed, command, "confirm", asking=bool(self.asking))
        chunks = [chunk for command in packed for chunk in _PACKER.pack(*command)]
        self._connection.send_packed_command([b"".join(chunks)])

    def _add(self, packed: list[Command], command: Command, due: int | str, *, asking: bool) -> None:
        if asking:
            packed.append(("ASKING",))
            self._due.append("asking")
        packed.append(command)
        self._due.append(due)

    def read(self, replies: list[Any]) -> None:
        """Read all that is due."""
        while self._due:
            try:
                reply = self._connection.read_response()
            except exceptions.ResponseError as error:
                reply = error
            due = self._due.pop(0)
            if isinstance(due, int):
                replies[due] = reply
            elif due == "confirm":
                self.confirmed.append(reply)

    def release(self) -> None:
        """Give the connection back; one that has replies to come is closed before."""
        if self._connection is not None:
            if self._due:
                self._connection.disconnect()
            self._client.connection_pool.release(self._connection)

    def redirected(self, replies: Sequence[Any]) -> bool:
        """Whether none of the commands was for this node."""
        return all(isinstance(replies[item], exceptions.AskError) for item in self.items)
