"""Showing and changing the data of a RedisClaims by hand: for tools, beside running members."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from holdfast.dedup.claims import ClaimKey, Token
from holdfast.dedup.offset_set import WIDTH
from holdfast.dedup.redis_errors import asking
from holdfast.dedup.redis_keys import batch
from holdfast.dedup.redis_layout import decode, scoped
from holdfast.dedup.redis_positions import acquired, check_offsets
from holdfast.dedup.redis_scripts import ScriptCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.dedup.claims import Acquired
    from holdfast.dedup.redis_store import Parts, RedisClaims

_BATCH = 500  # keys in one script, positions in one pipeline
_PAGE = 1000  # keys that one SCAN looks at
_NO_SESSION: tuple[bytes, int] = (b"", 0)  # session and call generation of a call without a session


class KeyState(Enum):
    """A store's knowledge of a key."""

    ABSENT = "absent"
    CLAIMED = "claimed"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyShown:
    """One key. Fields that do not apply to its state are None or False."""

    key: ClaimKey
    state: KeyState
    session: str | None = None  #: the one that has claimed it
    session_lives: bool = False
    token: Token | None = None  #: the record that has claimed it
    left_s: float | None = None  #: for how long it stays done
    has_result: bool = False


class Forgotten(Enum):
    """The effect of `forget` on a key."""

    NOTHING = "-"  #: it was absent
    DONE = "D"  #: it was done and is absent now
    CLAIMED = "C"  #: it was claimed and is absent now: the next record that asks gets it
    HELD = "H"  #: a session that lives has claimed it: kept


class Running(NamedTuple):
    """An offset that an owner handed over while it was in hand, and that owner's session."""

    offset: int
    session: str
    lives: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionShown:
    """One partition's position."""

    name: str
    epoch: int
    owner: str | None
    owner_lives: bool
    watermark: int  #: every offset below is done
    done_above: int  #: how many from the watermark on are done
    running: tuple[Running, ...]


@dataclass(slots=True, kw_only=True)
class Stats:
    """The contents of a namespace, counted. SCAN may see a key twice while Redis resizes its table: counts are good,
    not exact."""

    done: int = 0
    claimed: int = 0
    results: int = 0
    positions: int = 0
    sessions_live: int = 0
    sessions_dead: int = 0  #: their fields are removed an hour later, by the next session that begins
    memory_bytes: int = 0  #: from samples of MEMORY USAGE, which knows nothing of Redis' own tables: rather too low
    #: Done and claimed keys of each scope. None: digests hide them.
    by_scope: Counter[str] | None


