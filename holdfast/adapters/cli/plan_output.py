"""A plan as lines and tables for people, and as values for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.cli.output import count, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.adapters.cli.output import Output
    from holdfast.records import Partition
    from holdfast.tools.advice.forecast import Forecast

#: More than that are for a file, not for the eye.
_MOST_ROWS = 100
_NAMED = 8


class Heading(NamedTuple):
    """The lines about the group before its plan."""

    name: str
    about: Sequence[str]
    facts: Mapping[str, object]
    notes: Sequence[str]


def tell(heading: Heading, made: Forecast, called: Mapping[str, str], about: Sequence[str], output: Output) -> None:
    """All of a plan. `called`: members' names by id; `about`: what else is to be said before it."""
    move = made.movement
    output.json(
        {
            "type": "plan",
            "group": heading.name,
            **heading.facts,
            "assignor": made.assignor,
            "partitions": move.stayed + len(move.moves),
            "stay": move.stayed,
            "move": len(move.moved),
            "begin": len(move.begun),
            "end": len(move.ended),
            "paused": made.paused,
            "spread_before": move.before.spread,
            "spread_after": move.after.spread,
            "even_after": move.after.even,
            "worth": made.worth,
            "notes": [*heading.notes, *about, *made.notes],
        }
    )
    for member in sorted(move.before.sizes.keys() | move.after.sizes.keys(), key=lambda each: called.get(each, each)):
        output.json(
            {
                "type": "member",
                "name": called.get(member, member),
                "before": move.before.sizes.get(member),
                "after": move.after.sizes.get(member),
            }
        )
    for each in move.moves:
        output.json(
            {
                "type": "move",
                **_place(each.partition),
                "from": each.source and called.get(each.source, each.source),
                "to": each.target and called.get(each.target, each.target),
            }
        )
    for partition in made.partitions:
        before, after = made.before.get(partition), made.after.get(partition)
        output.json(
            {
                "type": "owner",
                **_place(partition),
                "before": before and called.get(before, before),
                "after": after and called.get(after, after),
            }
        )
    for line in [*heading.about, *about]:
        output.say(shown(line, 250))
    output.say()
    for line in move.describe(called).split("\n"):
        output.say(line, hang=4)
    if move.moves:
        output.say()
        output.table(
            ("PARTITION", "FROM", "TO"),
            [
                [
                    str(each.partition),
                    *(shown(called.get(who, who)) if who else "-" for who in (each.source, each.target)),
                ]
                for each in move.moves
            ],
        )
    _tell_owners(made, called, output)
    output.say()
    output.say(f"forecast by {made.assignor}: {made.worth}")
    if made.paused and made.paused == len(made.before):
        output.say("meanwhile all partitions stop, whether or not they move")
    elif made.paused:
        output.say(
            f"meanwhile {count(made.paused, 'partition')} stop{'s' * (made.paused == 1)}, and the others continue"
        )
    for note in [*heading.notes, *made.notes]:
        output.say(f"note: {shown(note, 250)}")


def _tell_owners(made: Forecast, called: Mapping[str, str], output: Output) -> None:
    """Tell who has which partitions after the change, and which are nobody's."""
    output.say()
    if made.after:
        rows = [(str(each), shown(called.get(made.after[each], made.after[each]))) for each in sorted(made.after)]
        output.table(("PARTITION", "MEMBER"), rows[:_MOST_ROWS])
        if len(rows) > _MOST_ROWS:
            output.say(f"and {len(rows) - _MOST_ROWS:,} more (--json has all)")
    nobody = [str(each) for each in made.partitions if each not in made.after]
    if nobody:
        told = ", ".join(nobody[:_NAMED]) + (f" and {len(nobody) - _NAMED:,} more" if len(nobody) > _NAMED else "")
        output.say(f"{count(len(nobody), 'partition')} without an owner: {shown(told, 500)}")


def _place(partition: Partition) -> dict[str, object]:
    broker = {"broker": partition.broker} if partition.broker else {}
    return {"topic": partition.topic, "partition": partition.number, **broker}
