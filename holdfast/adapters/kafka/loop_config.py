"""A loop's configuration: properties that the engine handles instead of the client, and when a record is done. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from holdfast.adapters.kafka.properties import as_bool
from holdfast.dedup.keys import resolve_key
from holdfast.errors import SettingError
from holdfast.plugin.handlers import Handler, Routes
from holdfast.plugin.own_loop.user_loop import DoneWhen

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.dedup.keys import KeySpec

_DESERIALISERS = frozenset(
    {"key.deserializer", "value.deserializer", "key.deserializer.builder", "value.deserializer.builder"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopConfig:
    """The configuration that a loop passes to its consumer, taken apart."""

    #: The properties for `KafkaSource`.
    conf: Mapping[str, Any]
    done_when: DoneWhen
    #: enable.auto.offset.store=false: a commit without arguments is about stored offsets.
    stored_only: bool
    #: enable.partition.eof: the loop wants messages about the ends of partitions.
    wants_ends: bool
    on_commit: Callable[..., object] | None
    deserialisers: Mapping[str, Any]


def read(conf: Mapping[str, Any], done_when: DoneWhen | None) -> LoopConfig:
    """Take a loop's configuration apart. Raises SettingError."""
    if done_when is not None and done_when not in get_args(DoneWhen):
        raise SettingError("done_when", done_when, f"use one of {', '.join(map(repr, get_args(DoneWhen)))}")
    topics = conf.get("default.topic.config")
    mine = {**conf, **topics} if isinstance(topics, Mapping) else dict(conf)
    mine = {name: value for name, value in mine.items() if value is not None and value is not topics}
    commits = _flag(mine, "enable.auto.commit", "auto.commit.enable")
    stores = _flag(mine, "enable.auto.offset.store")
    mine.pop("auto.commit.interval.ms", None)  # Settings.commit_interval_s; at a hand-over in any case
    on_commit = mine.pop("on_commit", None)
    if on_commit is not None and not callable(on_commit):
        raise SettingError("on_commit", on_commit, "use a function of (error, partitions)")
    return LoopConfig(
        done_when=done_when or ("next_poll" if commits and stores else "commit"),
        stored_only=not stores,
        wants_ends=_flag(mine, "enable.partition.eof", default=False),
        on_commit=on_commit,
        deserialisers={name: mine.pop(name) for name in sorted(_DESERIALISERS & mine.keys())},
        conf=mine,
    )


def spelled(keyword: str) -> str:
    """A property's name from a keyword argument: group_id is group.id. A few names have underscores themselves."""
    return keyword if keyword.endswith("_cb") or keyword in ("on_commit", "log_level") else keyword.replace("_", ".")


def _flag(conf: dict[str, Any], *names: str, default: bool = True) -> bool:
    said = [as_bool(name, conf.pop(name)) for name in names if name in conf]
    return said[0] if said else default


def routes_of(key: KeySpec | Mapping[str, KeySpec] | None, scope: str | None) -> Routes:
    """Make the routes, which tell each topic's key."""
    routes = Routes()
    default = None
    if isinstance(key, Mapping):
        for topic, spec in key.items():
            routes.add(Handler(name=topic, call=_never_called, topics=(topic,), scope=scope, key=resolve_key(spec)))
    elif key is not None:
        default = resolve_key(key)
    # The name of a topic has no space, so this one is unique.
    routes.add(Handler(name="the loop", call=_never_called, topics=("^",), scope=scope, key=default))
    return routes


def _never_called(_: object) -> None:
    raise AssertionError("the loop handles records by itself")
