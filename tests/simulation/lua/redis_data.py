"""RedisData: the data of a Redis, and the commands that the shipped scripts and the client need."""

from __future__ import annotations

import pickle
from fnmatch import translate
from re import compile as compiled
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from redis.exceptions import ResponseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from random import Random


class Status(NamedTuple):
    """A status reply, such as "OK"."""

    text: bytes


Reply: TypeAlias = "bytes | int | Status | list[Reply] | None"
Hash: TypeAlias = "dict[bytes, bytes]"

OK = Status(b"OK")
WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


class RedisData:
    """Strings, hashes and their expiry.

    Args:
        random: for `HRANDFIELD`.
    """

    def __init__(self, random: Random) -> None:
        self.now_ms = 0
        self._random = random
        self._values: dict[bytes, bytes | Hash] = {}
        self._until_ms: dict[bytes, int] = {}
        self._methods: dict[bytes, Callable[..., Reply]] = {
            name.removeprefix("_do_").upper().encode(): getattr(self, name) for name in dir(self) if name[:4] == "_do_"
        }

    def copy(self) -> RedisData:
        """An independent copy."""
        other = RedisData(self._random)
        other._values = {name: value if isinstance(value, bytes) else {**value} for name, value in self._values.items()}
        other._until_ms = {**self._until_ms}
        return other

    def run(self, name: bytes, args: Sequence[bytes]) -> Reply:
        """Run one command.

        Raises:
            ResponseError: the command is unknown, or the key has another type.
        """
        found = self._methods.get(name) or self._methods.get(name.upper())
        if found is None:
            raise ResponseError(f"unknown command '{name.decode()}': holdfast's scripts did not need it so far")
        try:
            return found(*args)
        except TypeError as error:
            raise ResponseError(f"wrong number of arguments for '{name.decode()}' command") from error

    # ---- what is there
    def _get(self, name: bytes) -> bytes | Hash | None:
        until_ms = self._until_ms.get(name)
        if until_ms is not None and self.now_ms > until_ms:
            self._remove(name)
        return self._values.get(name)

    def _hash(self, name: bytes) -> Hash:
        found = self._get(name)
        if isinstance(found, bytes):
            raise ResponseError(WRONG_TYPE)
        return found if found is not None else {}

    def _made(self, name: bytes) -> Hash:
        found = self._hash(name)
        self._values[name] = found
        return found

    def _remove(self, name: bytes) -> bool:
        self._until_ms.pop(name, None)
        return self._values.pop(name, None) is not None

    def _names(self) -> Iterator[bytes]:
        return (name for name in list(self._values) if self._get(name) is not None)

    # ---- strings
    def _do_get(self, name: bytes) -> Reply:
        found = self._get(name)
        if isinstance(found, dict):
            raise ResponseError(WRONG_TYPE)
        return found

    def _do_mget(self, *names: bytes) -> Reply:
        return [found if isinstance(found := self._get(name), bytes) else None for name in names]

    def _do_set(self, name: bytes, value: bytes, *options: bytes) -> Reply:
        until_ms, rest = None, [option.upper() for option in options]
        while rest:
            option = rest.pop(0)
            if option == b"NX":
                if self._get(name) is not None:
                    return None
            elif option == b"PX":
                until_ms = self.now_ms + int(rest.pop(0))
            elif option == b"PXAT":
                until_ms = int(rest.pop(0))
            else:
                raise ResponseError("syntax error")
        self._remove(name)
        self._values[name] = value
        if until_ms is not None:
            self._until_ms[name] = until_ms
        return OK

    # ---- hashes
    def _do_hget(self, name: bytes, field: bytes) -> Reply:
        return self._hash(name).get(field)

    def _do_hmget(self, name: bytes, *fields: bytes) -> Reply:
        found = self._hash(name)
        return [found.get(field) for field in fields]

    def _do_hgetall(self, name: bytes) -> Reply:
        return [part for pair in self._hash(name).items() for part in pair]

    def _do_hkeys(self, name: bytes) -> Reply:
        return [*self._hash(name)]

    def _do_hvals(self, name: bytes) -> Reply:
        return [*self._hash(name).values()]

    def _do_hlen(self, name: bytes) -> Reply:
        return len(self._hash(name))

    def _do_hexists(self, name: bytes, field: bytes) -> Reply:
        return int(field in self._hash(name))

    def _do_hset(self, name: bytes, *pairs: bytes) -> Reply:
        if not pairs or len(pairs) % 2:
            raise ResponseError("wrong number of arguments for 'hset' command")
        found = self._made(name)
        before = len(found)
        found.update(zip(pairs[::2], pairs[1::2], strict=True))
        return len(found) - before

    def _do_hsetnx(self, name: bytes, field: bytes, value: bytes) -> Reply:
        found = self._made(name)
        if field in found:
            return 0
        found[field] = value
        return 1

    def _do_hincrby(self, name: bytes, field: bytes, by: bytes) -> Reply:
        found = self._made(name)
        value = int(found.get(field, b"0")) + int(by)
        found[field] = b"%d" % value
        return value

    def _do_hdel(self, name: bytes, *fields: bytes) -> Reply:
        found = self._hash(name)
        removed = sum(found.pop(field, None) is not None for field in fields)
        if not found:
            self._remove(name)
        return removed

    def _do_hrandfield(self, name: bytes, count: bytes, option: bytes = b"") -> Reply:
        found = self._hash(name)
        drawn = self._random.sample(list(found), min(int(count), len(found)))
        return [part for field in drawn for part in ((field, found[field]) if option else (field,))]

    # ---- any
    def _do_del(self, *names: bytes) -> Reply:
        return sum(self._get(name) is not None and self._remove(name) for name in names)

    _do_unlink = _do_del

    def _do_exists(self, *names: bytes) -> Reply:
        return sum(self._get(name) is not None for name in names)

    def _do_pexpire(self, name: bytes, ms: bytes) -> Reply:
        if self._get(name) is None:
            return 0
        if int(ms) <= 0:
            self._remove(name)
        else:
            self._until_ms[name] = self.now_ms + int(ms)
        return 1

    def _do_pttl(self, name: bytes) -> Reply:
        if self._get(name) is None:
            return -2
        until_ms = self._until_ms.get(name)
        return -1 if until_ms is None else until_ms - self.now_ms

    # ---- for tests, which look at a server from the side
    def _do_scan(self, _cursor: bytes, *options: bytes) -> Reply:
        match = b"*"
        for option, value in zip(options[::2], options[1::2], strict=True):
            if option.upper() == b"MATCH":
                match = value
        pattern = compiled(translate(match.decode("latin-1")))
        return [b"0", [name for name in self._names() if pattern.match(name.decode("latin-1"))]]

    def _do_dbsize(self) -> Reply:
        return sum(1 for _ in self._names())

    def _do_flushdb(self) -> Reply:
        self._values.clear()
        self._until_ms.clear()
        return OK

    def _do_dump(self, name: bytes) -> Reply:
        found = self._get(name)
        return None if found is None else pickle.dumps(found)

    def _do_restore(self, name: bytes, ms: bytes, dump: bytes) -> Reply:
        if self._get(name) is not None:
            raise ResponseError("BUSYKEY Target key name already exists.")
        self._values[name] = pickle.loads(dump)  # noqa: S301 - of `_do_dump`
        if int(ms):
            self._until_ms[name] = self.now_ms + int(ms)
        return OK
