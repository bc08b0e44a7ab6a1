"""holdfast: consumers that keep their grip through a rebalance."""

from holdfast.dedup.keys import header, record_key
from holdfast.dedup.memory import MemoryClaims
from holdfast.dedup.redis_store import RedisClaims
from holdfast.errors import BatchFailed, HoldfastError, Unretriable
from holdfast.plugin.app import Holdfast
from holdfast.plugin.handlers import BatchOf
from holdfast.plugin.retry import Retry
from holdfast.plugin.settings import Settings
from holdfast.records import Partition, Record

__all__ = [
    "BatchFailed",
    "BatchOf",
    "Holdfast",
    "HoldfastError",
    "MemoryClaims",
    "Partition",
    "Record",
    "RedisClaims",
    "Retry",
    "Settings",
    "Unretriable",
    "header",
    "record_key",
]

__version__ = "0.1.0"
