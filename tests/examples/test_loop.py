"""examples/loop: what changes in a loop that exists, and what that brings."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from tests.examples.bench import ROOT, lines, stop

if TYPE_CHECKING:
    from tests.examples.bench import Shop

_BEFORE, _AFTER = "examples.loop.before", "examples.loop.after"
_LOOP = ROOT / "examples" / "loop"


def changes() -> list[str]:
    before, after = ((_LOOP / name).read_text(encoding="utf-8").splitlines() for name in ("before.py", "after.py"))
    marked = difflib.unified_diff(before, after, n=0, lineterm="")
    return [line for line in marked if line[0] in "+-" and line[:3] not in {"+++", "---"} and line[1:].strip()]


def test_two_imports_and_the_construction_are_all_that_changes() -> None:
    new = 'KafkaConsumer(conf, claims=RedisClaims.from_url(asked.redis), key="order_id", assignment="sticky")'
    assert changes() == [
        "-from confluent_kafka import Consumer",
        "+from holdfast import RedisClaims",
        "+from holdfast.adapters.kafka import KafkaConsumer",
        "-    consumer = Consumer(conf)",
        f"+    consumer = {new}",
    ]


def test_its_readme_shows_that_very_change() -> None:
    readme = (_LOOP / "README.md").read_text(encoding="utf-8")
    shown = readme.split("```diff\n", 1)[1].split("```", 1)[0].splitlines()
    assert [line for line in shown if line[:1] in {"+", "-"}] == changes()


def test_the_new_loop_goes_on_where_the_old_one_has_committed(shop: Shop) -> None:
    shop.send("a", "b", "c")
    assert sorted(shop.run(_BEFORE, "--records", 3)) == ["billed a", "billed b", "billed c"]
    shop.send("d", "e", "d")
    assert sorted(shop.run(_AFTER, "--records", 2)) == ["billed d", "billed e"]
    shop.send("f")
    assert shop.run(_AFTER, "--records", 1) == ["billed f"]


def test_a_loop_that_is_killed_repeats_what_it_had_in_hand_and_not_what_it_had_not_committed(shop: Shop) -> None:
    ids = [f"order-{number}" for number in range(40)]
    first: list[str] = []
    with shop.running(_AFTER) as process:
        for order_id in ids[:20]:  # one after the other: what comes at once may all be in hand, a mark is 5 ms late
            shop.send(order_id)
            first += lines(process, 1)
        process.kill()
        process.wait()
    shop.send(*ids[20:])
    with shop.running(_AFTER) as process:
        then = lines(process, 20)
        shop.send("last")
        while then[-1] != "billed last":
            then += lines(process, 1)
        # What the killed one had in hand waits for its lease, and may come behind all others, or not before the end.
        then += stop(process).splitlines()
    assert {*first, *then} == {f"billed {order_id}" for order_id in [*ids, "last"]}
    assert len(then) == len(set(then))
    # One is in hand; the marks of some before it may have been on their way.
    assert set(first) & set(then) <= set(first[-5:])
