"""Groups that are described instead of looked at: by a file, or by a few options. Pure but for reading the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.adapters.cli.arguments import parse_json, text_of
from holdfast.errors import SettingError
from holdfast.plugin.assign.members import Subscriber
from holdfast.records import Partition
from holdfast.tools.advice.forecast import Group, next_names
from holdfast.tools.advice.vote import Vote, vote

if TYPE_CHECKING:
    from collections.abc import Mapping

_OPTION = "--described"
_MOST = 100_000
_KNOWN = {"group", "kind", "assignor", "topics", "members", "offsets_partitions"}
_KNOWN_OF_MEMBERS = {"id", "topics", "assignors", "weight", "rack", "instance_id", "partitions"}
#: offsets.topic.num.partitions of a broker that nobody has told another number.
OFFSETS_PARTITIONS = 50


class Described(NamedTuple):
    """A group, and what else its description says."""

    group: Group
    name: str  #: "" = it has none
    vote: Vote | None
    lists: Mapping[str, tuple[str, ...]]  #: assignors by member, where members have lists
    offsets_partitions: int


def from_file(path: str, assignor: str | None) -> Described:
    """Read a description; `assignor`, where given, goes above the file's. Raises SettingError."""
    return _Reader(path).whole(parse_json(text_of(_OPTION, path), path, _OPTION), assignor)


def from_options(
    topics: Mapping[str, int], members: int, assignor: str | None, *, kind: str = "", name: str = ""
) -> Described:
    """So many members, who all read these topics. Raises SettingError."""
    told = {"group": name, "kind": kind or "kafka", "topics": dict(topics), "members": members, "assignor": assignor}
    return _Reader("the options").whole({key: value for key, value in told.items() if value}, None)


class _Reader:
    """Reads a described group. A mistake is told with its place in the file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def whole(self, told: Any, assignor: str | None) -> Described:  # noqa: ANN401 - JSON
        self._keys(told, "the whole", _KNOWN)
        kind = told.get("kind", "kafka")
        if kind not in ("kafka", "rocketmq"):
            raise self._wrong(f'kind is "kafka" or "rocketmq", and not {kind!r}')
        partitions = self._partitions(told.get("topics"))
        topics = frozenset(each.topic for each in partitions)
        members, lists = self._members(told.get("members", 0), topics)
        owners = self._owners(told.get("members", 0), set(partitions))
        count = self._number(told.get("offsets_partitions", OFFSETS_PARTITIONS), "offsets_partitions")
        found = vote(lists) if lists and len(lists) == len(members) else None
        chosen = assignor or told.get("assignor") or (found.winner if found else None)
        if chosen is None and found is not None:
            raise self._wrong(found.describe())
        chosen = chosen or ("range" if kind == "kafka" else "AVG")
        group = Group(
            kind=kind,
            protocol=("consumer" if chosen == "uniform" else "classic") if kind == "kafka" else _protocol(chosen),
            assignor=str(chosen),
            members=members,
            partitions=partitions,
            owners=owners,
        )
        return Described(group, str(told.get("group", "")), found, lists, count)

    def _partitions(self, told: Any) -> tuple[Partition, ...]:  # noqa: ANN401
        """{"orders": 12} or, of several brokers, {"orders": {"broker-a": 4, "broker-b": 4}}."""
        if not isinstance(told, dict) or not told:
            raise self._wrong('topics is to be like {"orders": 12}')
        found = []
        for topic, count in told.items():
            brokers = count if isinstance(count, dict) else {"": count}
            for broker, number in brokers.items():
                found += [Partition(topic, at, broker) for at in range(self._number(number, f"topics.{topic}"))]
        return tuple(sorted(found))

    def _members(
        self,
        told: Any,  # noqa: ANN401
        topics: frozenset[str],
    ) -> tuple[tuple[Subscriber, ...], dict[str, tuple[str, ...]]]:
        if isinstance(told, int) and not isinstance(told, bool):
            names = next_names(["member-0"], self._number(told, "members", least=0))
            return tuple(Subscriber(id=name, topics=topics) for name in names), {}
        if not isinstance(told, list):
            raise self._wrong('members is a number, or a list like [{"id": "till-1"}]')
        found: dict[str, Subscriber] = {}
        lists = {}
        for each in told:
            self._keys(each, "a member", _KNOWN_OF_MEMBERS)
            name = each.get("id")
            if not isinstance(name, str) or not name or name in found:
                raise self._wrong(f"each member has an id of its own, and {name!r} is none")
            static_id = each.get("instance_id")
            if static_id is not None and not (isinstance(static_id, str) and static_id):
                raise self._wrong(f"instance_id of {name} is to be a name, and not {static_id!r}")
            wanted = self._texts(each.get("topics", sorted(topics)), f"topics of {name}")
            if unknown := set(wanted) - topics:
                raise self._wrong(f"{name} reads {min(unknown)}, which is not among the topics")
            found[name] = Subscriber(
                id=name,
                topics=frozenset(wanted),
                weight=self._number(each.get("weight", 1), f"weight of {name}"),
                rack=str(each.get("rack", "")),
                instance_id=static_id,
            )
            if "assignors" in each:
                lists[name] = tuple(self._texts(each["assignors"], f"assignors of {name}"))
        return tuple(found.values()), lists

    def _owners(self, told: Any, partitions: set[Partition]) -> dict[Partition, str]:  # noqa: ANN401
        """Read the partitions of each member: {"orders": [0, 1]}."""
        owners: dict[Partition, str] = {}
        for each in told if isinstance(told, list) else []:
            has = each.get("partitions", {})
            if not isinstance(has, dict) or not all(isinstance(numbers, list) for numbers in has.values()):
                raise self._wrong(f'partitions of {each["id"]} is to be like {{"orders": [0, 1]}}')
            for topic, numbers in has.items():
                for number in numbers:
                    matching = [one for one in partitions if one[:2] == (topic, number)]
                    if len(matching) != 1 or matching[0] in owners:
                        raise self._wrong(
                            f"{each['id']} cannot have {topic}-{number}: it is another's, or does not exist"
                        )
                    owners[matching[0]] = each["id"]
        return owners

    def _keys(self, told: Any, what: str, known: set[str]) -> None:  # noqa: ANN401
        if not isinstance(told, dict):
            raise self._wrong(f"{what} is to be an object, like {{...}}")
        if unknown := sorted(told.keys() - known):
            raise self._wrong(f"{what} says {unknown[0]!r}, and may say {', '.join(sorted(known))}")

    def _number(self, told: Any, what: str, least: int = 1) -> int:  # noqa: ANN401
        if type(told) is not int or not least <= told <= _MOST:
            raise self._wrong(f"{what} is to be a whole number from {least} to {_MOST}, and not {told!r}")
        return told

    def _texts(self, told: Any, what: str) -> list[str]:  # noqa: ANN401
        if not isinstance(told, list) or not all(isinstance(each, str) and each for each in told):
            raise self._wrong(f'{what} is to be a list of names, like ["orders"]')
        return told

    def _wrong(self, remedy: str) -> SettingError:
        return SettingError(_OPTION, self._path, remedy)


def _protocol(strategy: str) -> Any:  # noqa: ANN401 - one of two literals
    return "holdfast" if strategy == "sticky" else "remoting"
