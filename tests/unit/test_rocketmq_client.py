"""RemotingClient among several name servers, brokers, masters and slaves, where some are away or know less."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.rocketmq.remoting import (
    Admin,
    BrokerBusy,
    BrokerRefused,
    Consumer,
    Credentials,
    Message,
    Notice,
    PullRequest,
    PullStatus,
    RemotingClient,
    Sender,
    Subscription,
    codes,
)
from holdfast.adapters.rocketmq.remoting.answers import CommitIgnored, NoAnswer
from holdfast.adapters.rocketmq.remoting.frame import Command, encode
from holdfast.errors import (
    NotAuthorised,
    SettingError,
    SourceError,
    SourceFatal,
    SourceUnavailable,
    UnknownTopic,
)
from holdfast.records import Partition
from holdfast.timing import Deadline
from tests.harness.waiting import until
from tests.unit.rocketmq_fake import FakeServer, Peer, route_body

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

LONG_S = 30.0
QUEUE = Partition("orders", 0, "a")
ORDERS = Subscription(topic="orders")
MOVED_ON = {"nextBeginOffset": "7", "minOffset": "0", "maxOffset": "7", "suggestWhichBrokerId": "0"}


@contextmanager
def client_of(*addresses: str, **settings: Any) -> Iterator[RemotingClient]:
    client = RemotingClient(";".join(addresses), **settings)
    client.network._first = 0  # else a random one
    try:
        yield client
    finally:
        client.close(LONG_S)
        assert not [each for each in threading.enumerate() if each.name.startswith("holdfast-rocketmq")]


def name_server(routes: Mapping[str, bytes]) -> FakeServer:
    """Knows these topics; the mapping may change."""

    def handle(command: Command, peer: Peer) -> None:
        body = routes.get(command.fields.get("topic", ""))
        if body is None:
            peer.answer(command, code=codes.TOPIC_NOT_EXIST, remark="No topic route info")
        else:
            peer.answer(command, body=body)

    return FakeServer(handle)


def broker(fields: Mapping[str, str] | None = None, code: int = 0, remark: str | None = None) -> FakeServer:
    """Says the same to everybody."""
    return FakeServer(lambda command, peer: peer.answer(command, fields or {"offset": "5"}, b"", code, remark))


def pulled(client: RemotingClient, **changes: Any) -> Any:
    answers: SimpleQueue[Any] = SimpleQueue()
    client.begin_pull(PullRequest(queue=QUEUE, group="g", offset=7, subscription=ORDERS, **changes), answers.put)
    return answers.get(timeout=LONG_S)


def one_broker(server: FakeServer, **slaves: FakeServer) -> dict[str, bytes]:
    members = {0: server.address} | {int(each[1:]): slave.address for each, slave in slaves.items()}
    return {"orders": route_body({"a": (2, 2)}, {"a": members})}


def deadline() -> Deadline:
    return Deadline(LONG_S)


# -- name servers and routes


def test_a_topic_with_queues_on_several_brokers() -> None:
    routes = {"orders": route_body({"b": (1, 1), "a": (2, 1)}, {"a": {0: "h:1"}, "b": {0: "h:2", 1: "h:3"}})}
    with name_server(routes) as names, client_of(names.address) as client:
        route = client.route("orders", deadline())
        assert route.queues() == [Partition("orders", 0, "a"), Partition("orders", 0, "b"), Partition("orders", 1, "a")]
        assert route.queues(read=False) == [Partition("orders", 0, "a"), Partition("orders", 0, "b")]
        assert client.broker_names() == ["a", "b"]


def test_what_may_not_be_written_or_has_no_master_is_read_alone() -> None:
    routes = {
        "closed": route_body({"a": (1, 1)}, {"a": {0: "h:1"}}, perm=4),
        "headless": route_body({"a": (1, 1)}, {"a": {1: "h:1"}}),
    }
    with name_server(routes) as names, client_of(names.address) as client:
        for topic in routes:
            route = client.route(topic, deadline())
            assert route.queues() == [Partition(topic, 0, "a")]
            assert route.queues(read=False) == []


def test_a_name_server_that_is_away_or_silent_is_passed_over_within_the_deadline() -> None:
    with name_server({"orders": route_body({}, {})}) as names, FakeServer() as silent:
        gone = FakeServer()
        gone.close()
        # Each gets an equal share of what is left: 1.5 s for the silent one, far more for who is to answer.
        with client_of(silent.address, *[gone.address] * 4, names.address) as client:
            assert client.route("orders", Deadline(9.0)).queues() == []
            client.route("orders", deadline(), fresh=True)
            assert len(silent.received) <= 1  # who has answered is asked first


def test_a_topic_is_unknown_only_where_a_name_server_says_so() -> None:
    with name_server({}) as forgetful, name_server({"orders": route_body({}, {})}) as names:
        with client_of(forgetful.address, names.address) as client:
            client.route("orders", deadline())
            with pytest.raises(UnknownTopic):
                client.route("other", deadline())
        gone = FakeServer()
        gone.close()
        with client_of(gone.address) as client, pytest.raises(SourceUnavailable):
            client.route("orders", deadline())
    with (
        broker(code=codes.NO_PERMISSION) as guarded,
        client_of(gone.address, guarded.address) as client,
        pytest.raises(NotAuthorised),
    ):
        client.route("orders", deadline())


def test_a_known_route_never_waits_and_learns_of_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    # However long it takes, refreshes begin where this test says so.
    monkeypatch.setattr("holdfast.adapters.rocketmq.remoting.routes._LEAST_BETWEEN_S", 3600.0)
    routes = {"orders": route_body({"a": (1, 1)}, {"a": {0: "h:1"}})}
    with name_server(routes) as names, client_of(names.address, route_max_age_s=0.0) as client:
        assert client.known_route("orders") is None
        routes_seen = until(lambda: client.known_route("orders"))
        assert routes_seen.queues() == [QUEUE]
        routes["orders"] = route_body({"a": (2, 2)}, {"a": {0: "h:1"}})
        client.routes._began.clear()
        assert until(lambda: (known := client.known_route("orders")) and len(known.queues()) == 2)
        routes.clear()  # a name server that was restarted
        client.routes._began.clear()
        client.known_route("orders")
        with pytest.raises(UnknownTopic):
            client.route("other", deadline())  # answered after the refresh, on the same connection
        known = client.known_route("orders")
        assert known is not None
        assert len(known.queues()) == 2
        assert [each.fields["topic"] for each in names.received] == ["orders"] * 3 + ["other"]


def test_a_connection_that_breaks_brings_the_route_into_doubt() -> None:
    with broker() as first, broker() as second:
        routes = one_broker(first)
        with name_server(routes) as names, client_of(names.address) as client:
            client.max_offset(QUEUE, deadline())
            routes |= one_broker(second)
            client.route("orders", deadline())
            assert len(names.received) == 1  # young enough
            first.close()
            with pytest.raises(SourceUnavailable):
                client.max_offset(QUEUE, deadline())
            client.route("orders", deadline())  # the old one, and a refresh begins
            until(lambda: client.routes.addresses("a")[0] == second.address)
            assert client.max_offset(QUEUE, deadline()) == 5
            assert len(names.received) == 2
            assert len(second.received) == 1
            names.close()
            client.route("orders", deadline())  # nobody to ask


def test_connections_to_brokers_that_are_gone_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.adapters.rocketmq.remoting.network._UNUSED_S", 0.0)
    with broker() as first, broker() as second:
        routes = one_broker(first)
        with name_server(routes) as names, client_of(names.address) as client:
            client.max_offset(QUEUE, deadline())
            routes |= one_broker(second)
            client.route("orders", deadline(), fresh=True)
            assert client.max_offset(QUEUE, deadline()) == 5
            threads = {each.name for each in threading.enumerate()}
            until(lambda: f"holdfast-rocketmq-{first.address}" not in {each.name for each in threading.enumerate()})
            assert f"holdfast-rocketmq-{second.address}" in threads


def test_a_broker_that_no_route_names_any_more_is_still_committed_to_but_hears_no_heartbeat() -> None:
    with broker() as here, broker() as gone:
        routes = {"orders": route_body({}, {"a": {0: here.address}, "b": {0: gone.address}})}
        with name_server(routes) as names, client_of(names.address) as client:
            client.route("orders", deadline())
            routes |= {"orders": route_body({}, {"a": {0: here.address}})}
            client.route("orders", deadline(), fresh=True)
            client.commit_offset(Partition("orders", 0, "b"), "g", 5, deadline())
            client.heartbeat([], deadline())
            assert client.broker_names() == ["a"]
            assert [each.code for each in gone.received] == [codes.Request.UPDATE_CONSUMER_OFFSET]
            assert [each.code for each in here.received] == [codes.Request.HEART_BEAT]


@pytest.mark.parametrize("namesrv", ["", " ; ", "host", "host:1;other", "host:port"])
def test_name_servers_that_are_none_are_refused_where_they_are_written(namesrv: str) -> None:
    with pytest.raises(SettingError):
        RemotingClient(namesrv)


# -- masters and slaves


def test_a_pull_follows_the_brokers_suggestion_and_a_commit_does_not() -> None:
    with broker(MOVED_ON | {"suggestWhichBrokerId": "1"}, 19) as master, broker(MOVED_ON, 19) as slave:
        with name_server(one_broker(master, _1=slave)) as names, client_of(names.address) as client:
            client.route("orders", deadline())
            assert pulled(client, commit=3).address == master.address
            assert pulled(client, commit=3).address == slave.address
            assert pulled(client).address == master.address  # as the slave suggested
            assert [each.fields["sysFlag"] for each in master.received] == ["7", "6"]
            assert [each.fields["sysFlag"] for each in slave.received] == ["6"]  # a slave notes no offset
        with pytest.raises(SourceFatal):
            pulled(client)


def test_after_a_commit_that_a_reset_has_swallowed_the_next_pull_goes_to_the_master_which_tells_of_it() -> None:
    """A slave knows of no reset, and goes on suggesting itself as long as much is left to read."""

    def say(command: Command, peer: Peer) -> None:
        if command.code == codes.Request.UPDATE_CONSUMER_OFFSET:
            peer.answer(command, remark="Offset has been previously reset")
        else:
            peer.answer(command, MOVED_ON | {"suggestWhichBrokerId": "1"}, code=codes.PULL_OFFSET_MOVED)

    asked: SimpleQueue[tuple[Command, Peer]] = SimpleQueue()
    with (
        FakeServer(say) as master,
        FakeServer(lambda command, peer: asked.put((command, peer))) as slave,
        name_server(one_broker(master, _1=slave)) as names,
        client_of(names.address) as client,
    ):
        client.route("orders", deadline())
        assert pulled(client).address == master.address
        answers: SimpleQueue[Any] = SimpleQueue()
        request = PullRequest(queue=QUEUE, group="g", offset=7, subscription=ORDERS)

        def go_on(answer: object) -> None:
            answers.put(answer)
            client.begin_pull(request, answers.put)

        client.begin_pull(request, go_on)
        command, peer = asked.get(timeout=LONG_S)
        client.begin_commit(QUEUE, "g", 5, answers.put)
        assert isinstance(answers.get(timeout=LONG_S), CommitIgnored)
        peer.answer(command, MOVED_ON | {"suggestWhichBrokerId": "1"}, code=codes.PULL_NOT_FOUND)
        assert answers.get(timeout=LONG_S).address == slave.address
        assert answers.get(timeout=LONG_S).address == master.address
        client.begin_pull(request, answers.put)  # once
        command, peer = asked.get(timeout=LONG_S)
        peer.answer(command, MOVED_ON, code=codes.PULL_NOT_FOUND)
        assert answers.get(timeout=LONG_S).address == slave.address


def test_while_there_is_no_master_a_slave_is_read_and_nothing_is_committed() -> None:
    with broker(MOVED_ON, 19) as slave:
        routes = {"orders": route_body({"a": (1, 1)}, {"a": {1: slave.address}})}
        with name_server(routes) as names, client_of(names.address) as client:
            client.route("orders", deadline())
            assert pulled(client).address == slave.address
            with pytest.raises(SourceUnavailable, match="no master"):
                client.commit_offset(QUEUE, "g", 5, deadline())
            with pytest.raises(SourceUnavailable, match="no master"):
                client.begin_commit(QUEUE, "g", 5, lambda _: None)
            assert [each.code for each in slave.received] == [codes.Request.PULL_MESSAGE]


def test_a_master_whose_connection_is_broken_is_passed_over() -> None:
    with (
        broker(MOVED_ON, 19) as master,
        broker(MOVED_ON, 19) as slave,
        name_server(one_broker(master, _1=slave)) as names,
        client_of(names.address) as client,
    ):
        client.route("orders", deadline())
        assert pulled(client).address == master.address
        master.close()
        assert isinstance(pulled(client), SourceUnavailable)
        assert pulled(client).address == slave.address


def test_a_master_that_has_closed_what_was_not_used_is_no_broken_one() -> None:
    with (
        broker(MOVED_ON, 19) as master,
        broker(MOVED_ON, 19) as slave,
        name_server(one_broker(master, _1=slave)) as names,
        client_of(names.address) as client,
    ):
        client.route("orders", deadline())
        assert pulled(client).address == master.address
        [peer] = master.peers
        peer.hang_up()
        until(lambda: client.network._connections[master.address]._channel is None)
        assert pulled(client).address == master.address


def test_a_broker_nobody_has_heard_of_is_unavailable_at_once() -> None:
    with name_server({}) as names, client_of(names.address) as client:
        for begin in (
            lambda: pulled(client),
            lambda: client.begin_commit(QUEUE, "g", 5, lambda _: None),
            lambda: client.begin_max_offset(QUEUE, lambda _: None),
        ):
            with pytest.raises(SourceUnavailable, match="not known"):
                begin()
        with pytest.raises(UnknownTopic):
            client.max_offset(QUEUE, deadline())


# -- answers


def test_an_error_and_no_answer_and_no_offset_are_three_things() -> None:
    said = {"no": (22, "Not found"), "error": (1, "a stack trace"), "offset": (0, None)}

    def handle(command: Command, peer: Peer) -> None:
        group = command.fields["consumerGroup"]
        if group in said:
            code, remark = said[group]
            peer.answer(command, {"offset": "0"} if code == 0 else {}, b"", code, remark)

    with FakeServer(handle) as server, name_server(one_broker(server)) as names, client_of(names.address) as client:
        client.route("orders", deadline())
        assert client.query_offset(QUEUE, "no", deadline()) is None
        assert client.query_offset(QUEUE, "offset", deadline()) == 0
        with pytest.raises(BrokerRefused) as refused:
            client.query_offset(QUEUE, "error", deadline())
        assert (refused.value.code, refused.value.remark) == (1, "a stack trace")
        with pytest.raises(SourceUnavailable):
            client.query_offset(QUEUE, "silence", Deadline(0.05))
        assert all(each.fields["setZeroIfNotFound"] == "false" for each in server.received)


@pytest.mark.parametrize(
    ("code", "error"),
    [(1, BrokerRefused), (2, BrokerBusy), (14, BrokerBusy), (215, BrokerBusy), (1500, BrokerBusy), (16, NotAuthorised),
     (17, UnknownTopic), (26, BrokerRefused), (29, BrokerRefused)],
)  # fmt: skip
def test_a_code_is_its_error_and_words_decide_nothing(code: int, error: type[SourceError]) -> None:
    with (
        broker({}, code, "all is well " * 1000) as server,
        name_server(one_broker(server)) as names,
        client_of(names.address) as client,
    ):
        with pytest.raises(error) as raised:
            client.commit_offset(QUEUE, "g", 5, deadline())
        assert type(raised.value) is error
        assert len(str(raised.value)) < 600
        answers: SimpleQueue[Any] = SimpleQueue()
        client.begin_commit(QUEUE, "g", 5, answers.put)
        assert type(answers.get(timeout=LONG_S)) is error


def test_a_broker_that_cannot_find_what_is_there_and_would_go_on_behind_it_gives_no_answer() -> None:
    """Its index cannot be read there (OFFSET_FOUND_NULL): it says that there is nothing new, and where the next file of
    the index begins, up to 300,000 messages on."""
    with (
        broker(MOVED_ON, codes.PULL_NOT_FOUND) as server,
        name_server(one_broker(server)) as names,
        client_of(names.address) as client,
    ):
        client.route("orders", deadline())
        request = PullRequest(queue=QUEUE, group="g", offset=3, subscription=ORDERS)
        with pytest.raises(SourceUnavailable, match="cannot find messages 3 to 6"):
            client.pull(request, deadline())
        answers: SimpleQueue[Any] = SimpleQueue()
        client.begin_pull(request, answers.put)
        assert isinstance(answers.get(timeout=LONG_S), SourceUnavailable)


@pytest.mark.parametrize(("code", "status"), [(19, "NONE_NEW"), (20, "NONE_MATCHED"), (21, "MOVED"), (0, "FOUND")])
def test_what_a_pull_brought(code: int, status: str) -> None:
    with (
        broker(MOVED_ON, code) as server,
        name_server(one_broker(server)) as names,
        client_of(names.address) as client,
    ):
        client.route("orders", deadline())
        answer = pulled(client)
        assert answer.status is PullStatus[status]
        assert (answer.next_offset, answer.max_offset, answer.messages()) == (7, 7, [])


@pytest.mark.parametrize(
    ("second", "body", "expected"),
    [
        (codes.CONSUMER_NOT_ONLINE, b"", []),
        (codes.NO_PERMISSION, b"", []),
        (
            codes.SUCCESS,
            b'{"connectionSet":[{"clientId":"x","clientAddr":"h:1","language":"JAVA","version":1}]}',
            ["x"],
        ),
        (codes.SYSTEM_ERROR, b"", BrokerRefused),
        (codes.SYSTEM_BUSY, b"", BrokerBusy),
    ],
)
def test_a_failure_is_not_taken_for_a_group_without_members(
    second: int, body: bytes, expected: list[str] | type[SourceError]
) -> None:
    def handle(command: Command, peer: Peer) -> None:
        first = command.code == codes.Request.GET_CONSUMER_LIST_BY_GROUP
        peer.answer(command, {}, body, codes.SYSTEM_ERROR if first else second, "no consumer for this group")

    with FakeServer(handle) as server, name_server(one_broker(server)) as names, client_of(names.address) as client:
        client.route("orders", deadline())
        if isinstance(expected, list):
            assert client.consumer_ids("a", "g", deadline()) == expected
        else:
            with pytest.raises(expected):
                client.consumer_ids("a", "g", deadline())


# -- all brokers at once, notices, credentials


def test_a_heartbeat_reaches_masters_and_slaves_and_tells_of_those_that_fail() -> None:
    with broker() as master, broker() as slave, broker(code=1) as unwell:
        routes = {
            "orders": route_body(
                {"a": (1, 1), "b": (1, 1)},
                {"a": {0: master.address, 1: slave.address}, "b": {0: unwell.address}},
            )
        }
        with name_server(routes) as names, client_of(names.address, client_id="me") as client:
            client.route("orders", deadline())
            consumer = Consumer(
                group="g", subscriptions=(Subscription(topic="orders", expression="a || b", version=3),)
            )
            failed = client.heartbeat([consumer], deadline(), producers=["p"])
            assert list(failed) == [unwell.address]
            assert isinstance(failed[unwell.address], BrokerRefused)
            for server in (master, slave, unwell):
                [beat] = server.received
                body = json.loads(beat.body)
                assert (body["clientID"], body["producerDataSet"]) == ("me", [{"groupName": "p"}])
                [data] = body["consumerDataSet"]
                [subscription] = data["subscriptionDataSet"]
                assert (data["groupName"], data["messageModel"]) == ("g", "CLUSTERING")
                assert (subscription["subString"], subscription["tagsSet"], subscription["codeSet"]) == (
                    "a || b",
                    ["a", "b"],
                    [97, 98],
                )
            assert list(client.unregister("g", deadline())) == [unwell.address]
            assert master.received[1].fields == {"clientID": "me", "consumerGroup": "g"}


def test_a_heartbeat_waits_no_longer_than_its_deadline() -> None:
    with FakeServer() as silent, broker() as other:
        routes = {"orders": route_body({}, {"a": {0: silent.address}, "b": {0: other.address}})}
        with name_server(routes) as names, client_of(names.address) as client:
            client.max_offset(Partition("orders", 0, "b"), deadline())
            failed = client.heartbeat([], Deadline(0.1))
            assert isinstance(failed.pop(silent.address), SourceUnavailable)
            # The other one is told in any case; in so short a time its answer may not be here yet.
            until(lambda: codes.Request.HEART_BEAT in [each.code for each in other.received])
            assert all(isinstance(error, NoAnswer) for error in failed.values())


def test_what_a_broker_tells_is_heard() -> None:
    def tell(command: Command, peer: Peer) -> None:
        peer.write(encode(Command(40, 1, 2, None, {"consumerGroup": "g"})))
        peer.answer(command, {"offset": "5"})

    notices: SimpleQueue[Notice] = SimpleQueue()
    with (
        FakeServer(tell) as server,
        name_server(one_broker(server)) as names,
        client_of(names.address, on_notice=notices.put) as client,
    ):
        client.max_offset(QUEUE, deadline())
        assert notices.get(timeout=LONG_S) == Notice(40, {"consumerGroup": "g"}, b"", server.address)


def test_every_request_is_signed() -> None:
    credentials = Credentials(access_key="access", secret_key="secret")  # noqa: S106

    def signed(command: Command) -> bool:
        return credentials.sign(command.fields, command.body) == command.fields

    with (
        broker(MOVED_ON | {"offset": "5", "queueId": "0", "queueOffset": "1"}) as server,
        name_server(one_broker(server)) as names,
        client_of(names.address, credentials=credentials) as client,
    ):
        client.route("orders", deadline())
        calls: list[Callable[[], object]] = [
            lambda: client.query_offset(QUEUE, "g", deadline()),
            lambda: client.commit_offset(QUEUE, "g", 5, deadline()),
            lambda: client.heartbeat([Consumer(group="g", subscriptions=(ORDERS,))], deadline()),
            lambda: client.unregister("g", deadline()),
            lambda: client.lock("a", "g", [QUEUE], deadline()),
            lambda: Sender(client).send(QUEUE, Message("orders", b"body"), deadline()),
            lambda: Sender(client).send_batch(QUEUE, [Message("orders", b"body")], deadline()),
            lambda: Admin(client).reset("g", QUEUE, 5, deadline()),
            lambda: pulled(client),
        ]
        for call in calls:
            call()
        assert len(server.received) == len(calls)
        assert all(signed(each) for each in (*server.received, *names.received))
        shown = repr(client) + repr(vars(client)) + repr(vars(client.network))
        assert "secret" not in shown
        assert "access" not in shown


def test_a_closed_client_says_so_and_leaves_no_thread() -> None:
    with FakeServer() as server, name_server(one_broker(server)) as names:
        client = RemotingClient(names.address)
        client.route("orders", deadline())
        answers: SimpleQueue[Any] = SimpleQueue()
        client.begin_max_offset(QUEUE, answers.put)
        client.close(LONG_S)
        assert isinstance(answers.get_nowait(), SourceFatal)
        for call in (
            lambda: client.max_offset(QUEUE, deadline()),
            lambda: client.route("orders", deadline(), fresh=True),
            lambda: client.begin_max_offset(QUEUE, answers.put),
        ):
            with pytest.raises(SourceFatal):
                call()
        client.close()
