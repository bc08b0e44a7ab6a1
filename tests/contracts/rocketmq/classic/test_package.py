"""The extra `rocketmq` ends with a working client."""

from __future__ import annotations

from holdfast.adapters.rocketmq.packages import Package, installed, load_classic


def test_the_extra_brings_the_client_with_its_native_library() -> None:
    assert installed() is Package.CLASSIC
    assert load_classic().PushConsumer
