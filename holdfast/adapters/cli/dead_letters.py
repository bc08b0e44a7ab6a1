"""`holdfast dead-letters list | replay`."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from holdfast.adapters.cli import options as shared
from holdfast.adapters.cli.arguments import at_least_0, redis_url, since_ms
from holdfast.adapters.cli.effects import agreed
from holdfast.adapters.cli.ending import told_at_the_end
from holdfast.adapters.cli.holding import Holding, holding_of
from holdfast.adapters.cli.letters import COLUMNS, StoredLetter, Summary, Wanted
from holdfast.adapters.cli.output import count, span
from holdfast.adapters.cli.replay import Replay, Result, Way
from holdfast.adapters.cli.replayed import KEEP_S, NAMESPACE, Replayed, names_of, topics_in
from holdfast.dedup.redis_admin import RedisAdmin
from holdfast.dedup.redis_store import RedisClaims
from holdfast.errors import SettingError
from holdfast.timing import Deadline, wall_ms

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast.adapters.cli.output import Output
    from holdfast.adapters.cli.replayed import Target
    from holdfast.dedup.claims import Acquired
    from holdfast.records import Partition
    from holdfast.tools.ports import DeadLetterTool

_LIST = """\
  holdfast dead-letters list --topic orders.dlq --bootstrap localhost:9092 --error-type PaymentDeclined --since 2d"""
_REPLAY = """\
  holdfast dead-letters replay --topic orders.dlq --origin orders --bootstrap localhost:9092 --redis @redis.url

The store remembers which letters were replayed into a topic, for all users of that Redis, and no replay sends them
there again. If a replay is killed, the next one may send up to 100 of its letters once more; with a business key the
app skips these copies. A letter goes to the topic that its headers name, if you name it too with --origin (several
times for several topics): whoever may write to the dead letter topic can write any name there. --to names one topic for
all.
"""


def add(commands: shared.Commands) -> None:
    """Both commands."""
    both = commands.add_parser("dead-letters", help="show or send back records that failed for good")
    inner = both.add_subparsers(title="commands", metavar="COMMAND", required=True)
    made = shared.command(inner, "list", "show the letters in a dead letter topic, with their reasons", _LIST)
    _add_choice(made)
    shared.add_brokers(made)
    made.add_argument("--limit", type=at_least_0, default=20, metavar="N", help="letters shown (default: %(default)s)")
    made.add_argument("--values", action="store_true", help="show the records' values too")
    made.add_argument("--tracebacks", action="store_true", help="show the traceback of each letter")
    made.add_argument("--pending", action="store_true", help="only letters that were not replayed yet; needs --redis")
    shared.add_redis(made, "it remembers which letters were replayed", required=False)
    shared.needs(made, "redis")
    made.set_defaults(no_store=False)
    made.set_defaults(run=run_list)
    made = shared.command(inner, "replay", "send letters back to the topics of their records", _REPLAY)
    _add_choice(made)
    shared.add_brokers(made)
    shared.add_store(made, "it remembers which letters were replayed")
    made.add_argument("--limit", type=at_least_0, metavar="N", help="letters sent at most (default: all)")
    made.add_argument("--to", metavar="TOPIC", help="send all letters to this topic, also those of other tools")
    made.add_argument(
        "--by-key",
        action="store_true",
        help="choose the partition by the key (as `partitioner` in --kafka-config says): for an origin that has got "
        "more partitions since. By default a letter goes to the partition that it came from",
    )
    made.add_argument("--dry-run", action="store_true", help="show what would be sent; send and note nothing")
    made.add_argument(
        "--yes", action="store_true", help="do not ask, though the target is compacted, or other groups read it"
    )
    made.set_defaults(run=run_replay, changes=True)


def _add_choice(made: argparse.ArgumentParser) -> None:
    shared.add_app(made, "letters")
    made.add_argument("--topic", required=True, help="the dead letter topic")
    shared.add_partitions(made)
    made.add_argument("--handler", metavar="NAME", help="only letters of this handler")
    made.add_argument(
        "--error-type", metavar="TYPE", help="only letters with this error: shop.errors.Declined, or just Declined"
    )
    made.add_argument(
        "--origin",
        action="append",
        metavar="TOPIC",
        help="only letters of records from this topic; may be given several times",
    )
    made.add_argument(
        "--since", type=since_ms, metavar="WHEN", help="only letters since then: 2026-11-20T10:00:00Z, or 2h, 7d"
    )


def run_list(options: argparse.Namespace, output: Output) -> int:
    """Read the topic once: the first letters that are wanted, and a summary of all of them. JSON is told as it is read:
    there may be more of them than memory has room for."""
    if options.pending and not options.redis:
        raise SettingError("--pending", options.pending, "the store knows what was replayed: give --redis too")
    shared.check_redis(options)
    wanted, summary = _wanted(options), Summary()
    kept: list[StoredLetter] = []
    told = looked = 0
    with shared.dead_letter_tool_of(options) as letters, output.progress(f"reading {options.topic}") as progress:
        firsts, ends = _ends(letters, options)
        known = _known(options, output, letters, list(firsts)) if options.pending else {}
        for records in letters.read(firsts, ends, options.timeout):
            for letter in filter(wanted, map(StoredLetter.of, records)):
                if _is_known(known, letter):
                    continue
                summary.add(letter)
                if told < options.limit:
                    told += 1
                    output.json(letter.as_json(values=options.values))
                    if not output.as_json:
                        kept.append(letter)
            looked += len(records)
            progress.at(looked)
    _tell_letters(options, output, kept)
    _tell_summary(output, summary, told)
    return 0


def run_replay(options: argparse.Namespace, output: Output) -> int:
    """Send what is wanted and was not sent before. The result is told however the run ends."""
    if options.to == options.topic:
        raise SettingError("--to", options.to, "that is where the letters are: name another topic")
    shared.check_store(options)
    way = Way(to=options.to, origins=frozenset(options.origin or ()), by_key=options.by_key)
    result = Result()
    with (
        told_at_the_end(output, lambda why: _tell_result(options, output, result, why)) as interrupt,
        shared.dead_letter_tool_of(options) as letters,
        _notes(options) as store,
    ):
        deadline = Deadline(options.timeout)
        firsts, ends = _ends(letters, options)
        if not agreed(options, output, letters, way.targets, wanted=_wanted(options), between=(firsts, ends)):
            result.stopped = "not agreed to"
            return 1
        names = names_of(letters.position_names(list(firsts), deadline), way.targets)
        holding = holding_of(store, names, output.note)
        with closing(holding), output.progress(f"replaying {options.topic}") as progress:
            Replay(
                letters,
                Replayed(holding, dry=options.dry_run),
                way=way,
                wanted=_wanted(options),
                limit=options.limit,
                interrupt=interrupt,
                progress=progress,
                result=result,
            ).run(firsts, ends, options.timeout)
        if result.stopped == "interrupted":
            raise KeyboardInterrupt
    return 1 if result.refused else 0


@contextmanager
def _notes(options: argparse.Namespace) -> Iterator[RedisClaims | None]:
    """Where is kept what was replayed: one namespace for all, in the Redis of an app. None: `--no-store`."""
    with shared.store_of(options) as app:  # a Redis that no app has used is another one
        if app is None:
            yield None
            return
    url = redis_url(options.redis)
    with closing(RedisClaims.from_url(url, namespace=NAMESPACE, positions_ttl_s=KEEP_S)) as store:
        store.connect()
        yield store


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
) -> Mapping[Target, Acquired]:
    """The letters that were replayed, for a moment in which no replay runs."""
    deadline = Deadline(options.timeout)
    names = letters.position_names(partitions, deadline)
    with _notes(options) as store:
        if store is None:
            return {}
        admin = RedisAdmin.of(store)
        found = {each.name for name in names.values() for each in admin.positions(name)}
        with closing(Holding(store, names_of(names, topics_in(found)), output.note)) as holding:
            return dict(holding.take(deadline))


def _is_known(known: Mapping[Target, Acquired], letter: StoredLetter) -> bool:
    """Whether it was sent back to where it was born; of another tool's letter: anywhere."""
    partition, offset = letter.record.partition, letter.record.offset
    return any(
        offset < found.watermark or offset in found.done
        for target, found in known.items()
        if target.partition == partition and letter.origin_topic in (None, target.topic)
    )


