"""`holdfast claims show | forget | stats`."""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.adapters.cli import options as shared
from holdfast.adapters.cli.ending import told_at_the_end
from holdfast.adapters.cli.output import shown, size, span
from holdfast.dedup.claims import ClaimKey
from holdfast.dedup.redis_admin import Forgotten, KeyShown, KeyState, RedisAdmin
from holdfast.errors import SettingError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from holdfast.adapters.cli.output import Output

_SHOW = """\
  holdfast claims show 4711 4712 --redis redis://localhost:6379/0 --scope billing/orders

Write a key as the application knows it. The text "4711" and the number 4711 are two keys: the command looks for both.
"""
_FORGET = """\
  holdfast claims forget --file keys.txt --redis @redis.url --group billing --topic orders

A forgotten key is new again: when its record comes the next time (a resend, a replay, a reset), it is handled.
"""
_STATS = """\
  holdfast claims stats --redis redis://localhost:6379/0 --namespace holdfast"""

_BATCH = 1000
#: More than that are for a file, not for the eye.
_MOST_ROWS = 100
_ABSENT = "absent"
_FOUND_AS = {"s": "text", "n": "number", "x": "bytes"}


def add(commands: shared.Commands) -> None:
    """All three commands."""
    whole = commands.add_parser("claims", help="show, forget or count the business keys in the store")
    inner = whole.add_subparsers(title="commands", metavar="COMMAND", required=True)
    made = shared.command(inner, "show", "show what the store knows about keys", _SHOW)
    _add_keys(made)
    made.set_defaults(run=run_show)
    made = shared.command(inner, "forget", "forget keys, so that their records are handled again", _FORGET)
    _add_keys(made)
    made.add_argument(
        "--force",
        action="store_true",
        help="also forget keys that a live process is working on: their records may then run twice",
    )
    made.add_argument("--dry-run", action="store_true", help="show what would be forgotten, and change nothing")
    made.set_defaults(run=run_forget, changes=True)
    made = shared.command(inner, "stats", "count the keys, positions and sessions of a namespace", _STATS)
    shared.add_redis(made, "that holds the claims")
    made.set_defaults(run=run_stats)


def _add_keys(made: argparse.ArgumentParser) -> None:
    made.add_argument("keys", nargs="*", metavar="KEY")
    made.add_argument("--stdin", action="store_true", help="read keys from standard input, one per line")
    made.add_argument("--file", metavar="FILE", help="read keys from a file, one per line")
    made.add_argument(
        "--stored", action="store_true", help="keys are written as the store keeps them: s:TEXT, n:NUMBER, x:HEX"
    )
    made.add_argument("--scope", help="the scope in which the keys are unique: the handler's scope=, or GROUP/TOPIC")
    made.add_argument("--group", help="with --topic: the scope of a handler without scope=")
    made.add_argument("--topic", help="with --group: the topic of the records")
    shared.add_redis(made, "that holds the claims")


def run_show(options: argparse.Namespace, output: Output) -> int:
    """Tell of each key what is there, under whichever type it is."""
    scope, keys = _scope(options), _keys(options)
    rows: list[list[object]] = []
    nothing: list[KeyShown | None] = [None]
    with shared.claims_of(options) as store, output.progress("looked at", len(keys)) as progress:
        admin = RedisAdmin.of(store)
        for done, batch in _batches(keys):
            for key, found in _found(admin, scope, batch, stored=options.stored):
                for each in found or nothing:
                    output.json(_as_json(key, scope, each))
                    rows.append(_row(key, each))
            progress.at(done)
        lost = bool(rows) and all(row[2] == _ABSENT for row in rows) and admin.knows_scope(scope) is False
    output.table(("KEY", "FOUND AS", "STATE", ""), rows)
    if lost:
        _tell_unknown(scope, output)
    return 0


def _tell_unknown(scope: str, output: Output) -> None:
    output.json({"type": "scope", "scope": scope, "known": False})
    output.say(
        f"the store has no key in the scope {shown(scope)}: check its spelling (a handler's scope=, or GROUP/TOPIC); "
        "`holdfast claims stats` lists all scopes"
    )


