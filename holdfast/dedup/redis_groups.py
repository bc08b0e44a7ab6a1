"""Groups at Redis: each method of a session is one script, one round trip. See groups.py and scripts/group.lua."""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from holdfast.dedup.coordinator import POSTS_S
from holdfast.dedup.groups import Beat, Differs, Elsewhere, GroupMember, Plan, Refusal, Standing, View
from holdfast.dedup.redis_errors import asking, once_let_in
from holdfast.dedup.redis_layout import decode, encode
from holdfast.dedup.redis_scripts import ScriptCall
from holdfast.errors import StoreRefused, StoreUnavailable
from holdfast.records import Partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.dedup.groups import Member
    from holdfast.dedup.redis_store import Parts

#: The format of the texts in a group. A version of holdfast that writes another one must not be in the same group.
_FORMAT = "1"
_REFUSALS = {encode(refusal.value): refusal for refusal in Refusal}


class RedisGroupSession:
    """One join of one member; or, without a member id, a reader that is not in the group.

    Args:
        parts: of a store that is connected.
        group: its name.
        member_id: never used before; "" = only reads.
        lease_s: after this time without a beat the member is dead.
    """

    def __init__(self, parts: Parts, group: str, member_id: str = "", lease_s: float = 0.0) -> None:
        self.id = member_id
        self._parts = parts
        self._group = group
        self._keys = parts.layout.group(group)
        self._notes, self._posts = parts.layout.notes(group), parts.layout.posts(group)
        self._lease_ms = int(lease_s * 1000)
        self._generation = 0
        self._let_in = parts.let_in
        self._offers: dict[bytes, frozenset[Partition]] = {}
        self._plan = Plan()
        self._me = GroupMember(member_id, "")  #: this member, as of its join

    def join(self, member: Member, queues: frozenset[Partition]) -> Standing | Differs | Elsewhere | Refusal:
        """Join the group.

        Raises:
            StoreRefused: a version of holdfast that writes another format has made this group.
        """
        self._me = GroupMember(self.id, member.client_id, member.weight, member.description, member.servers)
        reply = self._ask(
            "group_join",
            self._lease_ms,
            _FORMAT,
            encode(member.subscription),
            _who(self._me),
            *_offer(queues),
            *map(_server, sorted(member.servers)),
        )
        if isinstance(reply, list) and reply[0] == b"ELSEWHERE":
            far = [_member("", who) for who in reply[1:]]
            return Elsewhere(
                [each.client_id for each in far], frozenset(server for each in far for server in each.servers)
            )
        if isinstance(reply, list) and reply[0] == b"DIFFERS":
            return Differs(decode(reply[1]), [_member("", who).client_id for who in reply[2:]])
        if isinstance(reply, list) and reply[0] == b"FORMAT":
            raise StoreRefused(
                f"group {self._group!r} in the Redis at {self._parts.where} is written in format {reply[1].decode()} "
                f"and this version of holdfast writes {_FORMAT}: stop its members, remove the group, start them again"
            )
        return _standing(reply)

    def beat(self) -> Beat | Refusal:
        """Renew the lease. Removes dead members."""
        reply = self._ask("group_beat", self._lease_ms)
        if isinstance(reply, bytes):
            return _REFUSALS[reply]
        return Beat(_at(reply), None if reply[3] < 0 else reply[3] / 1000)

    def offer(self, queues: frozenset[Partition], servers: frozenset[str]) -> Standing | Refusal:
        """Report the queues, and the servers' addresses, that this member sees."""
        self._me = self._me._replace(servers=servers)
        return _standing(self._ask("group_offer", *_offer(queues), _who(self._me)))

    def standing(self) -> Standing:
        """Read the group's standing, which is cheap."""
        client = self._parts.client
        with once_let_in(before=self._let_in), asking(self._parts.where):
            found: list[Any] = client.hmget(self._keys[1], ["view", "planned", "stamp"])
        view, planned, stamp = found
        return Standing(int(view or 0), int(planned or 0), (stamp or b"").decode())

    def look(self) -> View:
        """Read the whole state of the group. Plan and offers that this object has already are not sent again."""
        known = dict(self._offers)
        reply = self._ask("group_look", self._plan.stamp, *known)
        at, plan_text, age_ms, subscription, members, new = reply
        for i in range(0, len(new), 2):
            known[new[i]] = frozenset(_each(json.loads(new[i + 1] or b"{}")))
        standing = _at(at)
        plan = self._plan
        if plan_text is not None:
            plan = Plan(standing.stamp, _owners(plan_text))
        elif plan.stamp != standing.stamp:  # the group has no plan
            plan = Plan(standing.stamp)
        found: dict[str, GroupMember] = {}
        offers: dict[str, frozenset[Partition]] = {}
        left_s: dict[str, float] = {}
        used = set()
        for i in range(0, len(members), 3):
            member_id = decode(members[i])
            digest, _, who = members[i + 2].partition(b"\n")
            used.add(digest)
            found[member_id] = _member(member_id, who)
            offers[member_id] = known.get(digest, frozenset())
            left_s[member_id] = members[i + 1] / 1000
        self._plan = plan
        self._offers = {digest: queues for digest, queues in known.items() if digest in used}
        age_s = math.inf if age_ms < 0 else age_ms / 1000
        return View(standing, plan, age_s, decode(subscription), found, offers, left_s)

    def publish(self, view: View, plan: Plan) -> Standing | Refusal:
        """Publish the plan for this view."""
        new = () if plan.stamp == view.standing.stamp else (plan.stamp, _plan_text(plan.owners))
        return _standing(self._ask("group_publish", view.standing.view, view.standing.stamp, *new))

    def leave(self, view: View | None = None, plan: Plan | None = None) -> Standing | Refusal:
        """Leave the group."""
        if view is None or plan is None:
            return _standing(self._ask("group_leave"))
        args = (view.standing.view, view.standing.stamp, plan.stamp, _plan_text(plan.owners))
        return _standing(self._ask("group_leave", *args))

    def restore(self, view: View) -> Standing | Refusal:
        """Put back what the store has lost of this view."""
        offers = {member_id: _offer(view.offers[member_id]) for member_id in view.members}
        args: list[Any] = [self._lease_ms, _FORMAT, encode(view.subscription), view.plan.stamp]
        args += [_plan_text(view.plan.owners), len(view.members)]
        for member_id, member in view.members.items():
            args += [encode(member_id), offers[member_id][0] + b"\n" + _who(member)]
        for digest, text in dict(offers.values()).items():
            args += [digest, text]
        return _standing(self._ask("group_restore", *args))

    def remove(self) -> bool:
        """Forget the group, if no member of it lives."""
        removed = bool(self._ask("group_remove"))
        if removed:
            self._piped([("UNLINK", self._notes, self._posts)])
        return removed

    def note(self, texts: Mapping[str, str | None]) -> None:
        """Keep these texts beside the group. Args: texts: name -> text; None = remove that one."""
        pairs = [encode(part) for name, text in texts.items() if text is not None for part in (name, text)]
        removed = [encode(name) for name, text in texts.items() if text is None]
        commands: list[tuple[bytes | str | int, ...]] = []
        if removed:
            commands.append(("HDEL", self._notes, *removed))
        if pairs:
            commands += [("HSET", self._notes, *pairs), ("PEXPIRE", self._notes, self._parts.times.position)]
        if commands:
            self._piped(commands)

    def noted(self, names: Sequence[str]) -> list[str | None]:
        """The note kept under each of these names."""
        if not names:
            return []
        [found] = self._piped([("HMGET", self._notes, *map(encode, names))])
        return [None if text is None else decode(text) for text in found]

    def post(self, name: str, text: str | None) -> None:
        """Put this text under that name; None = remove it."""
        if text is None:
            self._piped([("HDEL", self._posts, encode(name))])
        else:
            self._piped(
                [("HSET", self._posts, encode(name), encode(text)), ("PEXPIRE", self._posts, int(POSTS_S * 1000))]
            )

    def posts(self) -> dict[str, str]:
        """All texts, by their names."""
        [found] = self._piped([("HGETALL", self._posts)])
        return {decode(name): decode(text) for name, text in found.items()}

    def raise_generation(self) -> None:
        """After a call without an answer: calls sent until now are refused from the next call on."""
        self._generation += 1

    def _piped(self, commands: Sequence[tuple[bytes | str | int, ...]]) -> list[Any]:
        # Only members call this, and the store has accepted their credentials before.
        client = self._parts.client
        with once_let_in(before=True), asking(self._parts.where):
            pipe = client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command)  # type: ignore[no-untyped-call]
            return list(pipe.execute())

    def _ask(self, name: str, *args: bytes | str | int) -> Any:  # noqa: ANN401 - a script's reply
        times = self._parts.times
        call = ScriptCall(self._keys, [encode(self.id), self._generation, times.position, *args])
        answered = False
        try:
            with once_let_in(before=self._let_in):
                [reply] = self._parts.scripts.run(name, [call])
            answered = self._let_in = True
        finally:
            if not answered:
                self.raise_generation()
        if reply == b"STALE":
            raise StoreUnavailable(f"{name} of member {self.id} was overtaken by its own later call: ask again")
        return reply


