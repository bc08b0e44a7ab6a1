"""rocketmq-python-client's PushConsumer (gRPC, RocketMQ 5), as its documentation has it: a listener that answers
SUCCESS when the work is done, and `shutdown` at SIGTERM."""

from __future__ import annotations

from typing import Any

from rocketmq.v5.client import ClientConfiguration, Credentials
from rocketmq.v5.consumer import ConsumeResult, MessageListener, PushConsumer
from rocketmq.v5.model import FilterExpression

from tests.lab.consumers.member import Work, told, until_terminated


class _Listener(MessageListener):  # type: ignore[misc]  # the client is in another environment than mypy
    def __init__(self, work: Work) -> None:
        self._work = work

    def consume(self, message: Any) -> Any:
        # A message of a pop has no place: the lab knows it by its order.
        self._work.do(0, 0, bytes(message.body))
        return ConsumeResult.SUCCESS


def main() -> None:
    """Consume until SIGTERM."""
    member, stopping = told(), until_terminated()
    consumer = PushConsumer(
        ClientConfiguration(member.endpoints, Credentials()),
        member.group,
        _Listener(Work(member)),
        {member.topic: FilterExpression()},
    )
    consumer.startup()
    stopping.wait()
    consumer.shutdown()


if __name__ == "__main__":
    main()
