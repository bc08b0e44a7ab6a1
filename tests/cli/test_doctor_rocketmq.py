"""`holdfast doctor` on live groups of a real RocketMQ in which the trouble is really made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.rocketmq.remoting import RemotingClient, Subscription
from holdfast.adapters.rocketmq.remoting.membership import Consumer
from holdfast.adapters.rocketmq.tools.groups import RocketMQGroupViews
from holdfast.timing import Deadline
from tests.cli.bench import lines
from tests.golden.oracle import ROCKETMQ_LIB, Oracle
from tests.harness.kafka_brokers import closed_port
from tests.harness.rocketmq_field import Field
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

    from holdfast.tools.advice.group_view import GroupView
    from tests.cli.conftest import Here
    from tests.harness.servers.rocketmq import RocketMQServer

__all__ = ["closed_port"]


def found(ran: subprocess.CompletedProcess[str]) -> dict[str, dict[str, str]]:
    """By rule."""
    return {each["rule"]: each for each in lines(ran) if each["type"] == "finding"}


def asked(field: Field, *more: object) -> tuple[object, ...]:
    where = ("--group", field.group, "--namesrv", field.server.namesrv)
    return ("doctor", *where, "--looks", 1, "--json", *more)


def seen(field: Field, over: Callable[[GroupView], bool]) -> GroupView:
    """Look until the group is like that."""
    look = RocketMQGroupViews(lambda: RemotingClient(field.server.namesrv), field.group)
    views: list[GroupView] = []

    def holds() -> bool:
        views[:] = [look.view(Deadline(PATIENCE_S))]
        return over(views[0])

    try:
        until(holds, views, patience_s=2 * PATIENCE_S)  # Java's members look each 20 s, if a notice is lost
    finally:
        look.close()
    return views[0]


@pytest.fixture(scope="module")
def java() -> Iterator[Oracle]:
    """RocketMQ's own push consumers."""
    with Oracle("RocketMQMembers.java", ROCKETMQ_LIB) as oracle:
        yield oracle


def start(java: Oracle, field: Field, name: str, *subscribed: str) -> None:
    """A member. TOPIC=TAGS each."""
    java.ask("\t".join(("start", f"{name}-{field.group}", field.server.namesrv, field.group, *subscribed)))


@pytest.fixture
def field(rocketmq: RocketMQServer, redis_url: str) -> Iterator[Field]:
    """A topic of three queues."""
    with Field(rocketmq, redis_url, queues=3) as made:
        yield made


def test_a_foreign_member_in_a_coordinated_group_is_found(field: Field, here: Here, redis_url: str) -> None:
    app = field.app()
    field.wait(lambda: len(app.owns) == 3)
    where = asked(field, "--redis", redis_url)
    assert not found(here(*where))
    with RemotingClient(field.server.namesrv, client_id="10.0.0.9@stranger") as stranger:
        subscriptions = (Subscription(topic=field.topic),)
        stranger.route(field.topic, Deadline(PATIENCE_S))
        assert (
            stranger.heartbeat([Consumer(group=field.group, subscriptions=subscriptions)], Deadline(PATIENCE_S)) == {}
        )
        told = found(here(*where, "--timeout", 10, code=1))
        assert told["foreign-members"]["where"] == "10.0.0.9@stranger at 127.0.0.1"
        assert told["foreign-members"]["effect"] == "records repeated"


def test_members_with_differing_subscriptions_are_found(field: Field, here: Here, java: Oracle) -> None:
    for name, tags in (("paid", "Paid"), ("all", "*")):
        start(java, field, name, f"{field.topic}={tags}")
    seen(field, lambda view: len({str(each.expressions) for each in view.members}) == 2)
    told = found(here(*asked(field), code=1))
    assert f"{field.topic} [Paid]: " in told["subscriptions-differ"]["found"]
    assert told["subscriptions-differ"]["severity"] == "error"
    for name in ("paid", "all"):
        assert java.ask(f"stop\t{name}-{field.group}") == "ok"


def test_two_processes_of_one_client_id_are_found(field: Field, here: Here, java: Oracle) -> None:
    """Both read the first queues, and nobody the last."""
    with Oracle("RocketMQMembers.java", ROCKETMQ_LIB) as other:
        for process in (java, other):
            start(process, field, "till", f"{field.topic}=*")
        seen(field, lambda view: [each.connections for each in view.members] == [2] and _sizes(view) == [2])
        told = found(here(*asked(field), code=1))
        assert f"@till-{field.group} at " in told["client-id-doubled"]["where"]
        assert told["read-by-nobody"]["where"] == f"{field.topic}-broker-a-2"
        for process in (java, other):
            assert process.ask(f"stop\ttill-{field.group}") == "ok"


def test_topics_that_pile_up_on_the_first_member_and_idle_ones_are_found(
    field: Field, here: Here, java: Oracle
) -> None:
    """AVG shares each topic out by itself: two topics of three queues over two members are four and two."""
    second = f"{field.topic}-b"
    field.create(second, 3)
    subscribed = (f"{field.topic}=*", f"{second}=*")
    for number in range(2):
        start(java, field, str(number), *subscribed)
    seen(field, lambda view: _sizes(view) == [2, 4])
    told = found(here(*asked(field), code=4))
    assert "has 4 partitions, " in told["spread-uneven"]["found"]
    for number in range(2, 4):
        start(java, field, str(number), *subscribed)
    seen(field, lambda view: _sizes(view) == [0, 2, 2, 2])
    told = found(here(*asked(field), code=4))
    assert "members-idle" not in told  # there would be enough for all
    assert told["spread-uneven"]["found"].endswith(" 0")
    for number in range(4):
        assert java.ask(f"stop\t{number}-{field.group}") == "ok"


def _sizes(view: GroupView) -> list[int]:
    return sorted(
        len([each for each in member.partitions or () if not each.topic.startswith("%")]) for member in view.members
    )


def test_what_cannot_work_is_one_sentence_and_an_exit_code(
    rocketmq: RocketMQServer, here: Here, closed_port: str
) -> None:
    for arguments, code, said in (
        (("--group", "nobody", "--namesrv", rocketmq.namesrv), 1, "has no group 'nobody': no member, and no offset"),
        (("--group", "g", "--namesrv", closed_port, "--timeout", "1"), 3, closed_port),
        (("--group", "g", "--namesrv", closed_port, "--bootstrap", "b"), 2, "give one of the two"),
    ):
        ran = here("doctor", *arguments, code=code)
        assert said in ran.stderr, ran.stderr
        assert ran.stderr.count("\n") == 1, ran.stderr
        assert not ran.stdout
