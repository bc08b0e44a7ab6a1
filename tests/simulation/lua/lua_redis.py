"""LuaRedis: the part of Redis that the shipped scripts need, in this process. The scripts run unchanged, in LuaJIT.

Its clock is the given runtime's, which may be a simulated one.
"""

from __future__ import annotations

import hashlib
import weakref
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

import lupa.luajit21 as lupa
from redis.exceptions import NoScriptError, ResponseError

from tests.simulation.lua.redis_data import RedisData, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.runtime import Runtime
    from tests.simulation.lua.redis_data import Reply

#: A table, a string as bytes, a number, or false. lupa has no types.
Lua: TypeAlias = Any

#: Runs before all scripts. As in Redis, a script may not read undefined globals, nor create globals.
_PREPARE = """
local call = ...
redis = { call = call, status_reply = function(text) return { ok = text } end }
KEYS, ARGV = {}, {}
struct = { -- of strings of a given length: no script needs more
  unpack = function(format, text, at)
    local found = {}
    for length in string.gmatch(format, 'c(%d+)') do
      found[#found + 1], at = string.sub(text, at, at + length - 1), at + length
    end
    found[#found + 1] = at
    return unpack(found)
  end,
}
local function refuse(_, name) error("a script uses the global variable " .. tostring(name)) end
setmetatable(_G, { __newindex = refuse, __index = refuse })
return function(script, keys, argv)
  KEYS, ARGV = keys, argv
  return script()
end
"""


class LuaRedis:
    """One server. Any thread; each call is atomic.

    Args:
        runtime: of the machine that it runs on.
        version: the version that it reports.
    """

    def __init__(self, runtime: Runtime, version: str = "7.2.4") -> None:
        self._runtime = runtime
        self._version = version
        self._lock = runtime.lock()
        self._data = RedisData(Random(runtime.token(8)))
        self._run_id = self._replication_id = runtime.token(20)
        #: Digests of scripts in its cache.
        self._known: set[bytes] = set()
        self._compiled: dict[bytes, Lua] = {}
        self._lua = lupa.LuaRuntime(encoding=None, unpack_returned_tuples=True)
        self._script = self._lua.execute(_PREPARE.encode(), _weakly(self._called))
        self._commands: dict[bytes, Callable[..., Reply]] = {
            b"EVAL": self._eval,
            b"EVALSHA": self._evalsha,
            b"INFO": self._info,
            b"CONFIG": lambda _, name: [name, b"always"] if name == b"appendfsync" else [],
            b"TIME": self._time,
            b"WAIT": lambda *_: 0,
        }

    def call(self, commands: Sequence[Sequence[bytes]]) -> list[Reply | ResponseError]:
        """Run commands of one client in order, with no other client's between. A failed command replies with its
        error."""
        with self._lock:
            now_ms = self._runtime.wall_ms()
            return [self._replied(now_ms, command) for command in commands]

    def restart(self) -> None:
        """Restart the server without data."""
        self._take_over(RedisData(Random(self._runtime.token(8))))
        self._run_id = self._replication_id

    def replica(self) -> Callable[[], None]:
        """Copy the state of now to a replica. The function that is returned has the replica take over."""
        kept = self._data.copy()
        return lambda: self._take_over(kept.copy())

    def _take_over(self, data: RedisData) -> None:
        # Its script cache is empty, as before Redis 7 or after a restart. Its run id is the former server's, as after a
        # failover and a failover back: only the replication id tells the two apart.
        self._data, self._known, self._replication_id = data, set(), self._runtime.token(20)

    def _replied(self, now_ms: int, command: Sequence[bytes]) -> Reply | ResponseError:
        try:
            return self._run(now_ms, *command)
        except ResponseError as error:
            return error
        except lupa.LuaError as error:
            return ResponseError(f"Error running script: {error}")

    def _run(self, now_ms: int, name: bytes, *args: bytes) -> Reply:
        self._data.now_ms = now_ms
        found = self._commands.get(name.upper())
        return found(*args) if found is not None else self._data.run(name, args)

    # ---- scripts
    def _eval(self, text: bytes, count: bytes, *rest: bytes) -> Reply:
        digest = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
        if digest not in self._compiled:
            # A first line with flags ("#!lua flags=...") is no Lua.
            self._compiled[digest] = self._lua.compile(b"--" + text if text.startswith(b"#!") else text)
        self._known.add(digest)
        return self._evalsha(digest, count, *rest)

    def _evalsha(self, digest: bytes, count: bytes, *rest: bytes) -> Reply:
        if digest not in self._known:
            raise NoScriptError("No matching script. Please use EVAL.")
        keys, table = int(count), self._lua.table_from
        return self._from_lua(self._script(self._compiled[digest], table(rest[:keys]), table(rest[keys:])))

    def _called(self, name: bytes, *args: Lua) -> Lua:
        """`redis.call` of a script."""
        found = self._commands.get(name)
        texts = [_text(arg) for arg in args]
        return self._to_lua(found(*texts) if found is not None else self._data.run(name, texts))

    def _to_lua(self, reply: Reply) -> Lua:
        if reply is None:
            return False
        if isinstance(reply, Status):
            return self._lua.table_from({b"ok": reply.text})
        return self._lua.table_from([self._to_lua(each) for each in reply]) if isinstance(reply, list) else reply

    def _from_lua(self, value: Lua) -> Reply:
        if isinstance(value, bytes):
            return value
        if value is None or value is False:
            return None
        if isinstance(value, int | float):
            return int(value)
        if value[b"err"] is not None:
            raise ResponseError(value[b"err"].decode())
        if value[b"ok"] is not None:
            return Status(value[b"ok"])
        items: list[Reply] = []
        while (item := value[len(items) + 1]) is not None:
            items.append(self._from_lua(item))
        return items

    # ---- about the server
    def _time(self) -> Reply:
        ms = self._data.now_ms
        return [str(ms // 1000).encode(), str(ms % 1000 * 1000).encode()]

    def _info(self, *_sections: bytes) -> Reply:
        facts = {
            "redis_version": self._version,
            "run_id": self._run_id,
            "role": "master",
            "master_replid": self._replication_id,
            "connected_slaves": 0,
            "cluster_enabled": 0,
            "loading": 0,
            "aof_enabled": 1,
            "maxmemory": 0,
            "maxmemory_policy": "noeviction",
        }
        return "".join(f"{name}:{value}\r\n" for name, value in facts.items()).encode()


def _weakly(method: Callable[..., Lua]) -> Callable[..., Lua]:
    """A callable for Lua that does not keep the method's object alive: Lua's references to Python are never
    collected."""
    reference = weakref.WeakMethod(method)

    def call(*args: Lua) -> Lua:
        alive = reference()
        if alive is None:
            raise RuntimeError("no server runs this script")
        return alive(*args)

    return call


def _text(value: Lua) -> bytes:
    """An argument of `redis.call`."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return b"%d" % value if isinstance(value, int) else f"{value:.17g}".encode()
    raise ResponseError("Command arguments must be strings or integers")
