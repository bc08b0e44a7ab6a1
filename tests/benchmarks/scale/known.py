"""A Redis that knows many keys: what claiming and finishing new ones costs there, us and it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.benchmarks.bench_keys import scripts
from tests.benchmarks.lab import Speed

if TYPE_CHECKING:
    from tests.harness.servers.redis import RedisServer

_NAMESPACE = "bench-known"
#: `scripts` makes its claims before it sends them.
_CHUNK = 100_000


class Both(NamedTuple):
    """Of the same keys: what this side needed, and what Redis needed."""

    ours: Speed
    redis: Speed


class KnownKeys:
    """One server, with as many keys done as it was told of.

    Args:
        server: nobody else's.
        hash_keys: as in RedisClaims.
        expected: as `keys_expected` in RedisClaims.
    """

    def __init__(self, server: RedisServer, *, hash_keys: bool, expected: int) -> None:
        self._server, self._hash_keys, self._expected = server, hash_keys, expected
        self._done = 0

    def until(self, count: int) -> None:
        """Have exactly so many, beginning anew where it has more."""
        if self._done > count:
            with self._server.client() as client:
                client.flushall()
            self._done = 0
        while self._done < count:
            self._claim(min(_CHUNK, count - self._done))

    def more(self, count: int) -> Both:
        """So many new ones."""
        before_s = self._used_s()
        ours = self._claim(count)
        return Both(ours, Speed(count, ours.elapsed_s, self._used_s() - before_s))

    def _claim(self, count: int) -> Speed:
        speed = scripts(self._server.url, _NAMESPACE, count, self._hash_keys, self._done, self._expected)
        self._done += count
        return speed

    def _used_s(self) -> float:
        with self._server.client() as client:
            cpu = client.info("cpu")
        return float(cpu["used_cpu_user"] + cpu["used_cpu_sys"])
