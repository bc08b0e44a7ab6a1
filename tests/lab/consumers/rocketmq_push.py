"""rocketmq-client-python's PushConsumer, as its documentation has it: a callback that answers SUCCESS when the work is
done, and `shutdown` at SIGTERM."""

from __future__ import annotations

import os
from typing import Any

from rocketmq.client import ConsumeStatus, PushConsumer

from tests.lab.consumers.member import Work, told, until_terminated


def main() -> None:
    """Consume until SIGTERM."""
    member, stopping = told(), until_terminated()
    work = Work(member)

    def handle(message: Any) -> ConsumeStatus:
        work.do(message.queue_id, message.queue_offset, message.body)
        return ConsumeStatus.CONSUME_SUCCESS

    consumer = PushConsumer(member.group)
    consumer.set_namesrv_addr(member.bootstrap)
    consumer.set_instance_name(f"{member.name}-{os.getpid()}")
    consumer.subscribe(member.topic, handle)
    consumer.start()
    stopping.wait()
    consumer.shutdown()


if __name__ == "__main__":
    main()
