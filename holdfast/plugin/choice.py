"""Choice: a key of a client's configuration, the value that holdfast sets or advises, and why."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from holdfast.plugin.secret_names import shown

Value_co = TypeVar("Value_co", covariant=True)


class Choice(NamedTuple, Generic[Value_co]):
    """A key and why it has its value; `value` None = the key was left out. Secrets are masked in its text."""

    key: str
    value: Value_co
    why: str

    def __str__(self) -> str:
        value = shown(self.key, self.value)
        return f"{self.key}={value}: {self.why}" if self.value is not None else f"{self.key} left out: {self.why}"
