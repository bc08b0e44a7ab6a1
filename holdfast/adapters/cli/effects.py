"""The effects of a replay beside the one that is wanted, said before anything is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.cli.letters import StoredLetter
from holdfast.errors import NotAuthorised, SourceError, UnknownTopic
from holdfast.timing import Deadline

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Iterator, Mapping

    from holdfast.adapters.cli.letters import Wanted
    from holdfast.adapters.cli.output import Output
    from holdfast.records import Partition
    from holdfast.tools.ports import DeadLetterTool

#: Letters that are read to know whose they are.
_SAMPLE = 1_000
_DLQ = "%DLQ%"
#: What is not known after so long is told as that.
_ASK_S = 10.0
#: Groups that are named in one line.
_NAMED = 10


def agreed(
    options: argparse.Namespace,
    output: Output,
    letters: DeadLetterTool,
    targets: Collection[str],
    *,
    wanted: Wanted,
    between: tuple[Mapping[Partition, int], Mapping[Partition, int]],
) -> bool:
    """Say what else a replay does; where there is something to say, it has to be agreed to. Raises SourceError."""
    groups = _groups(options, letters, wanted, between)
    told = [
        each
        for topic in sorted(targets)
        for each in _effects(topic, groups, letters, Deadline(min(options.timeout, _ASK_S)))
    ]
    if options.no_store:
        told.append("nothing is remembered (--no-store): another replay of these letters sends them again")
    for each in told:
        output.json({"type": "effect", "effect": each})
        output.say(each)
    if not told or options.yes or options.dry_run:
        return True
    return output.agreed("Send them?")


def _groups(
    options: argparse.Namespace,
    letters: DeadLetterTool,
    wanted: Wanted,
    between: tuple[Mapping[Partition, int], Mapping[Partition, int]],
) -> set[str]:
    """The groups that have given these letters up, as far as the first of them say."""
    # Of those that RocketMQ's brokers have written the topic's name says it.
    looked, groups = 0, {options.topic.removeprefix(_DLQ)} if options.topic.startswith(_DLQ) else set[str]()
    for records in letters.read(*between, options.timeout):
        groups.update(each.group for each in map(StoredLetter.of, records) if each.group and wanted(each))
        looked += len(records)
        if looked >= _SAMPLE:
            break
    return groups


def _effects(topic: str, groups: Collection[str], letters: DeadLetterTool, deadline: Deadline) -> Iterator[str]:
    """Of sending letters to that topic."""
    try:
        if letters.is_compacted(topic, deadline):
            yield (
                f"{topic} is compacted: a letter becomes the newest record of its key, also where a newer value has "
                "come since"
            )
        others = [each for each in letters.readers(topic, deadline) if each not in groups]
    except (UnknownTopic, NotAuthorised):
        return  # its letters are refused; or this user may not know
    except SourceError as error:
        yield f"the other readers of {topic} are unknown: {error}"
        return
    if others:
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        yield f"{topic} is read by other groups too, which get the letters again: {', '.join(others[:_NAMED])}{more}"
