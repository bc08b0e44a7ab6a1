"""`holdfast dead-letters list | replay`."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from holdfast.adapters.cli import options as shared
from holdfast.adapters.cli.arguments import at_least_0, since_ms
from holdfast.adapters.cli.holding import Holding
from holdfast.adapters.cli.interrupt import Interrupt
from holdfast.adapters.cli.letters import COLUMNS, StoredLetter, Summary, Wanted
from holdfast.adapters.cli.output import count, span
from holdfast.adapters.cli.replay import Replay, Result, Way
from holdfast.adapters.cli.replayed import KEEP_S, Replayed
from holdfast.errors import SettingError
from holdfast.timing import Deadline, wall_ms

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from holdfast.adapters.cli.output import Output
    from holdfast.dedup.claims import Acquired
    from holdfast.plugin.tool_ports import DeadLetterTool
    from holdfast.records import Partition

_LIST = """\
  holdfast dead-letters list --topic orders.dlq --bootstrap localhost:9092 --error-type PaymentDeclined --since 2d"""
_REPLAY = """\
  holdfast dead-letters replay --topic orders.dlq --origin orders --bootstrap localhost:9092 --redis @redis.url

What was replayed is remembered in the store and not sent again. A replay that is killed may have sent up to 100 letters
that its successor sends once more; with a business key the app skips those copies. A letter goes to the topic that its
headers name, if you name it too with --origin (several times for several topics): whoever may write to the dead letter
topic can write any name there. --to names one topic for all.
"""


def add(commands: shared.Commands) -> None:
    """Both commands."""
    both = commands.add_parser("dead-letters", help="records that failed for good: look at them, send them back")
    inner = both.add_subparsers(title="commands", metavar="COMMAND", required=True)
    made = shared.command(inner, "list", "show what lies in a dead letter topic, and why", _LIST)
    _add_choice(made)
    shared.add_brokers(made)
    made.add_argument("--limit", type=at_least_0, default=20, metavar="N", help="letters shown (default: %(default)s)")
    made.add_argument("--values", action="store_true", help="show the records' values too")
    made.add_argument("--tracebacks", action="store_true", help="show where each of them failed")
    made.add_argument("--pending", action="store_true", help="only what was not replayed yet; needs --redis")
    shared.add_redis(made, "that remembers what was replayed", required=False)
    made.set_defaults(run=run_list)
    made = shared.command(inner, "replay", "send letters back to the topic where they were born", _REPLAY)
    _add_choice(made)
    shared.add_brokers(made)
    shared.add_redis(made, "remembers what was replayed")
    made.add_argument("--limit", type=at_least_0, metavar="N", help="letters sent at most (default: all)")
    made.add_argument("--to", metavar="TOPIC", help="send all of them there, also those of other tools")
    made.add_argument(
        "--by-key",
        action="store_true",
        help="choose the partition by the key (as `partitioner` in --kafka-config says): for an origin that has got "
        "more partitions since. By default a letter goes to the partition that it came from",
    )
    made.add_argument("--dry-run", action="store_true", help="tell what would be sent, send and note nothing")
    made.set_defaults(run=run_replay)


def _add_choice(made: argparse.ArgumentParser) -> None:
    made.add_argument("--topic", required=True, help="the dead letter topic")
    shared.add_partitions(made)
    made.add_argument("--handler", metavar="NAME", help="only those that this handler gave up")
    made.add_argument("--error-type", metavar="TYPE", help="only those: shop.errors.Declined, or just Declined")
    made.add_argument(
        "--origin", action="append", metavar="TOPIC", help="only those that were born there; may be given several times"
    )
    made.add_argument("--since", type=since_ms, metavar="WHEN", help="only later ones: 2026-11-20T10:00:00Z, or 2h, 7d")


def run_list(options: argparse.Namespace, output: Output) -> int:
    """Read the topic once: the first letters that are wanted, and a summary of all of them."""
    if options.pending and not options.redis:
        raise SettingError("--pending", options.pending, "the store knows what was replayed: give --redis too")
    wanted, summary = _wanted(options), Summary()
    shown: list[StoredLetter] = []
    with shared.dead_letter_tool_of(options) as letters, output.progress(f"reading {options.topic}") as progress:
        firsts, ends = _ends(letters, options)
        known = _known(options, output, letters, list(firsts)) if options.pending else {}
        looked = 0
        for records in letters.read(firsts, ends, options.timeout):
            for letter in filter(wanted, map(StoredLetter.of, records)):
                if _is_known(known.get(letter.record.partition), letter.record.offset):
                    continue
                summary.add(letter)
                if len(shown) < options.limit:
                    shown.append(letter)
            looked += len(records)
            progress.at(looked)
    _tell_letters(options, output, shown)
    _tell_summary(output, summary, len(shown))
    return 0


def run_replay(options: argparse.Namespace, output: Output) -> int:
    """Send what is wanted and was not sent before. The result is told however the run ends."""
    if options.to == options.topic:
        raise SettingError("--to", options.to, "that is where the letters are: name another topic")
    with (
        Interrupt() as interrupt,
        shared.dead_letter_tool_of(options) as letters,
        shared.claims_of(options, positions_ttl_s=KEEP_S) as store,
    ):
        deadline = Deadline(options.timeout)
        firsts, ends = _ends(letters, options)
        holding = Holding(store, letters.position_names(list(firsts), deadline), output.note)
        with closing(holding), output.progress(f"replaying {options.topic}") as progress:
            replay = Replay(
                letters,
                Replayed(holding, dry=options.dry_run),
                way=Way(to=options.to, origins=frozenset(options.origin or ()), by_key=options.by_key),
                wanted=_wanted(options),
                limit=options.limit,
                stop=lambda: interrupt.asked,
                progress=progress,
            )
            try:
                replay.run(firsts, ends, options.timeout)
            finally:
                _tell_result(options, output, replay.result)
    if replay.result.stopped == "interrupted":
        return 130
    return 1 if replay.result.refused else 0


def _wanted(options: argparse.Namespace) -> Wanted:
    return Wanted(
        handler=options.handler,
        error_type=options.error_type,
        origins=frozenset(options.origin) if options.origin else None,
        since_ms=options.since,
    )


def _ends(
    letters: DeadLetterTool, options: argparse.Namespace
) -> tuple[Mapping[Partition, int], Mapping[Partition, int]]:
    """First and last offsets of the partitions that are asked for."""
    deadline = Deadline(options.timeout)
    chosen = shared.chosen(letters.partitions(options.topic, deadline), options.partitions)
    return letters.first_offsets(chosen, deadline), letters.last_offsets(chosen, deadline)


def _known(
    options: argparse.Namespace, output: Output, letters: DeadLetterTool, partitions: Sequence[Partition]
) -> Mapping[Partition, Acquired]:
    """The letters that were replayed, for a moment in which no replay runs."""
    deadline = Deadline(options.timeout)
    names = letters.position_names(partitions, deadline)
    with (
        shared.claims_of(options, positions_ttl_s=KEEP_S) as store,
        closing(Holding(store, names, output.note)) as holding,
    ):
        return holding.take(deadline)


def _is_known(found: Acquired | None, offset: int) -> bool:
    return found is not None and (offset < found.watermark or offset in found.done)


def _tell_letters(options: argparse.Namespace, output: Output, letters: Sequence[StoredLetter]) -> None:
    now_ms = wall_ms()
    for letter in letters:
        output.json(letter.as_json(values=options.values))
    if letters:
        names = (*COLUMNS, "VALUE") if options.values else COLUMNS
        output.table(names, [letter.row(now_ms, values=options.values) for letter in letters])
        output.say()
    if options.tracebacks:
        for letter in letters:
            for line in letter.told():
                output.say(line)
            output.say()


def _tell_summary(output: Output, summary: Summary, shown: int) -> None:
    now_ms, total = wall_ms(), summary.by_error.total()
    output.json({"type": "summary", "letters": total, "shown": shown, "by_error_type": dict(summary.by_error)})
    if not total:
        output.say("no letters")
        return
    rows = [
        [
            kind,
            count,
            span((now_ms - summary.newest_ms[kind]) / 1000),
            span((now_ms - summary.oldest_ms[kind]) / 1000),
        ]
        for kind, count in summary.by_error.most_common()
    ]
    output.table(("ERROR", "LETTERS", "NEWEST", "OLDEST"), rows)
    if shown < total:
        output.say(f"{shown:,} of {count(total, 'letter')} shown: --limit shows more")


def _tell_result(options: argparse.Namespace, output: Output, result: Result) -> None:
    output.json(
        {
            "type": "replay",
            "dry_run": options.dry_run,
            "sent": dict(result.sent),
            "already_replayed": result.already,
            "not_wanted": result.not_wanted,
            "refused": dict(result.refused),
            "stopped": result.stopped,
        }
    )
    for topic, sent in sorted(result.sent.items()):
        output.say(f"{count(sent, 'letter')} {'would be sent' if options.dry_run else 'sent'} to {topic}")
    if not result.sent:
        output.say("nothing to send" if options.dry_run else "nothing sent")
    if result.already:
        output.say(f"{result.already:,} were replayed before")
    if result.not_wanted:
        output.say(f"{result.not_wanted:,} left where they are: the filters do not want them")
    for why, refused in result.refused.items():
        output.say(f"{refused:,} refused: {why}")
    if result.stopped is not None:
        output.say(f"stopped before the end ({result.stopped}); the rest is sent by another run")