class RedisAdmin:
    """Made by `of`. One thread. All methods raise StoreUnavailable and StoreRefused as a session does."""

    def __init__(self, parts: Parts) -> None:
        self._client, self._scripts, self._layout, self._times, self._where, _ = parts

    @classmethod
    def of(cls, store: RedisClaims) -> Self:
        """Make one for the namespace of this store. The store's settings have to be those of the members.

        Raises:
            StoreUnavailable: no answer.
            StoreRefused: credentials, or a namespace with another layout.
        """
        return cls(store.parts())

    def show(self, keys: Sequence[ClaimKey]) -> list[KeyShown]:
        """The store's knowledge of these keys, in their order."""
        return [_shown(key, reply) for key, reply in zip(keys, self._of_keys("show", keys), strict=True)]

    def forget(self, keys: Sequence[ClaimKey], *, force: bool = False) -> list[Forgotten]:
        """Make keys absent, with their results: their records are handled again, when they come again.

        Args:
            keys: the keys to forget.
            force: also forget claims of living sessions. The next record that asks gets the key, even while the handler
                of the claim's record still runs: then the work runs twice, and the former handler's finish is fenced.
                If no record asks before that handler ends, the key is done.
        """
        replies = self._of_keys("forget", keys, int(force), durable=True)
        return [Forgotten(chr(reply)) for reply in replies]

    def knows_scope(self, scope: str) -> bool | None:
        """Whether the store has a business key of this scope: walks over the database until one is found. None: it
        is not known, since keys are digests."""
        if self._layout.hash_keys:
            return None
        return any(page for long in ("", "h") for page in self._pages(f"k:{long}{scoped(scope)}"))

    def stats(self, progress: Callable[[int, int], None] | None = None) -> Stats:
        """Count the contents. Walks over the whole database by SCAN, in short steps, so that other clients are served.

        Args:
            progress: called after each step: about how many keys were looked at, of how many, over all namespaces.
        """
        found = Stats(by_scope=None if self._layout.hash_keys else Counter())
        sizes: dict[bytes, _Size] = {}
        done_by, claimed_by = self._attempts()
        total, seen = sum(int(self._ask(server.dbsize)) for server in self._client.masters()), 0
        for page in self._pages(""):
            self._count(found, page, sizes, {b"1"} | done_by, claimed_by)
            seen += _PAGE
            if progress is not None:
                progress(min(seen, total), total)
        found.memory_bytes = sum(size.estimate() for size in sizes.values())
        alive: dict[str, bool] = {}
        for sessions in self._sessions():
            for session, lives in sessions.items():
                alive[session] = alive.get(session, False) or lives
        found.sessions_live = sum(alive.values())
        found.sessions_dead = len(alive) - found.sessions_live
        return found

    def positions(self, prefix: str = "") -> list[PositionShown]:
        """The positions whose names begin with `prefix`, ordered by name."""
        sessions = self._sessions()
        found: dict[str, PositionShown] = {}
        for page in self._pages(f"p:{prefix}"):
            hashes = self._pipeline([("HGETALL", name) for name, _, _ in page])
            for (_, shard, rest), fields in zip(page, hashes, strict=True):
                if fields:  # else it has expired since
                    name = decode(rest.removeprefix(b"p:"))
                    found[name] = _position(name, fields, sessions[shard])
        return [found[name] for name in sorted(found)]

    def known(self, names: Sequence[str]) -> dict[str, Acquired]:
        """The positions of these names, as their next owner would find them. Names without a position are left out.
        Takes nothing over."""
        keys = [self._layout.position(name)[1] for name in names]
        found: dict[str, Acquired] = {}
        for first in range(0, len(keys), _BATCH):
            replies = self._pipeline([("HGETALL", key) for key in keys[first : first + _BATCH]])
            for name, fields in zip(names[first : first + _BATCH], replies, strict=True):
                if fields:
                    found[name] = _acquired(fields)
        return found

    def set_position(self, name: str, offset: int) -> bool:
        """Set a partition's position: all offsets below `offset` are done, none from there on.

        A session that held its records is fenced. The next owner goes on at the higher of this offset and the group's
        committed offset: to go back, set that one too.

        Args:
            name: of the position, as in `positions`.
            offset: the next one to handle.

        Returns:
            False: refused, since a session that lives owns it.

        Raises:
            ValueError: an offset below 0, or from 2^53 on.
        """
        check_offsets((offset,))
        shard, key = self._layout.position(name)
        args: list[bytes | str | int] = [*_NO_SESSION, self._times.position, offset, self._known_up_to(key)]
        call = ScriptCall([self._layout.sessions(shard), key], args)
        [reply] = self._scripts.run("set_position", [call], durable=True)
        return bool(reply == b"OK")

    def _known_up_to(self, key: bytes) -> int:
        """The end of the done offsets in this position. Read here, because the script looks at only some chunks of a
        long position."""
        [fields] = self._pipeline([("HKEYS", key)])
        last = max((int(field[2:]) for field in fields if field[:2] == b"b:"), default=None)
        if last is None:
            return 0
        [chunk] = self._pipeline([("HGET", key, b"b:%d" % last)])
        return last * WIDTH + int.from_bytes(chunk or b"", "little").bit_length()

    def _of_keys(self, script: str, keys: Sequence[ClaimKey], *args: int, durable: bool = False) -> list[Any]:
        """Run a script that replies for each key, in batches. Returns: the replies, in the order of the keys."""
        replies: list[Any] = []
        for first in range(0, len(keys), _BATCH):
            shards, groups = batch(self._layout, self._times, keys[first : first + _BATCH], results=True)
            calls = [
                ScriptCall([self._layout.sessions(shard), *names], [*_NO_SESSION, *given, *args])
                for shard, (names, given) in groups.items()
            ]
            found = self._scripts.run(script, calls, durable=durable)
            following = {shard: iter(reply) for shard, reply in zip(groups, found, strict=True)}
            replies.extend(next(following[shard]) for shard in shards)
        return replies

    def _pages(self, begin: str) -> Iterator[list[_Found]]:
        """Names of this namespace that begin with `begin` after the hash tag, page by page."""
        pattern = self._layout.pattern(begin)
        for server in self._client.masters():
            cursor: Any = 0
            while True:
                cursor, names = self._ask(partial(server.scan, cursor, match=pattern, count=_PAGE))
                split = [(name, self._layout.split(name)) for name in names]
                yield [_Found(name, *place) for name, place in split if place is not None]
                if not cursor:
                    break

    def _attempts(self) -> tuple[set[bytes], set[bytes]]:
        """The ids of batch attempts whose keys are done, and of the others."""
        (seconds, micros), fields = self._pipeline([("TIME",), ("HGETALL", self._layout.attempts)])
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        kinds: dict[bytes, set[bytes]] = {b"F": set(), b"R": set(), b"": set()}
        for attempt, field in fields.items():
            kind, ms = field[:1], field[1:].partition(b":")[0]
            kinds[b"" if kind == b"F" and int(ms) < now_ms else kind if kind in b"FR" else b""].add(attempt)
        return kinds[b"F"], kinds[b"R"]

    def _count(
        self, found: Stats, page: Sequence[_Found], sizes: dict[bytes, _Size], done: set[bytes], claimed: set[bytes]
    ) -> None:
        kinds: dict[bytes, list[_Found]] = {}
        for each in page:
            kinds.setdefault(each.rest.partition(b":")[0], []).append(each)
        found.positions += len(kinds.get(b"p", ()))
        found.results += len(kinds.get(b"r", ()))
        used = self._pipeline([("MEMORY USAGE", names[0].name) for names in kinds.values()])
        for kind, size_bytes in zip(kinds, used, strict=True):
            sizes.setdefault(kind, _Size()).add(len(kinds[kind]), size_bytes)
        plain = kinds.get(b"k", [])
        if plain:
            by_shard: dict[int, list[_Found]] = {}
            for each in plain:
                by_shard.setdefault(each.shard, []).append(each)
            values = self._pipeline([("MGET", *(each.name for each in some)) for some in by_shard.values()])
            for each, value in zip(chain(*by_shard.values()), chain(*values), strict=True):
                found.done += value in done
                # None: it has expired since.
                found.claimed += value is not None and (value in claimed or value.startswith(b"C"))
                if found.by_scope is not None and value is not None:
                    found.by_scope[self._layout.scope_of(each.rest)] += 1
        buckets = [("HVALS", each.name) for each in kinds.get(b"d", ())]
        (seconds, micros), *untils = self._pipeline([("TIME",), *buckets])
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        found.done += sum(each in done or int(each) >= now_ms for bucket in untils for each in bucket)
        found.claimed += sum(each in claimed for bucket in untils for each in bucket)
        found.claimed += sum(self._pipeline([("HLEN", each.name) for each in kinds.get(b"claims", ())]))

    def _sessions(self) -> list[dict[str, bool]]:
        """One dict a shard: session -> whether it lives."""
        asked = [(("TIME",), ("HGETALL", self._layout.sessions(shard))) for shard in range(self._layout.shards)]
        # TIME: each shard by its server's clock.
        replies = self._pipeline([command for pair in asked for command in pair])
        found = []
        for (seconds, micros), fields in zip(replies[::2], replies[1::2], strict=True):
            now_ms = int(seconds) * 1000 + int(micros) // 1000
            found.append({decode(session): int(field.partition(b":")[0]) > now_ms for session, field in fields.items()})
        return found

    def _pipeline(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        with self._client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
            return list(self._ask(pipeline.execute))

    def _ask(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever Redis replies
        with asking(self._where):
            return call()


class _Found(NamedTuple):
    """A name that SCAN found."""

    name: bytes
    shard: int
    rest: bytes  #: what follows the hash tag


class _Size:
    """The memory of one kind of names, from samples."""

    def __init__(self) -> None:
        self._count = 0
        self._samples = 0
        self._bytes = 0

    def add(self, count: int, size_bytes: int | None) -> None:
        """Add `count` names. Args: size_bytes: the memory of one of them; None = it has expired since."""
        self._count += count
        if size_bytes is not None:
            self._samples += 1
            self._bytes += size_bytes

    def estimate(self) -> int:
        return self._bytes * self._count // max(1, self._samples)


def _shown(key: ClaimKey, reply: list[Any]) -> KeyShown:
    if reply[0] == b"D":
        return KeyShown(key=key, state=KeyState.DONE, left_s=reply[1] / 1000, has_result=bool(reply[2]))
    if reply[0] == b"C":
        session, epoch, offset, partition = decode(reply[1].removeprefix(b"C")).split("|", 3)
        return KeyShown(
            key=key,
            state=KeyState.CLAIMED,
            session=session,
            session_lives=bool(reply[2]),
            token=Token(partition, int(offset), int(epoch)),
        )
    return KeyShown(key=key, state=KeyState.ABSENT)


def _acquired(fields: dict[bytes, bytes]) -> Acquired:
    """Read a position's hash as `acquire` does."""
    return acquired([part for pair in fields.items() for part in pair])


def _position(name: str, fields: dict[bytes, bytes], sessions: dict[str, bool]) -> PositionShown:
    known = _acquired(fields)
    owner = fields.get(b"owner")
    running = []
    for entry in decode(fields.get(b"running", b"")).split():
        offset, _, holder = entry.partition("=")
        session = holder.partition(":")[0]
        running.append(Running(int(offset), session, sessions.get(session, False)))
    return PositionShown(
        name=name,
        epoch=known.epoch,
        owner=None if owner is None else decode(owner),
        owner_lives=owner is not None and sessions.get(decode(owner), False),
        watermark=known.watermark,
        done_above=len(known.done),
        running=tuple(sorted(running)),
    )
