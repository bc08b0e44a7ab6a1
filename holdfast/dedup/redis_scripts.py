"""Running the scripts: by digest, several shards in one round trip, and what an error means."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from redis.exceptions import NoScriptError, ReadOnlyError, RedisError

from holdfast.dedup.redis_errors import asking, codes, store_error
from holdfast.dedup.redis_layout import Layout
from holdfast.errors import AccessRefused, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.dedup.redis_client import Client

_LAYOUT = ""
_PLAIN, _HASHED = ("keys_plain",), ("buckets", "keys_hashed")
#: Script -> the parts that go before it; `_LAYOUT` stands for the parts that know how the namespace stores its keys.
_PARTS = {
    "begin": ("common", "server"),
    "renew": ("common", "server"),
    "end": ("common",),
    "claim": ("common", "keys", _LAYOUT),
    "finish": ("common", "keys", _LAYOUT),
    "finish_with": ("common", "keys", _LAYOUT),
    "results": ("common", "keys", _LAYOUT),
    "unclaim": ("common", "keys", _LAYOUT),
    "show": ("common", "keys", _LAYOUT),
    "forget": ("common", "keys", _LAYOUT),
    "acquire": ("common",),
    "chunks": ("common", "positions"),
    "mark": ("common", "positions"),
    "restate": ("common", "positions"),
    "let_go": ("common", "positions"),
    "poll": ("common", "positions"),
    "release": ("common", "positions"),
    "drop": ("common", "positions"),
    "set_position": ("common", "positions"),
    "replicate": (),
    "group_join": ("common", "server", "group"),
    "group_beat": ("common", "server", "group"),
    "group_offer": ("common", "server", "group"),
    "group_look": ("common", "server", "group"),
    "group_publish": ("common", "server", "group"),
    "group_leave": ("common", "server", "group"),
    "group_restore": ("common", "server", "group"),
    "group_remove": ("common", "server", "group"),
    "batch_begin": ("common", "server", "batch"),
    "batch_claim_plain": ("common", "server", "keys", "batch_claim"),
    "batch_claim_hashed": ("common", "server", "keys", "buckets", "batch_claim"),
    "batch_finish": ("common", "server", "batch"),
    "batch_fate": ("common", "server", "batch"),
    "batch_done": ("common", "keys", _LAYOUT),
    "batch_give_up": ("common",),
}
#: Scripts that end work or free memory. They have to run when memory is full too, or no record would be settled then.
_ALLOW_OOM = frozenset(
    {"renew", "end", "finish", "finish_with", "unclaim", "replicate"}
    | {"mark", "restate", "let_go", "poll", "release", "drop"}
    | {"show", "forget", "set_position"}  # used by tools, perhaps to free memory
    # A group that cannot assign the queues of a member that left would leave them unread.
    | {"batch_finish", "batch_fate", "batch_done", "batch_give_up"}
    | {"group_beat", "group_offer", "group_look", "group_publish", "group_leave", "group_restore", "group_remove"}
)


class _Script(NamedTuple):
    text: bytes
    digest: bytes


class ScriptCall(NamedTuple):
    """One script at one shard. All keys have the shard's hash tag."""

    keys: Sequence[bytes]
    args: Sequence[bytes | str | int]


@cache  # each start of a session inspects the server and makes `Scripts` again
def _load(*, flags: bool, hash_keys: bool) -> Mapping[str, _Script]:
    folder = files("holdfast.dedup").joinpath("scripts")
    scripts = {}
    for name, needed in _PARTS.items():
        layout = _HASHED if hash_keys else _PLAIN
        parts = [part for each in needed for part in (layout if each == _LAYOUT else (each,))]
        body = "\n".join(folder.joinpath(f"{part}.lua").read_text("utf-8") for part in (*parts, name))
        # Redis 6.2 refuses this line. From 7 on, when memory is full, a script without the flag is refused before its
        # first line runs, so it is applied as a whole or not at all.
        if flags:
            body = f"#!lua{' flags=allow-oom' if name in _ALLOW_OOM else ''}\n{body}"
        text = body.encode()
        scripts[name] = _Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())
    return scripts


