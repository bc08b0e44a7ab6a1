"""A Redis that refuses a former owner: one script compares and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from examples.fences.fenced import FormerOwner

if TYPE_CHECKING:
    import redis

    from holdfast import Record

#: KEYS: the partition's fence, what is written. ARGV: the fence, the value. Lua's numbers are exact below 2^53, and a
#: fence is about 2^41.
_WRITE = """
local held = tonumber(redis.call('GET', KEYS[1]) or '0')
if tonumber(ARGV[1]) < held then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[2])
return 1
"""


class FencedValues:
    """Values by their keys, the last write wins; and no write of a former owner is the last. Threads may share it.

    The fences must not expire or be evicted: a lost fence lets a former owner in.
    """

    def __init__(self, client: redis.Redis, prefix: str = "shop") -> None:
        self._prefix = prefix
        self._write = client.register_script(_WRITE)

    def write(self, record: Record, name: str, value: str | bytes) -> None:
        """Write one value. Raises FormerOwner, ValueError, redis.RedisError."""
        if record.fence.epoch == 0:
            raise ValueError("there is no fence: this needs a store, and a source that owns partitions")
        # In a Redis Cluster both keys need one hash tag: the script is one server's.
        keys = [f"{self._prefix}:fence:{record.partition}", f"{self._prefix}:{name}"]
        if not self._write(keys=keys, args=[record.fence.epoch, value]):
            raise FormerOwner(f"{record.partition}: epoch {record.fence.epoch}, but a later owner has written")
