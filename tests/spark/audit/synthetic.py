"""Groups that never were: members, rebalances, crashes, and faults that are planted, with the truth beside the events.

A group is played in steps of 100 ms of its own time; what a step does hangs on the seed alone. A record that was
executed but not told of (its member was killed before the flush, its event was lost) is known here, and only here.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

TOPIC = "orders"
_STEP_MS = 100
_FLUSH_MS = 1000
_PROGRESS_MS = 2000
_AT_MS = 1_700_000_000_000


@dataclass(slots=True)
class Executed:
    """One execution of one record."""

    cause: str | None = None  #: why it was executed again, where it was
    epoch: int = 0
    at_ms: int = 0
    told: bool = False


@dataclass(slots=True)
class Owned:
    """One partition in a member's hands."""

    epoch: int
    position: int
    read: int  #: index into the log of what is read next
    watermark: int
    said: int = 0  #: what it told in its last progress
    in_hand: dict[int, int] = field(default_factory=dict)  #: offset -> when it began
    ended: list[tuple[int, int, str, int, int, Executed | None]] = field(default_factory=list)
    again: list[tuple[str, int]] = field(default_factory=list)  #: why records below an offset are executed again
    drop: int = 0  #: so many records are not to be handled

    def cause(self, offset: int) -> str | None:
        """The first that fits."""
        return next((cause for cause, below in self.again if offset < below), None)


@dataclass(slots=True)
class Truth:
    """Offsets of records by verdict, and executions."""

    lost: set[tuple[str, int]] = field(default_factory=set)
    unknown: set[tuple[str, int]] = field(default_factory=set)
    left: set[tuple[str, int]] = field(default_factory=set)
    pending: set[tuple[str, int]] = field(default_factory=set)
    executed: dict[tuple[str, int], list[Executed]] = field(default_factory=dict)
    keys: Counter[str] = field(default_factory=Counter)  #: executions, as far as told
    killed: int = 0

    def repeated(self) -> dict[tuple[str, int], tuple[int, Counter[str | None]]]:
        """Records that were executed more than once, as far as told: how often in all, and why again."""
        told = {of: [each for each in all_ if each.told] for of, all_ in self.executed.items()}
        return {of: (len(all_), Counter(each.cause for each in all_[1:])) for of, all_ in told.items() if len(all_) > 1}


def moved_to(lines: list[str], end_ms: int) -> list[str]:
    """The same events, the last one at that time."""
    last = max(json.loads(line)["at_ms"] for line in lines)
    return [re.sub(r"\b17\d{11}\b", lambda found: str(int(found[0]) + end_ms - last), line) for line in lines]


