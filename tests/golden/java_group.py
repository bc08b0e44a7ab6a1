"""Kafka's Java clients in Python's words; see JavaGroup.java for what goes over the line."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.golden.oracle import Oracle


class Event(NamedTuple):
    """Something that a member was told: partitions, or (read) a partition and an offset."""

    member: str
    what: str
    numbers: tuple[int, ...]


class JavaGroup:
    """Members in one process. The caller's thread."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle

    def check(self, conf: Mapping[str, object]) -> str:
        """What KafkaConsumer says of the configuration; "ok" = nothing. No broker is asked."""
        return self._ask("check", conf)

    def group(self, bootstrap: str, name: str, conf: Mapping[str, object]) -> str:
        """What the brokers say of the group's configuration; "ok" = they have taken it."""
        return self._ask(f"group\t{bootstrap}\t{name}", conf)

    def start(self, member: str, topic: str, conf: Mapping[str, object]) -> None:
        """A member that reads, and commits what it has read before a partition goes."""
        answer = self._ask(f"start\t{member}\t{topic}", conf)
        assert answer == "ok", answer

    def stop(self, member: str) -> None:
        """Close its consumer; returns when that is done. Fails the test where it had ended by itself."""
        answer = self._oracle.ask(f"stop\t{member}")
        assert answer == "ok", answer

    def events(self) -> list[Event]:
        """What happened since the last call."""
        told = self._oracle.ask("events")
        found = [each.split() for each in told.split(";") if each]
        return [Event(member, what, tuple(map(int, numbers))) for member, what, *numbers in found]

    def _ask(self, question: str, conf: Mapping[str, object]) -> str:
        said = (f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in conf.items())
        return self._oracle.ask("\t".join([question, *said]))
