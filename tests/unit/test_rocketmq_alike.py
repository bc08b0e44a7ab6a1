"""Members without a plan are compared with each other, by the store of claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast import MemoryClaims
from holdfast.adapters.rocketmq import alike as module
from holdfast.adapters.rocketmq.alike import Alike
from holdfast.adapters.rocketmq.remoting import RemotingClient
from holdfast.dedup.groups_beside import groups_beside
from holdfast.dedup.none import NoClaims
from holdfast.errors import ClusterDiffers, StoreUnavailable, SubscriptionDiffers
from holdfast.timing import Deadline
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE, THERE = frozenset({"10.0.0.1:9876"}), frozenset({"10.9.9.9:9876"})


class Group:
    """Whose members end with the test."""

    def __init__(self) -> None:
        self.claims = MemoryClaims()
        self.members: list[Alike] = []

    def member(self, name: str, *, at: frozenset[str] = HERE, open_store: bool = False, **records: str) -> Alike:
        made = Alike(
            groups_beside(self.claims),
            "g",
            client_id=name,
            records=records,
            servers=lambda: at,
            open_store=open_store,
        )
        self.members.append(made)
        return made

    def join(self, name: str, **named: Any) -> Alike:
        member = self.member(name, **named)
        member.join(Deadline(5.0))
        return member


@pytest.fixture
def group() -> Iterator[Group]:
    made = Group()
    yield made
    made.claims.speak_again()
    for each in made.members:
        each.leave(Deadline(5.0))
    made.claims.close()


def test_who_subscribes_otherwise_is_refused_until_the_others_have_left(group: Group) -> None:
    first, same = group.join("a", orders="Paid"), group.join("b", orders="Paid")
    with pytest.raises(SubscriptionDiffers, match=r"'Paid', and this one to 'Paid \|\| Refunded'"):
        group.join("c", orders="Paid || Refunded")
    first.leave(Deadline(5.0))
    with pytest.raises(SubscriptionDiffers, match=r"\(b\)"):
        group.join("c", orders="Paid || Refunded")
    same.leave(Deadline(5.0))
    group.join("c", orders="Paid || Refunded")


def test_records_of_other_names_are_not_compared_and_one_that_differs_is_enough(group: Group) -> None:
    group.join("a", orders="Paid")
    group.join("b", orders="Paid", refunds="*")
    with pytest.raises(SubscriptionDiffers, match="refunds"):
        group.join("c", orders="Paid", refunds="Large")
    group.members[1].leave(Deadline(5.0))
    group.join("d", refunds="Large")  # who was refused is in none of its records


def test_who_is_at_another_cluster_is_refused_with_the_remedy(group: Group) -> None:
    group.join("a", orders="*")
    with pytest.raises(ClusterDiffers, match="namespace="):
        group.join("b", orders="*", at=THERE)


def test_who_comes_back_after_a_while_and_finds_others_is_told(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.05)
    first = group.join("a", orders="Paid")
    [held] = first._members.values()
    held._lease.lose()  # as after a long outage of the store
    until(lambda: held.lost)
    group.claims.groups.state.groups.clear()
    group.join("b", orders="Refunded")
    until(lambda: isinstance(first.refused, SubscriptionDiffers))


def test_without_an_answer_nobody_begins_but_by_choice(group: Group) -> None:
    group.claims.groups.state.speaks = False
    with pytest.raises(StoreUnavailable):
        group.member("a", orders="Paid").join(Deadline(0.2))
    open_one = group.member("b", orders="Paid", open_store=True)
    open_one.join(Deadline(0.2))
    group.claims.groups.state.speaks = True
    until(lambda: [each.client_id for each in group.claims.groups.members("orders")] == ["b"])


def test_without_a_store_nothing_is_compared() -> None:
    for claims in (None, NoClaims()):
        assert groups_beside(claims) is None
    for text in ("Paid", "Refunded"):
        Alike(
            None, "g", client_id="a", records={"orders": text}, servers=frozenset, open_store=False
        ).join(Deadline(0.0))  # fmt: skip


def test_name_servers_are_known_by_their_addresses_whatever_they_are_called() -> None:
    with RemotingClient("localhost:9876;127.0.0.1:9877;no-such-name.invalid:9878") as client:
        found = client.servers()
    assert {"127.0.0.1:9876", "127.0.0.1:9877"} <= found
    assert not any("9878" in each for each in found)
