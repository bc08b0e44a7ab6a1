"""RocketMQ 5 message by message, through rocketmq-python-client: `pip install 'holdfast-mq[rocketmq5]'`. The import
works without that package."""

from holdfast.adapters.rocketmq.grpc.source import LeasedSource

__all__ = ["LeasedSource"]
