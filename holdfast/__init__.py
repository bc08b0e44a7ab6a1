"""holdfast: consumers that do not repeat work when a group rebalances.

Each name is imported when it is asked for: pytest imports this package in every run where holdfast is installed, and
that is to cost next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.dedup.calls.decorator import idempotent
    from holdfast.dedup.calls.grant import current_claim
    from holdfast.dedup.calls.results import Skipped
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
    from holdfast.plugin.handling.handler_call import HandlerCall
    from holdfast.plugin.handling.log_place import LogPlace
    from holdfast.plugin.handling.outputs import Outputs
    from holdfast.plugin.handling.values import Deserializer
    from holdfast.plugin.retrying.dead_letter import Letter
    from holdfast.plugin.retrying.letter_limit import DeadLetterLimit
    from holdfast.plugin.retrying.retry import Retry
    from holdfast.plugin.settings import Ramp, Settings
    from holdfast.records import Partition, Record
    from holdfast.testing.records import make_record

__all__ = [
    "Audit",
    "BatchFailed",
    "BatchOf",
    "DeadLetterLimit",
    "Deserializer",
    "Fenced",
    "FileEvents",
    "HandlerCall",
    "Holdfast",
    "HoldfastError",
    "KeyBusy",
    "Letter",
    "LogPlace",
    "LoopAudit",
    "MemoryClaims",
    "Outputs",
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

#: Where each of them is.
_HOMES = {
    "Audit": "holdfast.plugin.audit.settings",
    "BatchFailed": "holdfast.errors",
    "BatchOf": "holdfast.plugin.handlers",
    "DeadLetterLimit": "holdfast.plugin.retrying.letter_limit",
    "Deserializer": "holdfast.plugin.handling.values",
    "Fenced": "holdfast.errors",
    "FileEvents": "holdfast.plugin.audit.files",
    "HandlerCall": "holdfast.plugin.handling.handler_call",
    "Holdfast": "holdfast.plugin.app",
    "HoldfastError": "holdfast.errors",
    "KeyBusy": "holdfast.errors",
    "Letter": "holdfast.plugin.retrying.dead_letter",
    "LogPlace": "holdfast.plugin.handling.log_place",
    "LoopAudit": "holdfast.plugin.audit.loops",
    "MemoryClaims": "holdfast.dedup.memory",
    "Outputs": "holdfast.plugin.handling.outputs",
    "Partition": "holdfast.records",
    "Ramp": "holdfast.plugin.settings",
    "Record": "holdfast.records",
    "RedisClaims": "holdfast.dedup.redis_store",
    "RedisCoordinator": "holdfast.dedup.redis_coordinator",
    "Retry": "holdfast.plugin.retrying.retry",
    "Settings": "holdfast.plugin.settings",
    "Skipped": "holdfast.dedup.calls.results",
    "Unretriable": "holdfast.errors",
    "current_claim": "holdfast.dedup.calls.grant",
    "header": "holdfast.dedup.keys",
    "idempotent": "holdfast.dedup.calls.decorator",
    "make_record": "holdfast.testing.records",
    "record_key": "holdfast.dedup.keys",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
