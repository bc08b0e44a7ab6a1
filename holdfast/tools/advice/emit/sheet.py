"""Sheets: the keys that are emitted, with values and reasons; a sheet for each place that takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from holdfast.plugin.choice import Choice

Value = str | int | float | bool

#: How a place takes its settings: a dictionary of Python's, lines of key=value, or a call for each.
Form = Literal["dict", "properties", "python_calls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """The settings of one place."""

    #: Short, for commands and programs: "confluent-kafka", "java", "kafka-group", "rocketmq-python", ...
    name: str
    #: Where it goes, for people.
    where: str
    form: Form
    choices: tuple[Choice[Value], ...]
    #: Notes that fit into no key.
    notes: tuple[str, ...] = ()

    def __getitem__(self, key: str) -> Value:
        """A key's value. Raises KeyError."""
        return self.settings[key]

    @property
    def settings(self) -> dict[str, Value]:
        """The keys and values alone."""
        return {each.key: each.value for each in self.choices}