def run_forget(options: argparse.Namespace, output: Output) -> int:
    """Forget; what a living session holds is kept unless forced. A Ctrl-C ends between two batches.

    The keys are told when nothing is to be changed any more, however the work has ended.
    """
    scope, keys = _scope(options), _keys(options)
    done = _Forgetting(scope=scope, keys=len(keys), dry_run=options.dry_run)
    with (
        told_at_the_end(output, lambda why: done.tell(output, why)) as interrupt,
        shared.claims_of(options) as store,
        output.progress("looked at", len(keys)) as progress,
    ):
        admin = RedisAdmin.of(store)
        for looked, batch in _batches(keys):
            with interrupt.held():
                done.asked = len(batch)
                done.became += _forget(admin, scope, batch, options)
                done.asked = 0
            progress.at(looked)
            if interrupt.asked:
                raise KeyboardInterrupt
        done.unknown_scope = not done.found and admin.knows_scope(scope) is False
    return 1 if done.counts["held"] else 0


@dataclass(slots=True, kw_only=True)
class _Forgetting:
    """The keys so far, and the fate of each."""

    scope: str
    #: How many there are.
    keys: int
    dry_run: bool
    #: Each key, as what it was stored, and what became of it.
    became: list[tuple[str, str | None, str]] = field(default_factory=list)
    #: Of how many no answer has come: they may be forgotten.
    asked: int = 0
    #: No key is there, and none in the whole scope: it may be misspelled.
    unknown_scope: bool = False

    @property
    def found(self) -> bool:
        """Whether any of the keys was there."""
        return any(stored is not None for _, stored, _ in self.became)

    @property
    def counts(self) -> Counter[str]:
        return Counter(what for _, _, what in self.became)

    def tell(self, output: Output, why: str | None) -> None:
        """Args: why: it has ended early; None = all were looked at."""
        counts, unknown = self.counts, 0 if self.dry_run else self.asked
        if self.unknown_scope:
            _tell_unknown(self.scope, output)
        for key, stored, what in self.became:
            output.json({"type": "key", "key": key, "scope": self.scope, "stored_as": stored, "became": what})
        output.json(
            {
                "type": "forget",
                "dry_run": self.dry_run,
                "keys": self.keys,
                **{what: counts[what] for what in _SAID},
                "may_be_forgotten": unknown,
                "error": why,
            }
        )
        eye = [each for number, each in enumerate(self.became) if number < _MOST_ROWS or each[2] == "held"]
        if not output.as_json and (eye or why is None):
            output.table(
                ("KEY", "FOUND AS", ""), [(shown(key), _type_of(stored), _SAID[what]) for key, stored, what in eye]
            )
        if len(eye) < len(self.became):
            output.say(f"and {len(self.became) - len(eye):,} more")
        would = "would be " if self.dry_run else ""
        output.say(
            f"{counts['forgotten']:,} {would}forgotten, {counts['held']:,} {would}kept, {counts['absent']:,} absent"
        )
        if unknown:
            output.say(f"{unknown:,} more without an answer: all or some of them may be forgotten")
        if why is not None:
            output.note(f"ended after {len({key for key, _, _ in self.became}):,} of {self.keys:,} keys")


_SAID = {
    "forgotten": "forgotten",
    "absent": "absent",
    "held": "kept: a live process is working on it (--force forgets it anyway)",
}


def run_stats(options: argparse.Namespace, output: Output) -> int:
    """Count all keys of the namespace: one walk over the database, in short steps."""
    with shared.claims_of(options) as store, output.progress("keys looked at") as progress:
        found = RedisAdmin.of(store).stats(lambda seen, total: progress.at(seen, of=total))
    output.json(
        {
            "type": "stats",
            "namespace": options.namespace,
            "done": found.done,
            "claimed": found.claimed,
            "results": found.results,
            "positions": found.positions,
            "sessions_live": found.sessions_live,
            "sessions_dead": found.sessions_dead,
            "memory_bytes": found.memory_bytes,
            "by_scope": None if found.by_scope is None else dict(found.by_scope),
        }
    )
    output.table(
        ("", "COUNT"),
        [
            ("keys done", found.done),
            ("keys claimed", found.claimed),
            ("results", found.results),
            ("positions", found.positions),
            ("live sessions", found.sessions_live),
            ("dead sessions", found.sessions_dead),
        ],
    )
    output.say(f"memory, estimated from samples: {size(found.memory_bytes)}")
    if found.by_scope is None:
        output.say("keys are stored as digests, so their scopes are not known")
    elif found.by_scope:
        output.say()
        output.table(("SCOPE", "KEYS"), [(shown(scope), count) for scope, count in found.by_scope.most_common(20)])
    return 0