class Member:
    """One run."""

    def __init__(self, group: Group, name: str) -> None:
        self.group = group
        self.name = name
        self.run = f"{group.random.getrandbits(64):016x}"
        self.seq = self.dropped = 0
        self.owned: dict[int, Owned] = {}
        self.records: Counter[str] = Counter()
        self.fate = ""  #: "lose" or "drop": what happens to the next event of spans
        self.tell("started", protocol="cooperative", source="KafkaSource", settings={"flush_s": 1.0, "keys": "plain"})

    def tell(self, kind: str, **fields: Any) -> None:
        fate, self.fate = (self.fate, "") if kind == "span" else ("", self.fate)
        for each in fields.pop("executed", ()):
            each.told = not fate
        for each in fields.get("keys", ()):
            self.group.truth.keys[each["key"]] += each["outcome"] == "handled" and not fate
        if fate == "drop":
            self.dropped += 1
            return
        stamp = {"v": 1, "kind": kind, "group": self.group.name, "member": self.name, "run": self.run}
        stamp |= {"seq": self.seq, "at_ms": self.group.now, "dropped": self.dropped}
        self.seq += 1
        if not fate:
            self.group.lines.append(json.dumps(stamp | fields))

    def work(self, number: int, most: int) -> None:
        """Read and handle some records of a partition; some stay in hand until the next step."""
        owned, log, random_ = self.owned[number], self.group.logs[number], self.group.random
        done = list(owned.in_hand)
        while most and owned.read < len(log) and log[owned.read] < self.group.end(number):
            offset = log[owned.read]
            owned.read, most = owned.read + 1, most - 1
            if owned.drop or (number, offset) in self.group.doomed:
                owned.drop = max(owned.drop - 1, 0)
                self.group.truth.lost.add((str(number), offset))
                continue
            owned.in_hand[offset] = self.group.now
            if random_.random() < 0.9:
                done.append(offset)
        random_.shuffle(done)
        for offset in done:
            self.end(number, offset)
        owned.watermark = self._watermark(number)

    def _watermark(self, number: int) -> int:
        owned, log = self.owned[number], self.group.logs[number]
        if owned.in_hand:
            return min(owned.in_hand)
        if owned.read < len(log) and log[owned.read] < self.group.end(number):
            return max(owned.position, log[owned.read - 1] + 1 if owned.read else 0)
        end = max(owned.position, self.group.end(number))
        last = max(owned.position, log[owned.read - 1] + 1 if owned.read else 0)
        if end > max(last, owned.watermark):  # markers at the log's end
            owned.ended.append((max(last, owned.watermark), end, "absent", self.group.now, self.group.now, None))
        return end

    def end(self, number: int, offset: int) -> None:
        owned, truth = self.owned[number], self.group.truth
        began = owned.in_hand.pop(offset)
        outcome = self.group.random.choices(("handled", "skipped_key", "dead_lettered", "failed"), (96, 2, 1, 1))[0]
        before = self.group.before(number, offset)
        first = max(owned.position, before + 1)
        if outcome == "failed":
            owned.ended.append((offset, offset + 1, "failed", began, self.group.now, None))
            outcome = "handled"
        executed = None
        if outcome == "handled":
            executed = Executed(owned.cause(offset), owned.epoch, self.group.now)
            truth.executed.setdefault((str(number), offset), []).append(executed)
        owned.ended.append((first, offset + 1, outcome, began, self.group.now, executed))

    def flush(self) -> None:
        for number in list(self.owned):
            self.flush_one(number, self.owned[number])

    def flush_one(self, number: int, owned: Owned) -> None:
        if not owned.ended:
            return
        spans: list[dict[str, Any]] = []
        keys: list[dict[str, Any]] = []
        for first, next_, outcome, began, ended, _ in sorted(owned.ended, key=lambda each: each[:3]):
            records = int(outcome != "absent")
            if records:
                self.records[outcome] += 1
            if records and outcome != "failed":
                keys.append({"offset": next_ - 1, "key": self.group.key(number, next_ - 1), "outcome": outcome})
            last = next((each for each in reversed(spans) if each["outcome"] == outcome), None)
            if last is not None and last["next"] == first:
                last["next"], last["records"] = next_, last["records"] + records
                last["began_ms"], last["ended_ms"] = min(last["began_ms"], began), max(last["ended_ms"], ended)
                continue
            span = {"first": first, "next": next_, "outcome": outcome, "records": records}
            spans.append(span | {"began_ms": began, "ended_ms": ended})
        executed = [each for *_, each in owned.ended if each is not None]
        self.tell(
            "span", topic=TOPIC, partition=str(number), epoch=owned.epoch, spans=spans, keys=keys, executed=executed
        )
        owned.ended.clear()

    def progress(self) -> None:
        self.flush()
        places = []
        for number, owned in self.owned.items():
            owned.said = owned.watermark
            places.append(self.place(number, in_flight=len(owned.in_hand)))
        self.tell("progress", partitions=places)

    def place(self, number: int, in_flight: int | None = None) -> dict[str, Any]:
        owned = self.owned[number]
        place = {"topic": TOPIC, "partition": str(number), "epoch": owned.epoch, "position": owned.watermark}
        return place | {"end": self.group.end(number), "in_flight": in_flight}

    def drain(self, number: int) -> None:
        for offset in list(self.owned[number].in_hand):
            self.end(number, offset)
        self.owned[number].watermark = self._watermark(number)

    def give(self, number: int, trigger: str = "revoked") -> int:
        """Drained, flushed, told."""
        self.drain(number)
        self.flush_one(number, self.owned[number])
        self.tell("revoked", partitions=[self.place(number, in_flight=0)], trigger=trigger)
        return self.owned.pop(number).watermark

    def take(self, number: int, position: int, *again: tuple[str, int], trigger: str = "assigned") -> None:
        """What was to be executed again still is, by the new owner."""
        group = self.group
        group.again[number] = [*again, *group.again.get(number, [])]
        group.epochs[number] += 1
        read = sum(offset < position for offset in group.logs[number])
        self.owned[number] = Owned(group.epochs[number], position, read, position, again=group.again[number])
        group.owner[number] = self
        self.tell("assigned", partitions=[self.place(number)], trigger=trigger)

    def stop(self) -> None:
        for number in list(self.owned):
            self.give(number, "leave")
        self.tell("stopped", clean=True, records=dict(self.records), in_hand=0, error=None)


