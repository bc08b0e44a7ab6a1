"""RocketMQ through rocketmq-client-python, the C++ client: `pip install 'holdfast-mq[rocketmq]'`."""

from holdfast.adapters.rocketmq.push.source import PushSource

__all__ = ["PushSource"]
