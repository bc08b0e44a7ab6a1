"""A lake's compaction by its files, without a Spark: killed and frozen before each of its steps, beside writers,
readers and others of its kind. Each row is read once, whatever happens.
"""

from __future__ import annotations

import fnmatch
import json
import sys
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest

from holdfast.adapters.spark import writers
from holdfast.adapters.spark.writers.compaction import Compacted, Compaction
from holdfast.adapters.spark.writers.counting import Counting, Manifests, Standing, name_of
from holdfast.adapters.spark.writers.marks import Mark
from holdfast.dedup.memory import MemoryClaims
from holdfast.dedup.memory_spark_batches import MemoryBatches
from holdfast.dedup.spark_batches import BatchId, Begun
from tests.spark.frozen import Frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.dedup.spark_batches import Attempt

_LAKE, _MARKS = "/lake", "/lake/_holdfast"
_FILES = ("found", "remove", "remove_if_empty", "touch", "write", "text", "size", "modified_ms")
_HOUR_MS = 3_600_000
_SEEDS = [pytest.param(seed, marks=() if seed < 10 else pytest.mark.full) for seed in range(100)]


class Killed(Exception):
    """The driver is gone."""


class Refused(Exception):
    """By the store."""


class Disk:
    """What a lake asks of a file system; in memory, with a clock of its own."""

    made: ClassVar[list[Disk]] = []

    def __init__(self) -> None:
        self.made.append(self)
        self.there: dict[str, tuple[str, int]] = {}
        self.now_ms = 1_700_000_000_000

    def full(self, path: str) -> str:
        return path

    def found(self, pattern: str) -> list[str]:
        depth = pattern.count("/")
        every = {"/".join(path.split("/")[: depth + 1]) for path in self.there if path.count("/") >= depth}
        return sorted(each for each in every if self._matches(each, pattern))

    def remove(self, path: str) -> None:
        for each in [each for each in self.there if each == path or each.startswith(f"{path}/")]:
            del self.there[each]

    def remove_if_empty(self, path: str) -> None:
        """Folders are what is in them."""

    def touch(self, path: str) -> None:
        self.there.setdefault(path, ("", self.now_ms))

    def write(self, path: str, text: str) -> None:
        self.there[path] = text, self.now_ms

    def text(self, path: str) -> str:
        if path not in self.there:
            raise FileNotFoundError(path)
        return self.there[path][0]

    def size(self, path: str) -> int:
        return sum(len(text) for each, (text, _) in self.there.items() if each.startswith(f"{path}/"))

    def modified_ms(self, path: str) -> int:
        if path not in self.there:
            raise FileNotFoundError(path)
        return self.there[path][1]

    @staticmethod
    def _matches(path: str, pattern: str) -> bool:
        return all(map(fnmatch.fnmatchcase, path.split("/"), pattern.split("/")))


