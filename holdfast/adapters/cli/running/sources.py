"""Sources by their kind: what the command line asks of one depends on it. No other broker's client is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.plugin.ports import LeasedSource, PartitionedSource
    from holdfast.plugin.tool_ports import SourceLook

    Source = PartitionedSource | LeasedSource

_KAFKA = "holdfast.adapters.kafka.source.KafkaSource"
_ROCKETMQ = "holdfast.adapters.rocketmq.source.RocketMQSource"


def look_at(source: Source) -> SourceLook | None:
    """A look at its broker; None: this kind is not looked at. Raises SettingError."""
    if _is(source, _KAFKA):
        from holdfast.adapters.kafka.source_look import KafkaSourceLook  # noqa: PLC0415 - its client is there

        return KafkaSourceLook(source)  # type: ignore[arg-type]  # it is one
    if _is(source, _ROCKETMQ):
        from holdfast.adapters.rocketmq.source_look import RocketMQSourceLook  # noqa: PLC0415 - as above

        return RocketMQSourceLook(source)  # type: ignore[arg-type]  # it is one
    return None


def fixed_static_id(source: Source) -> str | None:
    """The static id that each process of the app would have; None: it has none, or asks for one at its start."""
    if not _is(source, _KAFKA):
        return None
    from holdfast.adapters.kafka.source_look import fixed_static_id as fixed  # noqa: PLC0415 - as above

    return fixed(source)  # type: ignore[arg-type]  # it is one


def _is(source: Source, name: str) -> bool:
    return name in {f"{each.__module__}.{each.__name__}" for each in type(source).__mro__}
