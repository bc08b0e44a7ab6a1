"""holdfast: consumers that keep their grip through a rebalance."""

from holdfast.dedup.calls.current import current_claim
from holdfast.dedup.calls.policy import Skipped
from holdfast.dedup.decorator import idempotent
from holdfast.dedup.keys import header, record_key
from holdfast.dedup.memory import MemoryClaims
from holdfast.dedup.redis_coordinator import RedisCoordinator
from holdfast.dedup.redis_store import RedisClaims
from holdfast.errors import BatchFailed, Fenced, HoldfastError, KeyBusy, Unretriable
from holdfast.plugin.app import Holdfast
from holdfast.plugin.audit.files import FileEvents
from holdfast.plugin.audit.loops import LoopAudit
from holdfast.plugin.audit.settings import Audit
from holdfast.plugin.handlers import BatchOf
from holdfast.plugin.letter_limit import DeadLetterLimit
from holdfast.plugin.ramp import Ramp
from holdfast.plugin.retry import Retry
from holdfast.plugin.settings import Settings
from holdfast.records import Partition, Record
from holdfast.testing.records import make_record

__all__ = [
    "Audit",
    "BatchFailed",
    "BatchOf",
    "DeadLetterLimit",
    "Fenced",
    "FileEvents",
    "Holdfast",
    "HoldfastError",
    "KeyBusy",
    "LoopAudit",
    "MemoryClaims",
    "Partition",
    "Ramp",
    "Record",
    "RedisClaims",
    "RedisCoordinator",
    "Retry",
    "Settings",
    "Skipped",
    "Unretriable",
    "current_claim",
    "header",
    "idempotent",
    "make_record",
    "record_key",
]

__version__ = "0.1.0"
