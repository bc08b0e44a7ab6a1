"""A Redis that fails over: a master, two replicas, and three sentinels that watch them, all on loopback."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import redis

from tests.harness.processes import ServerFailed, spawn, tail
from tests.harness.servers.one_process import OneProcess
from tests.harness.servers.redis import RedisServer
from tests.harness.waiting import until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

NAME = "orders"
#: Users of the servers beside "default": whoever may no longer log in is as good as cut off.
_SENTINEL, _REPLICA, _LONELY = "sentinel", "replica", "lonely"
_PASSWORD = "of-the-inside"  # noqa: S105 - of servers that live for one test
#: A sentinel takes a server for down that is silent for so long. Not less: on a busy machine a silence means little.
_DOWN_MS = 1_500


class SentinelServer(OneProcess):
    """One sentinel process.

    Args:
        master: that it watches as `NAME`.
        user: its user there.

    Raises:
        ServerFailed: it does not start.
    """

    called = "the sentinel"

    def __init__(self, master: RedisServer, *, user: str = _SENTINEL) -> None:
        self._binary = shutil.which("redis-server")
        if self._binary is None:
            raise ServerFailed("no redis-server on PATH: apt install redis-server, or brew install redis")
        self._master, self._user = master, user
        super().__init__("sentinel")
        self._start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def state(self) -> dict[str, Any]:
        """What it says of the master."""
        with redis.Redis(port=self.port, socket_timeout=5.0, protocol=2) as client:
            found = client.sentinel_master(NAME)
        assert isinstance(found, dict)
        return found

    def names(self) -> int:
        """The port of the master that it names."""
        return int(self.state()["port"])

    def log(self) -> str:
        return tail(self._log)

    def _spawn(self, port: int) -> subprocess.Popen[bytes]:
        self.port = port
        conf = self._home / "sentinel.conf"  # it writes there what it learns
        conf.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {self._home}\n"
            f"sentinel monitor {NAME} 127.0.0.1 {self._master.port} 2\n"
            f"sentinel auth-user {NAME} {self._user}\nsentinel auth-pass {NAME} {_PASSWORD}\n"
            f"sentinel down-after-milliseconds {NAME} {_DOWN_MS}\nsentinel failover-timeout {NAME} 3000\n",
            "utf-8",
        )
        return spawn([str(self._binary), str(conf), "--sentinel"], self._log)

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        def said() -> bool:
            return process.poll() is not None or bool(self.names())

        until(said, "the sentinel does not answer", despite=(redis.ConnectionError, redis.TimeoutError))
        return process.poll() is None


class Sentinels:
    """The whole. A context manager: nothing outlives it.

    Args:
        guarded: a master that no replica follows stops taking writes, after a second: what our docs tell who runs one.
    """

    password = _PASSWORD  #: of the master

    def __init__(self, *, guarded: bool = False) -> None:
        self._stack = ExitStack()
        self._more = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "1") if guarded else ()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            # Who fails to log in is nobody, and nobody may anything: else `cut_off` would cut nothing.
            self.master, *self.replicas = (
                stack.enter_context(RedisServer(password=_PASSWORD, more=self._more)) for _ in range(3)
            )
            for server in (self.master, *self.replicas):
                _lay_out(server)
            for replica in self.replicas:
                with replica.client() as raw:
                    raw.replicaof("127.0.0.1", str(self.master.port))
            until(lambda: _replicas_of(self.master) == 2, "the replicas do not follow")
            self.sentinels = []
            for _ in range(3):
                self.sentinels.append(SentinelServer(self.master))
                stack.callback(self.sentinels[-1].stop)
            until(self._agreed, "the sentinels do not know each other")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def lonely(self) -> SentinelServer:
        """A sentinel more, which hears of no other, and goes on naming the master that it was told at its start."""
        lonely = SentinelServer(self.master, user=_LONELY)
        self._stack.callback(lonely.stop)
        return lonely

    def url(self, *first: SentinelServer) -> str:
        """Of the sentinels, these first."""
        places = ",".join(each.address for each in (*first, *self.sentinels))
        return f"redis+sentinel://:{_PASSWORD}@{places}/{NAME}/0"

    def cut_replicas(self) -> None:
        """What the master acknowledges from now on reaches no replica, though it goes on acknowledging: they stand
        still, and their connections are closed."""
        self._caught_up()
        for replica in self.replicas:
            replica.pause()
        with self.master.client() as raw:
            raw.client_kill_filter(_type="replica")
            until(lambda: _replicas_of(self.master) == 0, "the replicas are not cut")

    def cut_off(self) -> None:
        """The master is away for replicas and sentinels. Its clients reach it, and it takes what they write."""
        self._caught_up()
        with self.master.client() as raw:
            for user in (_SENTINEL, _REPLICA):
                raw.acl_setuser(user, enabled=False)
                raw.client_kill_filter(user=user)

    def fail_over(self) -> RedisServer:
        """Kill the master, and wait until another is named and takes writes. Returns it."""
        self.master.kill()
        for replica in self.replicas:
            replica.resume()
        return self.promoted()

    def promoted(self) -> RedisServer:
        """Wait for another master, which is told of by all sentinels and has the other replica. Returns it."""
        until(self._another, lambda: f"no failover: {self.sentinels[0].log()}", despite=(redis.RedisError,))
        [new] = [each for each in self.replicas if each.port == self.sentinels[0].names()]
        until(lambda: _replicas_of(new) == 1, "the other replica does not follow", despite=(redis.RedisError,))
        return new

    def leading(self) -> RedisServer:
        """The master that all sentinels name."""

        def agreed() -> RedisServer | None:
            named = {each.names() for each in self.sentinels}
            found = [each for each in (self.master, *self.replicas) if {each.port} == named]
            return found[0] if found else None

        return until(agreed, "the sentinels do not agree", despite=(redis.RedisError,))

    def await_another(self, than: RedisServer) -> None:
        """Returns when the sentinels name another."""
        until(
            lambda: self.leading() is not than,
            lambda: f"no failover: {self.sentinels[0].log()}",
            despite=(redis.RedisError,),
        )

    def restart(self, server: RedisServer) -> None:
        """After `kill`: the others find it, and it follows whom they name."""
        server.restart()
        _lay_out(server)

    def replace(self, dead: RedisServer) -> None:
        """After `kill`: returns when another is the master, and has all others as replicas, the dead one too. That one
        keeps nothing: before another is named, it would come back as a master that has forgotten all."""
        self.await_another(dead)
        self.restart(dead)
        self.await_settled()

    def await_settled(self) -> None:
        """Returns when the master has both other servers as replicas again."""
        until(
            lambda: _replicas_of(self.leading()) == 2,
            lambda: f"the replicas do not follow: {self.sentinels[0].log()}",
            despite=(redis.RedisError,),
        )

    def _caught_up(self) -> None:
        """What was acknowledged until now is known to all."""
        with self.master.client() as raw:
            raw.set("caught-up", "1")
            assert raw.wait(2, 30_000) == 2

    def _another(self) -> bool:
        return self.leading() is not self.master

    def _agreed(self) -> bool:
        states = [each.state() for each in self.sentinels]
        return all(each["num-slaves"] == 2 and each["num-other-sentinels"] == 2 for each in states)


def _lay_out(server: RedisServer) -> None:
    with server.client() as raw:
        for user in (_SENTINEL, _REPLICA):
            raw.acl_setuser(user, enabled=True, passwords=[f"+{_PASSWORD}"], commands=["+@all"], channels=["*"])
        raw.acl_setuser(
            _LONELY, enabled=True, passwords=[f"+{_PASSWORD}"], commands=["+ping", "+info", "+client"], reset=True
        )
        raw.config_set("masteruser", _REPLICA)
        raw.config_set("masterauth", _PASSWORD)


def _replicas_of(server: RedisServer) -> int:
    with server.client() as raw:
        info = raw.info("replication")
    lines: Sequence[Any] = [value for key, value in info.items() if key.startswith("slave") and isinstance(value, dict)]
    return sum(line["state"] == "online" for line in lines)