def candidates(key: str, *, stored: bool) -> list[str]:
    """Every text under which the store may have this key; see `dedup.keys`. Raises SettingError."""
    if stored:
        if not re.match(r"[snx]:.", key):
            raise SettingError("KEY", key, "with --stored a key begins with s:, n: or x:")
        return [key]
    found = [f"s:{key}"]
    if re.fullmatch(r"0|-?[1-9][0-9]*", key):
        found.append(f"n:{key}")
    return found


def _found(admin: RedisAdmin, scope: str, keys: Sequence[str], *, stored: bool) -> Iterator[tuple[str, list[KeyShown]]]:
    """Each key, and what is there of it: nothing, one, or two of different types."""
    asked = [(key, ClaimKey(scope, each)) for key in keys for each in candidates(key, stored=stored)]
    found: dict[str, list[KeyShown]] = {key: [] for key in keys}
    for (key, _), each in zip(asked, admin.show([claim for _, claim in asked]), strict=True):
        if each.state is not KeyState.ABSENT:
            found[key].append(each)
    yield from found.items()


def _forget(
    admin: RedisAdmin, scope: str, keys: Sequence[str], options: argparse.Namespace
) -> Iterator[tuple[str, str | None, str]]:
    """Each key, as what it was stored, and what became of it."""
    found = list(_found(admin, scope, keys, stored=options.stored))
    there = [each for _, all_of_key in found for each in all_of_key]
    if options.dry_run:
        replies = [Forgotten.HELD if each.session_lives and not options.force else Forgotten.DONE for each in there]
    else:
        replies = admin.forget([each.key for each in there], force=options.force)
    became = dict(zip((each.key.key for each in there), replies, strict=True))
    for key, all_of_key in found:
        if not all_of_key:
            yield key, None, "absent"
        for each in all_of_key:
            what = became[each.key.key]
            yield key, each.key.key, {Forgotten.HELD: "held", Forgotten.NOTHING: "absent"}.get(what, "forgotten")


def _scope(options: argparse.Namespace) -> str:
    if options.scope and not options.group and not options.topic:
        return str(options.scope)
    if options.group and options.topic and not options.scope:
        return f"{options.group}/{options.topic}"
    raise SettingError("--scope", options.scope, "give --scope SCOPE, or --group with --topic")


def _keys(options: argparse.Namespace) -> list[str]:
    """All that are given, each once, in their order."""
    found = list(options.keys)
    if options.stdin:
        found += sys.stdin.read().splitlines()
    if options.file:
        try:
            found += Path(options.file).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError("--file", options.file, f"it cannot be read ({error})") from None
    found = list(dict.fromkeys(key for key in found if key))
    if not found:
        raise SettingError("KEY", None, "give at least one: KEY..., --file or --stdin")
    return found


def _batches(keys: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    for first in range(0, len(keys), _BATCH):
        batch = keys[first : first + _BATCH]
        yield first + len(batch), batch


def _type_of(stored: str | None) -> str | None:
    return None if stored is None else _FOUND_AS[stored[0]]


def _row(key: str, found: KeyShown | None) -> list[object]:
    if found is None:
        return [shown(key), "-", _ABSENT, ""]
    told = ""
    if found.left_s is not None:
        told = f"for {span(found.left_s)} more{', with a result' if found.has_result else ''}"
    elif found.token is not None:
        lives = "a live process" if found.session_lives else "a dead process: the next claim takes the key over"
        told = f"by {shown(found.token.partition)}@{found.token.offset}, {lives} (session {found.session})"
    return [shown(key), _type_of(found.key.key), found.state.value, told]


def _as_json(key: str, scope: str, found: KeyShown | None) -> dict[str, object]:
    told: dict[str, object] = {"type": "key", "key": key, "scope": scope}
    if found is None:
        return {**told, "stored_as": None, "state": "absent"}
    told |= {"stored_as": found.key.key, "state": found.state.value}
    if found.token is not None:
        position, offset, epoch = found.token
        told |= {"session": found.session, "session_lives": found.session_lives}
        told |= {"position": position, "offset": offset, "epoch": epoch}
    if found.left_s is not None:
        told |= {"left_s": found.left_s, "has_result": found.has_result}
    return told
