"""What `holdfast emit` says to this client is what it has, and takes."""

from __future__ import annotations

from holdfast.adapters.rocketmq.packages import load_classic
from holdfast.tools.advice.emit import Workload, for_rocketmq


def test_each_setter_is_there_and_takes_its_value() -> None:
    workload = Workload(handler_s=0.2, workers=4, static_id="pod-3")
    [sheet] = for_rocketmq(workload, only="rocketmq-python")
    consumer = load_classic().PushConsumer("billing")
    assert set(sheet.settings) == {"set_thread_count", "set_instance_name"}
    for setter, value in sheet.settings.items():
        getattr(consumer, setter)(value)  # raises what the native client says to it