class Scripts:
    """The scripts at one server. Any thread; each call uses a connection of its own from the client's pool.

    Args:
        client: must not resend by itself: a late copy would carry a call generation that is still accepted.
        flags: whether the server is Redis 7 or later and knows script flags.
        hash_keys: whether keys are stored as digests.
        wait_key, wait_ms: if given, a replica has to confirm durable calls within that time; in a Redis Cluster a
            replica of each node, with the wait key of a shard on that node.
    """

    def __init__(
        self,
        client: Client,
        *,
        flags: bool,
        hash_keys: bool,
        wait_key: bytes | None = None,
        wait_ms: int = 0,
    ) -> None:
        self._client = client
        self._where = client.where
        self._scripts = _load(flags=flags, hash_keys=hash_keys)
        self._wait_key = wait_key
        self._wait_ms = wait_ms

    @property
    def where(self) -> object:
        """The server, for texts."""
        return self._where

    def follow(self) -> None:
        """See `Client.follow`."""
        self._client.follow()

    @property
    def fail_apart(self) -> bool:
        """Whether the shards are on several servers, one of which may fail alone."""
        return self._client.fail_apart

    def reach(self, keys: Sequence[bytes]) -> None:
        """Return if the server of each key answers. One round trip; changes nothing.

        Raises:
            StoreUnavailable, StoreRefused: as `run`.
        """
        with asking(self._where, self._error):
            for reply in self._send([(b"EXISTS", key) for key in keys], durable=False):
                if isinstance(reply, RedisError):
                    raise reply

    def run(self, name: str, calls: Sequence[ScriptCall], *, durable: bool = False) -> list[Any]:
        """Run a script at one or more shards; replies in the order of the calls.

        Raises:
            StoreUnavailable: no answer from one of them, or not replicated; some of the calls may have been applied.
            StoreRefused: one of them was refused.
        """
        replies = self.run_all([(name, call) for call in calls], durable=durable)
        for reply in replies:
            if isinstance(reply, StoreError):
                raise reply
        return replies

    def run_all(self, calls: Sequence[tuple[str, ScriptCall]], *, durable: bool = False) -> list[Any]:
        """Run scripts, each at one shard, in one round trip and in their order at each shard. A call that the server
        refuses has the error as its reply.

        Raises:
            StoreUnavailable: no answer from one of them, or not replicated; some of the calls may have been applied.
        """
        scripts = [self._scripts[name] for name, _ in calls]
        commands = [
            (b"EVALSHA", script.digest, len(call.keys), *call.keys, *call.args)
            for script, (_, call) in zip(scripts, calls, strict=True)
        ]
        with asking(self._where, self._error):
            replies = self._send(commands, durable=durable)
            # A server that was restarted or promoted has no scripts. EVAL runs the text and keeps it.
            unknown = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
            if unknown:
                again = [(b"EVAL", scripts[i].text, *commands[i][2:]) for i in unknown]
                for i, reply in zip(unknown, self._send(again, durable=durable), strict=True):
                    replies[i] = reply
        return [self._refused(reply) if isinstance(reply, RedisError) else reply for reply in replies]

    def _refused(self, error: RedisError) -> StoreError:
        found = self._error(error, self._where)
        found.__cause__ = error
        return found

    def _error(self, error: Exception, where: object) -> StoreError:
        found = store_error(error, where)
        if isinstance(found, AccessRefused) or isinstance(error, ReadOnlyError) or "READONLY" in codes(str(error)):
            # A primary that has become a replica keeps its connections, and its name may stand for another server by
            # now. Only a new connection reaches that server, and uses changed credentials. Connections that other
            # threads are reading from are not closed here: those threads would get arbitrary errors.
            self._client.connection_pool.disconnect(inuse_connections=False)
        return found

    def _send(self, commands: Sequence[tuple[Any, ...]], *, durable: bool) -> list[Any]:
        """One round trip. A refusal of one command is its reply; no answer raises."""
        replies, confirmed = self._client.send(commands, self._confirm if durable and self._wait_key else None)
        for each in confirmed:
            self._check_confirmed(each)
        return replies

    def _confirm(self, key: bytes) -> list[tuple[Any, ...]]:
        """The commands that ask whether a replica has all that this connection has written.

        Args:
            key: any key on this server.
        """
        beside = Layout.wait_key_beside(key) if self.fail_apart else self._wait_key
        return [(b"EVAL", self._scripts["replicate"].text, 1, beside, b"1"), ("WAIT", 1, self._wait_ms)]

    def _check_confirmed(self, replies: Sequence[Any]) -> None:
        for reply in replies:
            if isinstance(reply, RedisError):
                raise reply
        if not replies[-1]:
            raise StoreUnavailable(
                f"no replica of the Redis at {self._where} confirmed within {self._wait_ms} ms, "
                "and durability='wait1' asks for one"
            )
