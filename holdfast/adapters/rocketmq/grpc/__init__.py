"""RocketMQ 5 by message, over rocketmq-python-client: `pip install 'holdfast[rocketmq5]'`. Imported without it too."""

from holdfast.adapters.rocketmq.grpc.source import LeasedSource

__all__ = ["LeasedSource"]
