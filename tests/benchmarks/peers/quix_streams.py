"""quix-streams, as in its quickstart, with `bytes` for a deserializer: no other consumer here reads the JSON.

python -m tests.benchmarks.peers.quix_streams BOOTSTRAP TOPIC GROUP RECORDS
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from quixstreams import Application

from tests.benchmarks.peers.told import told

if TYPE_CHECKING:
    from collections.abc import Callable


def main(bootstrap: str, topic: str, group: str, records: int) -> None:
    """Consume that many records of a topic, and end the process."""
    consume(bootstrap, topic, group, told(records).one)


def consume(bootstrap: str, topic: str, group: str, handle: Callable[[bytes], object]) -> None:
    """Have each value handled, until the process ends."""
    app = Application(broker_address=bootstrap, consumer_group=group, auto_offset_reset="earliest", loglevel="WARNING")
    frame = app.dataframe(app.topic(topic, value_deserializer="bytes"))
    frame = frame.update(handle)
    app.run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
