"""Plans as a picture: a row for each member, a box for each partition, the plans beside each other. SVG, as text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from holdfast.tools.movement import movement
from holdfast.tools.svg import FAINT, INK, LETTER, box, document, line, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from holdfast.plugin.assign.members import Weighed
    from holdfast.records import Partition
    from holdfast.tools.movement import Load

#: Colours of topics, in order: pale for partitions that stay, strong for those that come. Distinct also without red
#: or green.
_COLOURS = (
    ("#cfe3f5", "#0b5fa5"),
    ("#fbe0bd", "#b35900"),
    ("#cdebd9", "#00734d"),
    ("#f3d3e6", "#99397a"),
    ("#e4e0f6", "#5a48a8"),
    ("#f6efb5", "#7a6a00"),
    ("#d3eef2", "#0c7484"),
    ("#e2e2e2", "#4a4a4a"),
)
_MARGIN, _GAP = 16, 28
_TITLE, _NOTE, _REST, _LEGEND = 26, 42, 28, 24
#: More members than that: those of which least changes are told as a number.
_MOST_ROWS = 40
_MOST_KINDS = 12
_NAME_LETTERS = 26


class _Boxes(NamedTuple):
    width: int
    height: int
    gap: int
    a_line: int
    at_most: int  #: in one cell
    pad: int  #: above and below the boxes of a cell
    numbers: bool


_LARGE = _Boxes(width=26, height=20, gap=4, a_line=8, at_most=32, pad=5, numbers=True)
_SMALL = _Boxes(width=9, height=9, gap=2, a_line=32, at_most=320, pad=9, numbers=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One plan in a picture."""

    title: str
    #: Partition -> member id.
    plan: Mapping[Partition, str]
    #: All members of its group. A member of other panels alone is shown as not there.
    members: Sequence[str]
    #: A line below the title.
    note: str = ""
    #: The plan that it comes from: what its owner did not have there is drawn as coming.
    previous: Mapping[Partition, str] | None = None
    #: The plan that it goes to: what its owner does not have there is drawn as going.
    following: Mapping[Partition, str] | None = None


def before_and_after(
    before: Mapping[Partition, str],
    after: Mapping[Partition, str],
    *,
    had: Iterable[Weighed],
    has: Iterable[Weighed],
    names: Mapping[str, str] | None = None,
    title: str = "",
) -> str:
    """An SVG of one plan beside the next: what goes, what comes, and how even each is.

    Args:
        before: partition -> member id.
        after: likewise.
        had: as for `movement`.
        has: likewise.
        names: what to call members, by id; otherwise by their ids.
        title: above it all.
    """
    move = movement(before, after, had=had, has=has)
    moved = f"{len(move.moved)} of {move.stayed + len(move.moves)} move"
    was, is_ = move.before, move.after
    panels = [
        Panel(title="before", plan=before, members=list(was.sizes), note=evenness(was), following=after),
        Panel(title="after", plan=after, members=list(is_.sizes), note=f"{moved}; {evenness(is_)}", previous=before),
    ]
    return draw(panels, names=names, title=title)


def evenness(load: Load) -> str:
    """A few words below a panel's title."""
    sizes = load.sizes.values()
    if not sizes:
        return "no member"
    numbers = f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
    idle = f", {len(load.idle)} idle" if load.idle else ""
    return f"{numbers} a member, {'even' if load.even else f'{load.spread:.4g} apart'}{idle}"


def draw(panels: Sequence[Panel], *, names: Mapping[str, str] | None = None, title: str = "") -> str:
    """An SVG of plans beside each other, with the same row for a member in each. The same input, the same text."""
    return _Picture(panels, names or {}, title).svg()


@dataclass(slots=True)
class _Cell:
    """A member's partitions in one panel."""

    stays: list[Partition] = field(default_factory=list)
    goes: list[Partition] = field(default_factory=list)
    comes: list[Partition] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.stays) + len(self.goes) + len(self.comes)

    @property
    def changes(self) -> int:
        return len(self.goes) + len(self.comes)