class Lake:
    """Its writers, readers and compactions, as PartitionWriter and `upkeep` do it. A row is its key."""

    def __init__(self, *, small: int = 40) -> None:
        self.disk = Disk()
        self.small = small
        self.written: list[str] = []  # by attempts that have a mark
        self.batch = 0  #: that comes next
        self.lose_the_store()

    def lose_the_store(self) -> None:
        self.store = MemoryClaims(renewals=False)
        self.batches = MemoryBatches(self.store)
        self._born = getattr(self, "_born", 0) + 1_000

    def begin(self, sink: str, query: str, batch: int, *, dead: bool = False) -> Begun:
        """Args: dead: whoever has begun before it has died since."""
        if dead:
            for session in list(self.store.state.sessions):
                self.store.expire(session)
        found = self.batches.begin(BatchId(sink, query, batch), self.store.begin(30.0))
        assert isinstance(found, Begun), found
        # A store that counts anew does so from a later time on.
        attempt, last = (each and replace(each, born=each.born + self._born) for each in found)
        assert attempt is not None
        return Begun(attempt, last)

    def finish(self, attempt: Attempt, born: int) -> None:
        """Args: born: what the test has added, `_born` at the begin."""
        if not self.batches.finish(replace(attempt, born=attempt.born - born)):
            raise Refused

    # Writers

    def attempt(self, batch: int, query: str = "q", number: int = 0) -> Mark:
        return Mark(query, batch, f"a{1000 + batch * 10 + number}-s{batch}x{number}")

    def save(self, mark: Mark, *keys: str) -> None:
        self.disk.write(f"{_LAKE}/{mark.folder}/part-0", json.dumps([[mark.batch, mark.attempt, key] for key in keys]))

    def confirm(self, mark: Mark) -> None:
        if self.disk.found(f"{_LAKE}/{mark.folder}"):
            self.counting().marks.add(mark)

    def put(self, batch: int, *keys: str, query: str = "q", number: int = 0) -> Mark:
        mark = self.attempt(batch, query, number)
        self.save(mark, *keys)
        self.confirm(mark)
        self.written += keys
        self.batch = max(self.batch, batch + 1)
        return mark

    # Readers

    def counting(self) -> Counting:
        files: Any = self.disk
        return Counting(files, _MARKS)

    def rows(self, standing: Standing) -> list[list[Any]]:
        folders = [mark.folder for mark in standing.marks] + [part.folder for part in standing.parts]
        found = []
        for folder in folders:
            files = self.disk.found(f"{_LAKE}/{folder}/*")
            if not files:
                raise FileNotFoundError(folder)  # as Spark does
            for file in files:
                found += json.loads(self.disk.text(file))
        return found

    def read(self) -> list[str]:
        return sorted(key for *_, key in self.rows(self.counting().all()))

    def is_right(self) -> bool:
        found = Counter(self.read())
        return found == Counter(self.written)

    # Compactions

    def copy(self, sources: Standing, to: str) -> None:
        rows = self.rows(sources)
        self.disk.write(f"{to}/part-0", json.dumps(rows[: len(rows) // 2]))  # a task that ends before the others
        self.disk.write(f"{to}/part-1", json.dumps(rows[len(rows) // 2 :]))

    def compact(self, grace_s: float = 0, *, dead: bool = False, finish: Callable[[], None] | None = None) -> Compacted:
        """As `upkeep.compact` and `PartitionWriter.compact`."""
        born = self._born
        begun = self.begin("orders/lake", f"compaction-{Random().random()}", 0, dead=dead)
        files: Any = self.disk
        if begun.last is not None:
            Manifests(files, _MARKS).finish(name_of(begun.last))
        work = Compaction(files, _LAKE, _MARKS, name_of(begun.attempt), grace_s=grace_s, small=self.small)
        if not work.look():
            self.batches.give_up(begun.attempt.session)
            return Compacted(path=_LAKE)
        work.write(self.copy)
        (finish or partial(self.finish, begun.attempt, born))()
        work.mark()
        return work.remove()


class Mortal:
    """Ends a body before its n-th step."""

    def __init__(self, before: int) -> None:
        self.left = before
        self.died = False

    def watch(self, patch: pytest.MonkeyPatch, owner: Any, *names: str) -> None:
        for name in names:
            patch.setattr(owner, name, partial(self._step, getattr(owner, name)))

    def _step(self, function: Callable[..., Any], *args: Any, **given: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            self.died = True
            raise Killed
        return function(*args, **given)


def filled(*, before: int = 0) -> Lake:
    """Two queries, a key that came again beside a finished batch, and compactions before."""
    lake = Lake()
    lake.put(0, "a", "b")
    lake.put(1, "c")
    lake.put(1, "d", number=1)  # beside
    lake.put(2, "e")
    lake.put(0, "x", query="other")
    lake.put(1, "y", query="other")
    lake.put(2, "w", query="other")
    for number in range(before):
        lake.compact()
        lake.put(3 + number, f"late{number}")
    return lake


def settle(lake: Lake, what: object, *, zombie: bool = False) -> None:
    """Whatever was left: the next compactions bring it to the same end."""
    assert lake.is_right(), what
    lake.put(8, "k")
    lake.put(9, "l")
    for _ in range(4):
        lake.compact(dead=True)
        assert lake.is_right(), what
    standing = lake.counting().all()
    assert {(mark.query, mark.batch) for mark in standing.marks} == {("other", 2), ("q", 9)}, what
    writer, nobody = writers.partition(_LAKE), cast("Any", None)
    left = writer.orphans(nobody)
    assert left == [] or zombie, what
    assert writer.sweep(nobody, 10**15) == left, what
    assert writer.orphans(nobody) == [], what
    folders = [each.folder for each in standing.marks] + [each.folder for each in standing.parts]
    counting = sorted(f"{_LAKE}/{folder}" for folder in folders)
    assert lake.disk.found(f"{_LAKE}/hf_query=*/hf_batch=*/hf_attempt=*") == counting, what
    assert lake.is_right(), what
    assert {mark.batch for mark in lake.counting().marks.all()} == {2, 9}, what
    assert len(lake.counting().manifests.names()[0]) <= 2, what
    assert lake.counting().manifests.names()[1] == [], what
    assert lake.compact() == Compacted(path=_LAKE), what


@pytest.fixture(autouse=True)
def one_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """PartitionWriter's files are those of the lake that was made last."""
    monkeypatch.setattr(sys.modules["holdfast.adapters.spark.writers.partition"], "Files", lambda *_: Disk.made[-1])


@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_compaction_that_is_killed_before_any_step_leaves_a_lake_that_reads_the_same(
    monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    for step in count():
        lake = filled(before=before)
        with monkeypatch.context() as patch:
            mortal = Mortal(step)
            mortal.watch(patch, lake.disk, *_FILES)
            mortal.watch(patch, lake, "finish")
            with suppress(Killed):
                lake.compact()
        settle(lake, step)
        if not mortal.died:
            break
    assert step > 20


def frozen(patch: pytest.MonkeyPatch, lake: Lake, body: Callable[[], object], before: int) -> Frozen:
    """It stands before that step. `begin` and `finish` at the store are steps as well."""
    made = Frozen(body, before)
    for name in _FILES:
        patch.setattr(lake.disk, name, made.watched(name, getattr(lake.disk, name)))
    for name in ("begin", "finish"):
        patch.setattr(lake, name, made.watched(name, getattr(lake, name)))
    made.stand()
    return made


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("before", [0, 2])
def test_a_compaction_that_is_frozen_before_any_step_and_goes_on_after_its_successors_does_no_harm(
    monkeypatch: pytest.MonkeyPatch, before: int, lost: bool
) -> None:
    """Args: lost: the store is emptied meanwhile."""
    for step in count():
        lake = filled(before=before)
        with monkeypatch.context() as patch:
            zombie = frozen(patch, lake, lake.compact, step)
            if lost:
                lake.lose_the_store()
            lake.put(3 + before, "m")
            lake.put(4 + before, "n")
            for _ in range(3):
                lake.compact(dead=True)
                assert lake.is_right(), zombie.steps
            zombie.go_on()
        assert isinstance(zombie.error, Refused | FileNotFoundError | None), (zombie.error, zombie.steps)
        settle(lake, zombie.steps, zombie=True)
        if step == len(zombie.steps):
            break
    assert step > 20


@pytest.mark.parametrize("again", [1, 3])
def test_a_driver_that_is_frozen_in_its_batch_and_goes_on_after_compactions_does_no_harm(
    monkeypatch: pytest.MonkeyPatch, again: int
) -> None:
    """It was finished, and its successor has set its mark."""
    for step in count():
        lake = filled()
        done = lake.attempt(3)
        lake.save(done, "z")
        with monkeypatch.context() as patch:
            zombie = frozen(patch, lake, lambda lake=lake, done=done: lake.confirm(done), step)  # type: ignore[misc]
            lake.confirm(done)
            lake.written.append("z")
            lake.put(4, "v")
            for _ in range(again):
                lake.compact()
                assert lake.is_right(), zombie.steps
            zombie.go_on()
        assert zombie.error is None
        assert lake.counting().has(done)
        assert lake.counting().of("q", 3)[1] == {done}
        settle(lake, zombie.steps)
        if step == len(zombie.steps):
            break
    assert step > 1


def test_a_reader_that_has_looked_before_goes_on_until_the_grace_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = filled()
    for step in count():
        lake = filled(before=1)
        found: list[str] = []
        with monkeypatch.context() as patch:
            reader = frozen(patch, lake, lambda lake=lake, found=found: found.extend(lake.read()), step)  # type: ignore[misc]
            for number in range(4):
                lake.disk.now_ms += _HOUR_MS
                lake.put(4 + number, f"m{number}")
                assert lake.compact(24 * 3600).removed == ()
            reader.go_on()
        assert reader.error is None, reader.steps
        assert len(found) == len(set(found))
        assert {"a", "b", "c", "d", "e", "x", "y"} <= set(found) <= set(lake.written)
        if step == len(reader.steps):
            break
    lake.disk.now_ms += 22 * _HOUR_MS
    lake.put(8, "k")
    removed = lake.compact(24 * 3600).removed
    assert removed
    assert all("hf_attempt=a" in each for each in removed[:5])
    assert lake.is_right()


def test_what_was_replaced_stays_for_the_grace_from_then_on_and_is_removed_by_a_later_compaction() -> None:
    lake, day = filled(), 24 * 3600
    lake.small = 1_000_000
    assert lake.compact().removed == ()  # not what it has replaced itself, whatever the grace
    [other, q] = lake.counting().all().parts
    lake.disk.now_ms += 23 * _HOUR_MS
    lake.put(3, "m")
    lake.compact(day)  # q's part is replaced, the other one stays
    assert other in lake.counting().all().parts
    lake.disk.now_ms += 2 * _HOUR_MS
    lake.put(3, "n", query="other")
    removed = lake.compact(day).removed  # 25 h after the first, which has replaced attempts
    assert len(removed) == 5
    assert all("hf_attempt=a" in each for each in removed)
    assert other not in lake.counting().all().parts
    lake.disk.now_ms += 23 * _HOUR_MS
    lake.put(4, "o")
    removed = lake.compact(day).removed  # 25 h after the second, 23 after the third
    assert f"{_LAKE}/{q.folder}" in removed
    assert f"{_LAKE}/{other.folder}" not in removed
    lake.disk.now_ms += 2 * _HOUR_MS
    assert f"{_LAKE}/{other.folder}" in lake.compact(day).removed
    assert lake.is_right()


def test_a_reader_that_is_slower_than_the_grace_fails_and_is_never_short(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = 0
    for step in count():
        lake = filled()
        found: list[str] = []
        with monkeypatch.context() as patch:
            reader = frozen(patch, lake, lambda lake=lake, found=found: found.extend(lake.read()), step)  # type: ignore[misc]
            lake.put(3, "m")
            for _ in range(3):
                lake.compact()
            reader.go_on()
        failed += reader.error is not None
        assert isinstance(reader.error, FileNotFoundError | None), reader.error
        assert reader.error or sorted(found) in (sorted(lake.written), sorted({*lake.written} - {"m"})), reader.steps
        if step == len(reader.steps):
            break
    assert failed


def test_a_compaction_that_redis_has_finished_counts_as_soon_as_the_next_one_begins() -> None:
    lake = filled()
    born = lake._born

    def finish_and_die() -> None:
        current = lake.batches._sinks["orders/lake"].current
        assert current is not None
        lake.finish(replace(current, born=current.born + born), born)
        raise Killed

    with pytest.raises(Killed):
        lake.compact(finish=finish_and_die)
    assert lake.counting().all().parts == ()
    assert lake.is_right()
    lake.compact()
    [q, other] = sorted(lake.counting().all().parts, reverse=True)
    assert (q.first, q.last, other.first, other.last) == (0, 1, 0, 1)
    assert lake.is_right()


def test_small_parts_are_put_together_with_what_came_since_and_large_ones_stay() -> None:
    lake = filled()
    lake.small = 1_000_000
    for batch in range(3, 9):
        lake.put(batch, f"b{batch}")
        lake.compact()
        assert lake.is_right()
        assert len(lake.counting().all().parts) == 2  # one a query
    lake.small = 1
    for batch in range(10, 16, 2):
        lake.put(batch, f"b{batch}")
        lake.put(batch + 1, f"b{batch + 1}")
        lake.compact()
        assert lake.is_right()
    assert [(part.first, part.last) for part in lake.counting().all().parts if part.query == "q"] == [
        (0, 7),
        (8, 10),
        (11, 12),
        (13, 14),
    ]


def test_whether_a_batch_is_finished_is_known_of_old_ones_too_and_costs_few_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = Lake()
    done = [lake.put(batch, f"k{batch}") for batch in range(300)]
    for batch in range(300, 400, 10):
        done += [lake.put(batch + n, f"k{batch + n}") for n in range(10)]
        lake.compact()
    lake.compact()
    counting = lake.counting()
    assert all(counting.has(mark) for mark in done)
    assert [counting.of("q", mark.batch)[:2] for mark in done[:-1]] == [(set(), {mark}) for mark in done[:-1]]
    assert counting.of("q", 399)[:2] == ({done[-1]}, set())
    assert counting.of("q", 400)[:2] == (set(), set())
    assert not counting.has(done[5]._replace(attempt="a1-other"))
    read: list[str] = []
    text = lake.disk.text

    def noted(path: str) -> str:
        read.append(path)
        return text(path)

    monkeypatch.setattr(lake.disk, "text", noted)
    assert len(counting.all().marks) == 1
    assert [path.rpartition(".")[2] for path in read] == ["json"]  # no page, however many there are


@pytest.mark.parametrize("seed", _SEEDS)
def test_whatever_comes_together_each_row_is_read_once(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    random = Random(seed)
    lake = filled()
    batch = 3
    for number in range(60):
        what = random.choice(("put", "put", "put", "compact", "killed", "lost", "late"))
        if what == "put":
            lake.put(batch, f"n{number}")
            batch += random.choice((0, 1, 1))
            batch += lake.counting().of("q", batch)[0] != set()
        elif what == "compact":
            lake.compact(random.choice((0, 1)), dead=True)
        elif what == "killed":
            with monkeypatch.context() as patch:
                mortal = Mortal(random.randrange(60))
                mortal.watch(patch, lake.disk, *_FILES)
                with suppress(Killed):
                    lake.compact(random.choice((0, 1)), dead=True)
        elif what == "lost":
            lake.lose_the_store()
        else:
            lake.confirm(lake.attempt(random.randrange(batch)))
        lake.disk.now_ms += random.choice((0, 400, 2000))
        assert lake.is_right(), number


class Together:
    """Bodies that run side by side, of which always one goes on for a step: drawn by a seed."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._go: dict[threading.Thread, threading.Semaphore] = {}
        self._back = threading.Semaphore(0)
        self._dying: set[threading.Thread] = set()
        self.errors: list[BaseException] = []

    def begin(self, body: Callable[[], object]) -> None:
        """Unless four run already."""
        if len(self._go) >= 4:
            return

        def run() -> None:
            go.acquire()
            try:
                body()
            except (Killed, Refused, FileNotFoundError):
                pass  # the driver is gone; another one has begun; files that a late one needs are gone
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                self.errors.append(error)
            del self._go[thread]
            self._back.release()

        go = threading.Semaphore(0)
        thread = threading.Thread(target=run, daemon=True)
        self._go[thread] = go
        thread.start()

    def watch(self, patch: pytest.MonkeyPatch, owner: Any, *names: str) -> None:
        for name in names:
            patch.setattr(owner, name, partial(self._step, getattr(owner, name)))

    def go_on(self) -> bool:
        """One of them. False: none is left."""
        if not self._go:
            return False
        self._go[self._random.choice(list(self._go))].release()
        assert self._back.acquire(timeout=60)
        assert not self.errors, self.errors
        return True

    def to_the_end(self) -> None:
        while self.go_on():
            pass

    def kill(self) -> None:
        """One of them, before its next step."""
        if self._go:
            self._dying.add(self._random.choice(list(self._go)))

    def _step(self, function: Callable[..., Any], *args: Any, **given: Any) -> Any:
        thread = threading.current_thread()
        if (go := self._go.get(thread)) is not None:
            self._back.release()
            go.acquire()
            if thread in self._dying:
                raise Killed
        return function(*args, **given)


@pytest.mark.parametrize("loss", [False, True])
@pytest.mark.parametrize("seed", _SEEDS)
def test_whatever_runs_side_by_side_each_row_is_read_once(
    monkeypatch: pytest.MonkeyPatch, seed: int, loss: bool
) -> None:
    """Compactions, drivers that set a mark late, and readers. A frozen one is one that is not drawn for long."""
    random = Random(seed)
    lake, together = filled(before=1), Together(random)
    # Without a store that was emptied, what was replaced may go at once. With one, nobody stands still for the grace.
    grace_s = 3600 if loss else 0
    lost_at = random.randrange(400) if loss else None

    def put() -> None:
        lake.put(lake.batch, f"n{lake.batch}")

    def wait() -> None:
        lake.disk.now_ms += 60_000 if loss else 1

    def late() -> None:
        mark = lake.attempt(random.randrange(lake.batch))
        together.begin(lambda: lake.confirm(mark))

    def reader() -> None:
        before = Counter(lake.written)

        def read() -> None:
            found = Counter(lake.read())
            assert not before - found
            assert max(found.values()) == 1

        together.begin(read)

    def compaction() -> None:
        together.begin(lambda: lake.compact(grace_s, dead=True))

    acts = {compaction: 10, put: 5, late: 3, reader: 4, together.kill: 2, wait: 6, together.go_on: 70}
    with monkeypatch.context() as patch:
        together.watch(patch, lake.disk, *_FILES)
        together.watch(patch, lake, "begin", "finish")
        for turn, [act] in enumerate(random.choices(list(acts), list(acts.values())) for _ in range(400)):
            if turn == lost_at:
                lake.lose_the_store()
            act()
            together.go_on()
        together.to_the_end()
    assert lake.is_right()
    lake.disk.now_ms += 2 * _HOUR_MS
    for _ in range(3):
        put()
        lake.compact(dead=True)
        assert lake.is_right()
