"""Sources by their kind: what the command line asks of one depends on it. No other broker's client is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.cli.options import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.plugin.ports import LeasedSource, PartitionedSource
    from holdfast.tools.ports import SourceLook

    Source = PartitionedSource | LeasedSource

_KAFKA = "holdfast.adapters.kafka.source.KafkaSource"
_SHARE = "holdfast.adapters.kafka.share.source.ShareSource"
_ROCKETMQ = "holdfast.adapters.rocketmq.source.RocketMQSource"
_PUSH = "holdfast.adapters.rocketmq.push.source.PushSource"
_LEASED = "holdfast.adapters.rocketmq.grpc.source.LeasedSource"
_NOT_STATIC = {
    _SHARE: "a share group assigns no partitions to one member alone, so that a restart moves nothing",
    _ROCKETMQ: "a member that leaves hands its queues over at once, and a restarted one is in the plan in milliseconds",
    _PUSH: "RocketMQ's own clients share the queues anew whenever one of them comes or goes",
    _LEASED: "the broker hands out messages one by one, so that a restart moves no queue",
}


def look_at(source: Source) -> SourceLook | None:
    """A look at its broker; None: this kind is not looked at. Raises SettingError."""
    if _is(source, _KAFKA):
        from holdfast.adapters.kafka.tools.look import KafkaSourceLook  # noqa: PLC0415 - its client is there

        return KafkaSourceLook(source)  # type: ignore[arg-type]  # it is one
    if _is(source, _SHARE):
        from holdfast.adapters.kafka.tools.share_look import ShareSourceLook  # noqa: PLC0415 - as above

        return ShareSourceLook(source)  # type: ignore[arg-type]  # it is one
    if _is(source, _ROCKETMQ):
        from holdfast.adapters.rocketmq.tools.look import RocketMQSourceLook  # noqa: PLC0415 - as above

        return RocketMQSourceLook(source)  # type: ignore[arg-type]  # it is one
    if _is(source, _PUSH):
        from holdfast.adapters.rocketmq.tools.push_look import PushSourceLook  # noqa: PLC0415 - as above

        return PushSourceLook(source)  # type: ignore[arg-type]  # it is one
    if _is(source, _LEASED):
        from holdfast.adapters.rocketmq.tools.grpc_look import LeasedSourceLook  # noqa: PLC0415 - as above

        return LeasedSourceLook(source)  # type: ignore[arg-type]  # it is one
    return None


def broker_of(source: Source) -> Broker | None:
    """How it reaches its servers, with credentials; None: this kind does not tell. Raises SettingError."""
    if _is(source, _KAFKA):
        from holdfast.adapters.kafka.tools.look import conf_of  # noqa: PLC0415 - as above

        return Broker(kafka=conf_of(source))  # type: ignore[arg-type]  # it is one
    if _is(source, _SHARE):
        from holdfast.adapters.kafka.tools.share_look import conf_of as conf_of_share  # noqa: PLC0415 - as above

        return Broker(kafka=conf_of_share(source))  # type: ignore[arg-type]  # it is one
    if _is(source, _ROCKETMQ):
        from holdfast.adapters.rocketmq.tools.look import login_of  # noqa: PLC0415 - as above

        return Broker(rocketmq=login_of(source))  # type: ignore[arg-type]  # it is one
    return None


def why_no_offsets(source: Source) -> str:
    """Why no tool can tell or set the offsets of this kind's group; "" = it can."""
    if not _is(source, _SHARE):
        return ""
    return (
        f"{source.group} is a share group: confluent-kafka's admin client has no call for its offsets. Use "
        f"kafka-share-groups.sh --describe --group {source.group} --offsets, or --reset-offsets"
    )


def kafka_settings_of(source: Source) -> Iterator[tuple[str, object, str]] | None:
    """The client's properties in force; None: it is no KafkaSource."""
    if not _is(source, _KAFKA):
        return None
    from holdfast.adapters.kafka.tools.look import settings_of  # noqa: PLC0415 - as above

    return settings_of(source)  # type: ignore[arg-type]  # it is one


def why_not_static(source: Source) -> str:
    """Why this kind has no static members; "" = nothing is known of it."""
    return next((why for name, why in _NOT_STATIC.items() if _is(source, name)), "")


def fixed_static_id(source: Source) -> str | None:
    """The static id that each process of the app would have; None: it has none, or asks for one at its start."""
    if not _is(source, _KAFKA):
        return None
    from holdfast.adapters.kafka.tools.look import fixed_static_id as fixed  # noqa: PLC0415 - as above

    return fixed(source)  # type: ignore[arg-type]  # it is one


def _is(source: Source, name: str) -> bool:
    return name in {f"{each.__module__}.{each.__name__}" for each in type(source).__mro__}
