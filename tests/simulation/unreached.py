"""Modules of the engine and its stores that worlds reach in part -> the tests about the rest, or why there are none."""

from __future__ import annotations

#: The entry with the longest matching path counts.
ABOUT = {
    "dedup": "`contracts/redis/test_claims.py`, `properties/test_claims_machine.py`",
    "dedup/spark_batches": "Spark's: `contracts/redis/test_batches.py`, `properties/test_batches_machine.py`",
    "dedup/calls": (
        "`@idempotent`, without an app: `properties/test_idempotent.py`, `contracts/redis/test_idempotent.py`"
    ),
    "dedup/forks": "nothing forks there: `unit/test_forks.py`, `unit/test_forked_processes.py`",
    "dedup/groups": "`contracts/redis/test_groups.py`, `properties/test_groups_machine.py`",
    "dedup/joining": "`contracts/redis/test_groups.py`",
    "dedup/keys": "kinds of keys that no seed draws: `unit/test_keys.py`",
    "dedup/membership": "`contracts/redis/test_groups.py`, `contracts/redis/test_group_processes.py`",
    "dedup/memory_spark_batches": "Spark's: `contracts/redis/test_batches.py`, `properties/test_batches_machine.py`",
    "dedup/memory_coordinator": "`contracts/redis/test_groups.py`",
    "dedup/memory_groups": "`contracts/redis/test_groups.py`, `properties/test_groups_machine.py`",
    "dedup/open": "`unit/test_open_claims.py`, `unit/engine/test_store_outages.py`",
    "dedup/planning": "`properties/test_groups_machine.py`",
    "dedup/redis_admin": "a real Redis: `contracts/redis/test_admin.py`",
    "dedup/redis_spark_batches": "Spark's: `contracts/redis/test_batches.py`, `properties/test_batches_machine.py`",
    "dedup/redis_connect": "a real Redis, its settings and its kinds: `contracts/redis/test_connect.py`",
    "dedup/redis_coordinator": "worlds keep groups by the specification: `contracts/redis/test_group_faults.py`",
    "dedup/redis_errors": "a real Redis: `contracts/redis/test_faults.py`, `contracts/redis/test_failover.py`",
    "dedup/redis_existing": "a real Redis: `contracts/redis/test_connect.py`",
    "dedup/redis_groups": "worlds keep groups by the specification: `properties/test_lua_redis.py`",
    "dedup/redis_layout": "other layouts: `contracts/redis/test_buckets.py`, `contracts/kafka/test_migrations.py`",
    "dedup/redis_server": "a real Redis, its settings and its kinds: `contracts/redis/test_connect.py`",
    "dedup/redis_scripts": "a real Redis: `contracts/redis/test_faults.py`, `contracts/redis/test_failover.py`",
    "plugin/engine": "`unit/engine/test_apps.py`, `unit/engine/test_sessions.py`",
    "plugin/engine/flow": (
        "`unit/engine/test_backpressure.py`, `unit/engine/test_ramp.py`, `properties/test_waiting.py`"
    ),
    "plugin/engine/leased": "leased messages: `unit/engine/test_leased.py`, `unit/engine/test_queue_leases.py`",
    "plugin/engine/partition": (
        "`contracts/redis/test_rebalances.py`, `unit/engine/test_offsets.py`, `unit/engine/test_unreadable.py`"
    ),
    "plugin/engine/record": (
        "`unit/engine/test_failures.py`, `unit/engine/test_batches.py`, `properties/test_claimed_runs.py`"
    ),
    "plugin/engine/record/claiming": "`properties/test_claiming.py`, `unit/engine/test_ordering.py`",
    "plugin/engine/record/hung_handlers": "`unit/engine/test_hung_handlers.py`",
    "plugin/engine/record/lanes": "`properties/test_lanes.py`, `unit/engine/test_ordering.py`",
    "plugin/engine/record/unroutable": "`unit/engine/test_retry_topics.py`",
    "plugin/engine/record/workers": "`unit/engine/test_kinds.py`, `unit/engine/test_hung_handlers.py`",
    "plugin/engine/store": "`unit/engine/test_store_outages.py`, `contracts/redis/test_store_failovers.py`",
    "plugin/own_loop": "a user's own loop: `unit/engine/test_driven.py`, `unit/engine/test_loop_commits.py`",
}