class Group:
    """A group on one topic."""

    def __init__(self, name: str, seed: int, partitions: int = 3, records: int = 400) -> None:
        self.name = name
        self.random = random.Random(f"{name}-{seed}")
        self.now = _AT_MS
        self.truth = Truth()
        self.lines: list[str] = []
        self.epochs: Counter[int] = Counter()
        self.owner: dict[int, Member] = {}
        self.members: list[Member] = []
        self.number = 0
        # The log has holes, at its end too: transaction markers.
        self.logs, self.ends = {}, {}
        for partition in range(partitions):
            self.logs[partition] = sorted(self.random.sample(range(int(records * 1.1)), records))
            self.ends[partition] = int(records * 1.1) + self.random.randrange(3)
        self.rate = 3
        self.pace: int | None = None  #: records that a member reads of a partition in a step; None: some
        self.began_ms = self.now
        self.keys: dict[tuple[int, int], str] = {}
        self.again: dict[int, list[tuple[str, int]]] = {}
        self.doomed: set[tuple[int, int]] = set()  #: records that nobody will handle

    def end(self, number: int) -> int:
        """The log's end: it grows."""
        return min(self.ends[number], (self.now - self.began_ms) * self.rate * 11 // 10 // _STEP_MS)

    def before(self, number: int, offset: int) -> int:
        """The record before."""
        log = self.logs[number]
        at = log.index(offset)
        return log[at - 1] if at else -1

    def key(self, number: int, offset: int) -> str:
        return self.keys.get((number, offset), f"key-{number}-{offset}")

    def play(self, ms: int) -> None:
        """Everybody works for so long."""
        for _ in range(ms // _STEP_MS):
            self.now += _STEP_MS
            for member in self.members:
                for number in list(member.owned):
                    member.work(number, self.pace or self.random.randrange(2 * self.rate + 2))
                since = self.now - self.began_ms
                if since % _PROGRESS_MS == 0:
                    member.progress()
                elif since % _FLUSH_MS == 0:
                    member.flush()

    def join(self) -> Member:
        """One more; it gets its share from the others, gracefully."""
        member = Member(self, f"member-{self.number}")
        self.number += 1
        self.members.append(member)
        fair = len(self.logs) // len(self.members)
        for number in self.random.sample(sorted(self.logs), max(fair, 1) if self.owner else len(self.logs)):
            owner = self.owner.get(number)
            if owner is member:
                continue
            position = owner.give(number) if owner else 0
            self.now += self.random.randrange(50)
            member.take(number, position)
        self._tidy()
        return member

    def leave(self) -> None:
        """One stops cleanly; the others take over."""
        if len(self.members) < 2:
            self.join()
        member = self.members.pop(self.random.randrange(len(self.members)))
        positions = {number: owned.watermark for number, owned in member.owned.items()}
        for number in positions:
            member.drain(number)
            positions[number] = member.owned[number].watermark
        member.stop()
        for number, position in positions.items():
            self.now += self.random.randrange(50)
            self.random.choice(self.members).take(number, position)

    def _tidy(self) -> None:
        self.now += _STEP_MS - self.now % _STEP_MS  # flushes and progress come by the clock

    # -- faults --------------------------------------------------------------------------------------------------------

    def lose_in_the_middle(self) -> None:
        """Somebody passes over records."""
        number = self.random.choice(sorted(self.owner))
        self.owner[number].owned[number].drop = self.random.randrange(1, 4)

    def lose_the_end(self) -> None:
        """Nobody handles a partition's last record."""
        number = self.random.choice(sorted(self.owner))
        self.doomed.add((number, self.logs[number][-1]))

    def lose_at_a_hand_over(self) -> None:
        """The next owner begins too far."""
        if len(self.members) < 2:
            self.join()
        number = self.random.choice(sorted(self.owner))
        owner = self.owner[number]
        position = owner.give(number)
        ahead = [offset for offset in self.logs[number] if position <= offset < self.end(number)][:3]
        for offset in ahead:
            self.truth.lost.add((str(number), offset))
        self.now += 20
        heir = self.random.choice([each for each in self.members if each is not owner])
        heir.take(number, ahead[-1] + 1 if ahead else position)
        self._tidy()

    def crash(self, committed: str) -> None:
        """One is killed; what it did since its last flush is told by nobody.

        Args:
            committed: "told": the next one begins at what was told last, and repeats what was done since; "behind": and
                a few records before; "ahead": at all that was done.
        """
        if len(self.members) < 2:
            self.join()
            self.play(2000)
        member = self.random.choice([each for each in self.members if each.owned])
        self.members.remove(member)
        self.truth.killed += 1
        self.now += 20_000
        for number, owned in member.owned.items():
            told = [next_ for first, next_, outcome, *_ in owned.ended if outcome != "failed"]
            untold = {next_ - 1 for first, next_, outcome, *_ in owned.ended if outcome not in ("failed", "absent")}
            position = min([*(first for first, *_ in owned.ended), *owned.in_hand, owned.watermark])
            high = max([owned.watermark, *told, *owned.in_hand]) + 50
            if committed == "behind":
                position = max(position - 5, owned.position)
            if committed == "ahead":
                position = owned.watermark
                self.truth.unknown |= {(str(number), offset) for offset in untold if offset < position}
            self._forget(number, owned.said, position)
            self.random.choice(self.members).take(number, position, ("crash", high))
        self._tidy()

    def _forget(self, number: int, said: int, position: int) -> None:
        """What a killed member has passed over: the next one reads it, or nobody knows, unless it had said so."""
        for where in [each for each in self.truth.lost if each[0] == str(number) and each[1] >= min(said, position)]:
            self.truth.lost.discard(where)
            if where[1] < position:
                self.truth.unknown.add(where)

    def crash_without_a_word(self) -> None:
        self.crash("ahead")

    def crash_and_repeat(self) -> None:
        self.crash("behind")

    def crash_unflushed(self) -> None:
        self.crash("told")

    def zombie(self) -> None:
        """One loses a partition without knowing it, goes on for a while, and tells."""
        if len(self.members) < 2:
            self.join()
        number = self.random.choice(sorted(self.owner))
        owner = self.owner[number]
        heir = self.random.choice([each for each in self.members if each is not owner])
        owner.drain(number)
        owner.flush_one(number, owner.owned[number])
        position = owner.owned[number].watermark
        alike = [offset for offset in self.logs[number] if position <= offset < self.end(number)][:4]
        owned = owner.owned.pop(number)
        heir.take(number, position, ("hand-over", alike[-1] + 1 if alike else -1))
        self.now += 30
        spans = []
        for offset in alike:
            executed = Executed(owned.cause(offset), owned.epoch)
            self.truth.executed.setdefault((str(number), offset), []).append(executed)
            spans.append((max(position, self.before(number, offset) + 1), offset + 1, executed))
        late = Owned(owned.epoch, position, 0, position)
        late.ended = [(first, next_, "handled", self.now, self.now, executed) for first, next_, executed in spans]
        late.watermark = position
        owner.owned[number] = late
        owner.flush_one(number, late)
        owner.tell("revoked", partitions=[owner.place(number, in_flight=0)], trigger="lost")
        del owner.owned[number]
        self._tidy()

    def redelivery(self) -> None:
        """The same owner handles a record that it has handled."""
        number = self.random.choice(sorted(self.owner))
        owned = self.owner[number].owned[number]
        done = [
            offset
            for offset in self.logs[number]
            if (all_ := self.truth.executed.get((str(number), offset))) and all_[-1].epoch == owned.epoch
        ]
        for offset in done[-3:]:
            executed = Executed("redelivery", owned.epoch)
            self.truth.executed[str(number), offset].append(executed)
            first = max(owned.position, self.before(number, offset) + 1)
            owned.ended.append((first, offset + 1, "handled", self.now, self.now, executed))

    def reset(self) -> None:
        """Back: what was done is done again, on purpose."""
        number = self.random.choice(sorted(self.owner))
        owner = self.owner[number]
        position = owner.give(number, "retaken")
        self.now += 10
        owner.take(number, max(position - 20, 0), ("reset", position), trigger="reset")
        self._tidy()

    def reset_beyond(self) -> None:
        """Forward: records are left out, on purpose."""
        number = self.random.choice(sorted(self.owner))
        owner = self.owner[number]
        position = owner.give(number, "retaken")
        ahead = [offset for offset in self.logs[number] if position <= offset < self.end(number)][:4]
        self.truth.left |= {(str(number), offset) for offset in ahead}
        self.now += 10
        owner.take(number, ahead[-1] + 1 if ahead else position, trigger="reset")
        self._tidy()

    def lose_an_event(self, fate: str = "lose") -> None:
        """Spans do not come."""
        member = self.random.choice([each for each in self.members if each.owned])
        number = self.random.choice(sorted(member.owned))
        self.play(300)
        if member.owned.get(number) is None or not member.owned[number].ended:
            return
        owned = member.owned[number]
        offsets = {next_ - 1 for _, next_, outcome, *_ in owned.ended if outcome not in ("failed", "absent")}
        self.truth.unknown |= {(str(number), offset) for offset in offsets}
        member.fate = fate
        member.flush_one(number, owned)

    def drop_an_event(self) -> None:
        self.lose_an_event("drop")

    def send_twice(self) -> None:
        """A producer sends a record again under another offset."""
        number = self.random.choice(sorted(self.owner))
        ahead = [offset for offset in self.logs[number] if offset >= self.end(number)][:20]
        if len(ahead) < 2:
            return
        one, two = self.random.sample(ahead, 2)
        key = f"twice-{number}-{one}-{two}"
        self.keys[number, one] = self.keys[number, two] = key

    # -- the end -------------------------------------------------------------------------------------------------------

    def finish(self, how: str) -> None:
        """`done`: all is consumed, all stop; `left`: they stop before the end; `alive`: the events end in the midst."""
        if how == "done":
            while any(member.owned[number].watermark < self.ends[number] for number, member in self.owner.items()):
                self.play(1000)
        if how == "alive":
            for member in self.members:
                member.progress()
            self._rest(self.truth.pending)
        else:
            for member in self.members:
                for number in member.owned:
                    member.drain(number)
            if how == "left":
                self._rest(self.truth.left)
            for member in self.members:
                member.stop()

    def _rest(self, into: set[tuple[str, int]]) -> None:
        for number, member in self.owner.items():
            owned = member.owned[number]
            rest = [offset for offset in self.logs[number][owned.read :] if offset < self.end(number)]
            into |= {(str(number), offset) for offset in [*rest, *owned.in_hand]}


_FEW = 60
#: Faults that may be planted together; each is a name of a method.
MIXES: dict[str, tuple[str, ...]] = {
    "calm": (),
    "losses": ("lose_in_the_middle", "lose_at_a_hand_over", "lose_the_end"),
    "losses-and-crashes": ("lose_in_the_middle", "crash_without_a_word", "crash_unflushed"),
    "crashes": ("crash_and_repeat", "crash_unflushed", "crash_without_a_word"),
    "repeats": ("zombie", "redelivery", "reset"),
    "skips": ("reset_beyond", "redelivery"),
    "losses-and-repeats": ("lose_in_the_middle", "zombie", "reset", "redelivery"),
    "events": ("lose_an_event",),
    "drops": ("drop_an_event",),
    "producers": ("send_twice",),
}


def played(name: str, seed: int, mix: str, finish: str = "done") -> Group:
    """A group with the faults of a mix, among joins and leaves."""
    group = Group(name, seed)
    for _ in range(2):
        group.join()
    group.play(2000)
    for _ in range(4):
        for step in ("join", "leave", *MIXES[mix]):
            if group.random.random() < 0.6:
                getattr(group, step)()
            group.play(group.random.randrange(5, 20) * _STEP_MS)
    group.finish(finish)
    return group


def stood_still(name: str, still_ms: int = 3000, *, waits: bool = True) -> tuple[Group, int]:
    """Two members change their partitions, and nobody works meanwhile; then they work at three times the pace. With the
    moment at which they stopped. Without `waits`, all records of these partitions were handled before, and the members
    had no others for a while."""
    group = Group(name, 0, partitions=2 if waits else 3, records=2000)
    if not waits:
        for number in (0, 1):
            group.logs[number] = [offset for offset in group.logs[number] if offset < _FEW]
            group.ends[number] = _FEW
    group.pace = group.rate
    one, two = group.join(), group.join()
    group.play(12_000)
    moved = (0, 1)
    given = {number: member.give(number) for member in (one, two) for number in moved if number in member.owned}
    at_ms = group.now
    group.now += still_ms
    for number, position in given.items():
        heir = two if group.owner[number] is one else one
        heir.take(number, position)
    group._tidy()
    group.pace = 3 * group.rate
    group.play(8_000)
    group.finish("left")
    return group, at_ms