def _at(reply: Sequence[Any]) -> Standing:
    return Standing(reply[0], reply[1], reply[2].decode())


def _standing(reply: bytes | Sequence[Any]) -> Standing | Refusal:
    return _REFUSALS[reply] if isinstance(reply, bytes) else _at(reply)


def _who(member: GroupMember) -> bytes:
    """A member's description. The servers come last: group_join.lua looks for them there, each as `_server` writes
    it."""
    servers = [sorted(member.servers)] if member.servers else []
    return json.dumps([member.client_id, member.weight, member.description, *servers]).encode()


def _server(address: str) -> bytes:
    return json.dumps(address).encode()


def _member(member_id: str, who: bytes) -> GroupMember:
    client_id, weight, description, *servers = json.loads(who)
    return GroupMember(member_id, client_id, weight, description, frozenset(servers[0] if servers else ()))


# Queues as topic -> broker -> numbers, so that ten thousand of them are some tens of kilobytes.


def _tree(queues: Iterable[Partition]) -> dict[str, dict[str, list[int]]]:
    tree: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for topic, number, broker in sorted(queues):
        tree[topic][broker].append(number)
    return tree


def _each(tree: Mapping[str, Mapping[str, Sequence[int]]]) -> list[Partition]:
    return [
        Partition(topic, number, broker)
        for topic, brokers in tree.items()
        for broker, numbers in brokers.items()
        for number in numbers
    ]


def _offer(queues: frozenset[Partition]) -> tuple[bytes, bytes]:
    """An offer's digest, and its text."""
    text = json.dumps(_tree(queues), sort_keys=True, separators=(",", ":")).encode()
    return hashlib.blake2b(text, digest_size=8).hexdigest().encode(), text


def _plan_text(owners: Mapping[Partition, str]) -> bytes:
    by_member: dict[str, list[Partition]] = defaultdict(list)
    for queue, member_id in owners.items():
        by_member[member_id].append(queue)
    return json.dumps(
        {member_id: _tree(found) for member_id, found in by_member.items()}, separators=(",", ":")
    ).encode()


def _owners(text: bytes) -> dict[Partition, str]:
    return {queue: member_id for member_id, tree in json.loads(text).items() for queue in _each(tree)}
