"""A group's positions in the store, looked at from the side: nothing is taken over."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.adapters.cli import options as shared
from holdfast.dedup.redis_admin import RedisAdmin
from holdfast.errors import SourceError
from holdfast.plugin.engine.partition.group_position import group_position
from holdfast.timing import Deadline

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from holdfast.records import Partition
    from holdfast.tools.advice.group_view import GroupView, PartitionView
    from holdfast.tools.ports import OffsetTool


def with_positions(view: GroupView, options: argparse.Namespace) -> GroupView:
    """The view with where the group goes on, by its broker and by the store that `--redis` names, as the app and
    `holdfast reset` find it. Raises StoreError, SettingError; what the broker does not tell is a note."""
    with shared.offset_tool_of(options) as tool, shared.claims_of(options) as store:
        admin, found, notes = RedisAdmin.of(store), dict(view.partitions), list(view.notes)
        for topic in sorted(view.topics):
            ours = [each for each, one in view.partitions.items() if each.topic == topic and one.exists]
            try:
                positions = dict(_positions(tool, admin, [view.partitions[each] for each in ours], options.timeout))
            except SourceError as error:
                notes.append(f"{topic}: the group's position in the store is unknown: {error}")
                continue
            found |= {each: replace(found[each], position=at, end=end) for each, (at, end) in positions.items()}
    return replace(view, partitions=found, notes=tuple(notes))


def _positions(
    tool: OffsetTool, admin: RedisAdmin, views: list[PartitionView], timeout_s: float
) -> Iterator[tuple[Partition, tuple[int, int | None]]]:
    """Where the group goes on, and the log's end, no older than that: the group may be at work."""
    deadline, ends = Deadline(timeout_s), {each.partition: each.end for each in views}
    names = tool.position_names(list(ends), deadline) if ends else {}
    known = admin.known(list(names.values()))
    ours = [each for each, name in names.items() if name in known]
    committed = tool.committed(ours, deadline) if ours else {}
    at = {each: group_position(committed[each], known[names[each]]).offset for each in ours}
    further = [each for each in ours if at[each] is not None and (at[each] or 0) > (ends[each] or 0)]
    ends |= tool.last_offsets(further, deadline) if further else {}
    for each in ours:
        if (offset := at[each]) is not None:
            yield each, (offset, ends[each])
