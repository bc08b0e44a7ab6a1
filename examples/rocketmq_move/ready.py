"""Whether the group can be moved now: nobody is in it, and each queue has an offset to go on from.

To run it: python -m examples.rocketmq_move.ready (waits for the last old member to leave; exit status 0 = go on)
"""

from __future__ import annotations

import sys
import time
from contextlib import closing
from functools import partial

from examples.rocketmq.shop import parser
from holdfast.adapters.rocketmq.remoting import RemotingClient
from holdfast.adapters.rocketmq.tools.offsets import RocketMQOffsetTool
from holdfast.timing import Deadline

#: A member that was killed stays in a broker's list for 120 s where its connection did not end.
_PATIENCE_S = 150.0


def main() -> int:
    """Wait, look, tell."""
    asked = parser(__doc__).parse_args()
    with closing(RocketMQOffsetTool(partial(RemotingClient, asked.namesrv), asked.group)) as tool:
        deadline = Deadline(_PATIENCE_S)
        queues = tool.partitions(asked.topic, deadline)
        while members := tool.members(queues, deadline):
            print(f"still in the group: {', '.join(f'{each.client} at {each.host}' for each in members)}", flush=True)
            if deadline.passed:
                return 1
            time.sleep(1.0)
        committed, ends = tool.committed(queues, deadline), tool.last_offsets(queues, deadline)
    for queue in queues:
        print(f"{queue}: goes on at {committed[queue]}, the log ends at {ends[queue]}")
    missing = [str(queue) for queue in queues if committed[queue] is None]
    if missing:
        print(f"no offset in {', '.join(missing)}: there consume_from_where decides (earliest: nothing is lost)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
