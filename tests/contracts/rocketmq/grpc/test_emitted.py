"""What `holdfast emit` says to this client is what it has."""

from __future__ import annotations

import inspect

from holdfast.adapters.rocketmq.grpc.client import load
from holdfast.tools.advice.emit import Workload, for_rocketmq


def test_each_key_is_an_argument_of_what_it_is_meant_for() -> None:
    load()  # imports the package without its side effects
    from rocketmq import PushConsumer, SimpleConsumer  # noqa: PLC0415 - not before

    workload = Workload(handler_s=0.2, workers=4)
    [simple] = for_rocketmq(workload, only="rocketmq-grpc-simple")
    [push] = for_rocketmq(workload, only="rocketmq-grpc-push")
    making, receive = inspect.signature(SimpleConsumer).parameters, inspect.signature(SimpleConsumer.receive).parameters
    assert set(simple.settings) - set(receive) == {"await_duration"} <= set(making)
    assert set(push.settings) <= set(inspect.signature(PushConsumer).parameters)