def _tell_letters(options: argparse.Namespace, output: Output, letters: Sequence[StoredLetter]) -> None:
    now_ms = wall_ms()
    if letters:
        names = (*COLUMNS, "VALUE") if options.values else COLUMNS
        output.table(names, [letter.row(now_ms, values=options.values) for letter in letters])
        output.say()
    if options.tracebacks:
        for letter in letters:
            output.say_all(letter.traceback_lines())
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


def _tell_result(options: argparse.Namespace, output: Output, result: Result, why: str | None) -> None:
    """Args: why: it has ended early."""
    if why == "interrupted":
        result.stopped = why
    output.json(
        {
            "type": "replay",
            "dry_run": options.dry_run,
            "sent": dict(result.sent),
            "already_replayed": result.already,
            "not_wanted": result.not_wanted,
            "refused": dict(result.refused),
            "stopped": result.stopped,
            "may_have_been_sent": result.unknown,
            "error": why,
        }
    )
    for topic, sent in sorted(result.sent.items()):
        output.say(f"{count(sent, 'letter')} {'would be sent' if options.dry_run else 'sent'} to {topic}")
    if not result.sent:
        output.say("nothing to send" if options.dry_run else "nothing sent")
    if result.already:
        output.say(f"{result.already:,} were replayed before")
    if result.not_wanted:
        output.say(f"{result.not_wanted:,} left where they are: the filters do not select them")
    for reason, refused in result.refused.items():
        output.say(f"{refused:,} refused: {reason}")
    if result.unknown:
        output.say(
            f"{result.unknown:,} more without an answer: they may have been sent, and the next run sends them again"
        )
    if result.stopped is not None:
        output.say(f"stopped before the end ({result.stopped}); run it again to send the rest")