class _Picture:
    def __init__(self, panels: Sequence[Panel], names: Mapping[str, str], title: str) -> None:
        self._panels, self._names, self._title = panels, names, title
        self._cells = [_cells(panel) for panel in panels]
        everyone = sorted(
            {member for cells in self._cells for member in cells}, key=lambda each: (self._name(each), each)
        )
        self._rows = self._chosen(everyone)
        shown = {*self._rows}
        self._others = [member for member in everyone if member not in shown]
        # A topic at each of several brokers is a kind: its queues have the same numbers.
        kinds = sorted({_kind(partition) for panel in panels for partition in panel.plan})
        self._colours = {kind: _COLOURS[i % len(_COLOURS)] for i, kind in enumerate(kinds)}
        largest = max((len(cells[row]) for cells in self._cells for row in self._rows if row in cells), default=0)
        self._boxes = self._fitting(largest)
        #: Left edges of the panels, and the right edge of all.
        labels = [*(self._short(row) for row in self._rows), self._rest_in_words]
        first = max(map(len, labels)) * LETTER + 2 * _MARGIN
        step = self._wide(largest) + _GAP
        self._x = [first + i * step for i in range(len(panels))]
        self._right = max(first + len(panels) * step - _GAP, _MARGIN + len(title) * (LETTER + 2))

    def _name(self, member: str) -> str:
        return self._names.get(member, member)

    def _short(self, member: str) -> str:
        """Names of members differ at their ends as often as at their beginnings."""
        name, half = self._name(member), _NAME_LETTERS // 2
        return name if len(name) <= _NAME_LETTERS else f"{name[: half - 1]}…{name[-half:]}"

    def _chosen(self, everyone: Sequence[str]) -> Sequence[str]:
        if len(everyone) <= _MOST_ROWS:
            return everyone
        changes = {
            member: sum(cells[member].changes if member in cells else 1 for cells in self._cells) for member in everyone
        }
        chosen = {*sorted(everyone, key=lambda member: -changes[member])[: _MOST_ROWS - 1]}
        return [member for member in everyone if member in chosen]

    @property
    def _rest_in_words(self) -> str:
        return f"and {len(self._others)} more" if self._others else ""

    def _fitting(self, largest: int) -> _Boxes:
        if largest > _LARGE.at_most:
            return _SMALL
        digits = max((len(str(each.number)) for panel in self._panels for each in panel.plan), default=0)
        return _LARGE._replace(width=max(_LARGE.width, digits * LETTER + 6))

    def _wide(self, largest: int) -> int:
        """A panel's width: the boxes and the number behind them, or the words above them."""
        words = [word for panel in self._panels for word in (panel.title, panel.note)]
        boxes = min(largest, self._boxes.a_line) * (self._boxes.width + self._boxes.gap) + 5 * LETTER
        return max(boxes, *(len(word) * LETTER for word in words))

    def svg(self) -> str:
        shapes = []
        y = _MARGIN
        if self._title:
            shapes.append(text(_MARGIN, y + 12, self._title, 'font-size="14" font-weight="bold"'))
            y += _TITLE
        for x, panel in zip(self._x, self._panels, strict=True):
            shapes.append(text(x, y + 12, panel.title, 'font-weight="bold"'))
            shapes.append(text(x, y + 30, panel.note, f'fill="{FAINT}"'))
        y += _NOTE
        for row in self._rows:
            height = self._height(row)
            shapes += self._row(row, y, height)
            y += height
        if self._others:
            shapes += self._rest(y)
            y += _REST
        shapes.append(line(_MARGIN, self._right, y))
        legend, y = self._legend(y + 10)
        title = self._title or ", ".join(panel.title for panel in self._panels)
        return document(self._right + _MARGIN, y, title, [*shapes, *legend])

    def _height(self, row: str) -> int:
        boxes = self._boxes
        most = max(min(len(cells[row]), boxes.at_most) if row in cells else 0 for cells in self._cells)
        return max(-(-most // boxes.a_line), 1) * (boxes.height + boxes.gap) - boxes.gap + 2 * boxes.pad

    def _row(self, row: str, y: int, height: int) -> Iterator[str]:
        middle = y + height // 2 + 4
        yield line(_MARGIN, self._right, y)
        yield text(_MARGIN, middle, self._short(row), tip=self._name(row))
        for x, cells in zip(self._x, self._cells, strict=True):
            if row in cells:
                yield from self._cell(cells[row], x, y, middle)
            else:
                yield text(x, middle, "not there", f'fill="{FAINT}" font-style="italic"')

    def _cell(self, cell: _Cell, x: int, y: int, middle: int) -> Iterator[str]:
        boxes = self._boxes
        across, down = boxes.width + boxes.gap, boxes.height + boxes.gap
        # Boxes that do not fit are left out at the end: partitions that stay matter least.
        order = ("stays", "goes", "comes") if len(cell) <= boxes.at_most else ("goes", "comes", "stays")
        ways = [(each, way) for way in order for each in getattr(cell, way)]
        for i, (partition, way) in enumerate(ways[: boxes.at_most]):
            row, column = divmod(i, boxes.a_line)
            yield from self._box(partition, way, x + column * across, y + boxes.pad + row * down)
        behind = x + min(len(ways), boxes.a_line) * across + 4
        yield text(behind if ways else x, middle, str(len(ways)) if ways else "idle", f'fill="{FAINT}"')

    def _box(self, partition: Partition, way: str, x: int, y: int) -> Iterator[str]:
        pale, strong = self._colours[_kind(partition)]
        look = {
            "stays": f'fill="{pale}" stroke="{pale}"',
            "goes": f'fill="#ffffff" stroke="{strong}" stroke-dasharray="3 2"',
            "comes": f'fill="{strong}" stroke="{strong}"',
        }[way]
        yield box(x, y, self._boxes.width, self._boxes.height, look, tip=str(partition))
        if self._boxes.numbers:
            ink = "#ffffff" if way == "comes" else INK
            number = f'text-anchor="middle" pointer-events="none" fill="{ink}"'
            yield text(x + self._boxes.width // 2, y + 14, str(partition.number), number)

    def _rest(self, y: int) -> Iterator[str]:
        yield line(_MARGIN, self._right, y)
        yield text(_MARGIN, y + 18, self._rest_in_words, f'fill="{FAINT}"')
        for x, cells in zip(self._x, self._cells, strict=True):
            there = [cells[member] for member in self._others if member in cells]
            changes = sum(cell.changes for cell in there)
            words = f"{sum(map(len, there))} partitions{f', {changes} come or go' if changes else ''}"
            yield text(x, y + 18, words, f'fill="{FAINT}"')

    def _legend(self, y: int) -> tuple[list[str], int]:
        """Draw the legend's shapes. Returns them, and where the picture ends."""
        several = len({broker for _, broker in self._colours}) > 1
        kinds = list(self._colours.items())
        entries = [
            (f"{topic} at {broker}" if several else topic, f'fill="{pale}" stroke="{pale}"')
            for (topic, broker), (pale, _) in kinds[:_MOST_KINDS]
        ]
        if len(kinds) > _MOST_KINDS:
            entries.append((f"and {len(kinds) - _MOST_KINDS} more", 'fill="none"'))
        if any(panel.following is not None for panel in self._panels):
            entries.append(("goes", f'fill="#ffffff" stroke="{INK}" stroke-dasharray="3 2"'))
        if any(panel.previous is not None for panel in self._panels):
            entries.append(("comes", f'fill="{INK}" stroke="{INK}"'))
        shapes, x = [], _MARGIN
        for words, look in entries:
            wide = 20 + len(words) * LETTER + 12
            if x > _MARGIN and x + wide > self._right:
                x, y = _MARGIN, y + _LEGEND
            shapes += [box(x, y, 14, 12, look), text(x + 20, y + 11, words)]
            x += wide
        return shapes, y + _LEGEND + 4


def _cells(panel: Panel) -> dict[str, _Cell]:
    """Member -> its partitions, by topic, broker and number."""
    cells = {member: _Cell() for member in [*panel.members, *panel.plan.values()]}
    previous, following = panel.previous, panel.following
    for partition in sorted(panel.plan, key=lambda each: (each.topic, each.broker, each.number)):
        owner = panel.plan[partition]
        if previous is not None and previous.get(partition) != owner:
            cells[owner].comes.append(partition)
        elif following is not None and following.get(partition) != owner:
            cells[owner].goes.append(partition)
        else:
            cells[owner].stays.append(partition)
    return cells


def _kind(partition: Partition) -> tuple[str, str]:
    return partition.topic, partition.broker
