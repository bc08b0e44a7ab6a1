"""What a forked child makes anew, and what stays of stores that come and go."""

from __future__ import annotations

import gc
import os

from holdfast.dedup import forks
from holdfast.dedup.redis_store import RedisClaims


def test_stores_that_come_and_go_leave_nothing_behind() -> None:
    gc.collect()
    before = len(forks._RENEWALS)
    for _ in range(20):
        RedisClaims.from_url("redis://localhost:1/0").close()
    gc.collect()
    assert len(forks._RENEWALS) <= before


def test_a_child_renews_what_lives_and_nothing_else() -> None:
    class Owner:
        renewed = 0

    def renew(owner: Owner) -> None:
        owner.renewed += 1

    kept, gone = Owner(), Owner()
    for owner in (gone, kept):
        forks.after_fork(owner, renew)
    del owner, gone
    child = os.fork()
    if not child:
        os._exit(kept.renewed)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert kept.renewed == 0
