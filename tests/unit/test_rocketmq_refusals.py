"""What brokers refuse: what passes, what a start ends with, and what is told."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from holdfast.adapters.rocketmq import commits as module
from holdfast.adapters.rocketmq.inbox import Inbox, ResetByNotice, Trouble
from holdfast.adapters.rocketmq.moves import Moves
from holdfast.adapters.rocketmq.remoting import Notice, RemotingClient, codes
from holdfast.adapters.rocketmq.remoting.answers import Answer, BrokerRefused
from holdfast.adapters.rocketmq.tools.offsets import RocketMQOffsetTool
from holdfast.adapters.rocketmq.troubles import Troubles
from holdfast.errors import NotAuthorised, SourceError, SourceUnavailable, UnknownGroup
from holdfast.records import Partition
from holdfast.timing import Deadline
from tests.harness.clocks import HandClock
from tests.unit.rocketmq_fake import FakeServer, Peer, route_body
from tests.unit.rocketmq_queues import commits_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.adapters.rocketmq.remoting.frame import Command

QUEUE, OTHER = Partition("orders", 0, "a"), Partition("orders", 1, "a")
CLOSED = NotAuthorised("closed")
NO_GROUP = BrokerRefused("no", codes.GROUP_NOT_EXIST, "")
SILENT = SourceUnavailable("no answer comes at all")
#: What a broker may say of one queue's commit for ever.
OF_A_QUEUE = [BrokerRefused("no", code, "") for code in (codes.SYSTEM_ERROR, codes.INVALID_PARAMETER)] + [CLOSED]


def refused(**fields: str) -> SourceError:
    with pytest.raises(SourceError) as caught:
        Answer("pulling", "a:1", codes.NO_PERMISSION, "no", fields, b"").expect()
    return caught.value


@pytest.mark.parametrize(("kind", "remedy"), [("1", "brokerPermission"), ("2", "updateSubGroup"), ("3", "TopicPerm")])
def test_what_an_operator_has_switched_off_passes(kind: str, remedy: str) -> None:
    error = refused(forbiddenType=kind)
    assert error.retriable
    assert remedy in str(error)


@pytest.mark.parametrize("fields", [{}, {"forbiddenType": "0"}, {"forbiddenType": "4"}])
def test_rights_that_are_missing_do_not(fields: dict[str, str]) -> None:
    assert isinstance(refused(**fields), NotAuthorised)


class TestTroubles:
    """With one of NotAuthorised."""

    @staticmethod
    def raised(*, let_in: bool, queue: Partition = QUEUE) -> Exception:
        commits = SimpleNamespace(lasting_refusal=lambda: None)
        queues: Any = SimpleNamespace(broken=None, commits=commits)
        topics: Any = SimpleNamespace(queues=[QUEUE])
        shared: Any = SimpleNamespace(let_in=let_in)
        troubles = Troubles(queues, topics, shared)
        troubles.add(Trouble(queue, CLOSED))
        with pytest.raises(SourceError) as caught:
            troubles.raise_one()
        return caught.value

    def test_at_the_start_it_ends_the_app(self) -> None:
        assert self.raised(let_in=False) is CLOSED

    def test_of_what_another_way_of_consumption_has_left_it_is_told_and_ends_nothing(self) -> None:
        left = Partition("%RETRY%billing_orders", 0, QUEUE.broker)
        assert isinstance(self.raised(let_in=False, queue=left), SourceUnavailable)

    def test_later_it_is_told_and_passes(self) -> None:
        assert isinstance(self.raised(let_in=True), SourceUnavailable)


class Client:
    """Its broker answers each commit like this."""

    def __init__(self) -> None:
        self.answer: SourceError | None = None
        #: Of queues that are answered otherwise.
        self.answers: dict[Partition, SourceError | None] = {}

    def begin_commit(
        self, queue: Partition, group: str, offset: int, on_answer: Callable[[Any], None], *, timeout_s: float
    ) -> None:
        answer = self.answers.get(queue, self.answer)
        if answer is not SILENT:
            on_answer(answer)


class TestCommits:
    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> HandClock:
        made = HandClock()
        monkeypatch.setattr(module, "SYSTEM_CLOCK", made)
        return made

    def test_a_refusal_that_lasts_is_an_error_with_its_remedy(self, clock: HandClock) -> None:
        client = Client()
        commits = commits_of(client, "billing")
        client.answer = BrokerRefused("no", codes.GROUP_NOT_EXIST, "")
        for _ in range(10):
            assert commits.lasting_refusal() is None
            commits.of(QUEUE).begin(0)
            clock.sleep(1.0)
        found = commits.lasting_refusal()
        assert found is not None
        assert found[0] == QUEUE
        assert isinstance(found[1], UnknownGroup)
        assert "mqadmin updateSubGroup" in str(found[1])
        assert commits.never_taken
        assert commits.lasting_refusal() is None  # told once

    @pytest.mark.parametrize("passes", [None, SourceUnavailable("away")], ids=["taken", "no answer"])
    def test_what_is_taken_or_has_no_answer_is_no_refusal(self, clock: HandClock, passes: SourceError | None) -> None:
        client = Client()
        commits = commits_of(client, "billing")
        client.answer = CLOSED
        commits.of(QUEUE).begin(0)
        client.answer = passes
        commits.of(QUEUE).begin(0)
        clock.sleep(20.0)
        assert (commits.lasting_refusal() is None) is (passes is None)
        assert commits.never_taken is (passes is not None)

    @pytest.mark.parametrize("others", [None, SILENT, SourceUnavailable("away")], ids=["taken", "silent", "away"])
    @pytest.mark.parametrize("error", OF_A_QUEUE, ids=str)
    def test_one_queue_that_is_refused_stands_still_and_is_told_also_where_nothing_was_ever_committed(
        self, clock: HandClock, error: SourceError, others: SourceError | None
    ) -> None:
        assert self.outcome(clock, {QUEUE: error, OTHER: others}) is SourceUnavailable

    @pytest.mark.parametrize("error", OF_A_QUEUE, ids=str)
    def test_of_a_queue_that_another_member_has_nothing_is_known(self, clock: HandClock, error: SourceError) -> None:
        assert self.outcome(clock, {QUEUE: error}) is SourceUnavailable

    @pytest.mark.parametrize("error", OF_A_QUEUE, ids=str)
    def test_a_group_of_which_all_is_refused_is_an_error(self, clock: HandClock, error: SourceError) -> None:
        assert self.outcome(clock, {QUEUE: error, OTHER: error}) is type(error)

    @pytest.mark.parametrize("others", [NO_GROUP, SILENT], ids=["the same", "silent"])
    def test_so_is_one_that_a_broker_does_not_have(self, clock: HandClock, others: SourceError) -> None:
        assert self.outcome(clock, {QUEUE: NO_GROUP, OTHER: others}) is UnknownGroup

    def test_one_that_a_broker_of_several_does_not_have_any_more_stands_still_there(self, clock: HandClock) -> None:
        assert self.outcome(clock, {QUEUE: NO_GROUP, OTHER: None}) is SourceUnavailable

    @staticmethod
    def outcome(clock: HandClock, answers: dict[Partition, SourceError | None]) -> type[Exception]:
        """The last of what is raised while these queues' commits are repeated for a while."""
        client, raised = Client(), []
        client.answers = answers
        commits = commits_of(client, "billing")
        queues: Any = SimpleNamespace(broken=None, commits=commits)
        topics: Any = SimpleNamespace(queues=[QUEUE, OTHER])
        shared: Any = SimpleNamespace(let_in=False)
        troubles = Troubles(queues, topics, shared)
        for _ in range(30):
            for queue in answers:
                commits.of(queue).begin(0)
                clock.sleep(0.5)
            try:
                troubles.raise_one()
            except SourceError as error:
                raised.append(type(error))
                if not isinstance(error, SourceUnavailable):
                    break
        return raised[-1]


JAVA = (
    b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"orders"}:7,'
    b'{"brokerName":"a","queueId":1,"topic":"orders"}:9}}'
)
LIST = [{"brokerName": "a", "queueId": at, "topic": "orders", "offset": 7 + 2 * at} for at in (0, 1)]
AS_LIST = json.dumps({"offsetTable": LIST}).encode()


class TestResetsThatAreLeftToMembers:
    """useServerSideResetOffset=false: brokers change nothing, and tell all members of all queues."""

    @staticmethod
    def resets(body: bytes) -> list[tuple[Partition, int]]:
        nothing: Any = None
        inbox = Inbox()
        moves, found = Moves({OTHER: cast("Any", object())}, nothing, inbox), list[tuple[Partition, int]]()
        moves.hear(Notice(codes.FromBroker.RESET_CLIENT_OFFSET, {"group": "g"}, body, "a:1"))
        listener: Any = SimpleNamespace(reset=lambda queue, offset: found.append((queue, offset)))
        while (event := inbox.take()) is not None:
            assert isinstance(event, ResetByNotice)
            moves.follow(event, listener)
        return found

    @pytest.mark.parametrize("body", [JAVA, AS_LIST], ids=["as to Java", "as to others"])
    def test_whoever_has_a_queue_follows(self, body: bytes) -> None:
        assert self.resets(body) == [(OTHER, 9)]

    def test_one_that_cannot_be_read_is_an_error_in_the_log_and_ends_nothing(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert self.resets(b"\xff") == []
        assert "not followed" in caplog.text

    def test_the_command_says_that_nothing_was_reset(self) -> None:
        def broker(command: Command, peer: Peer) -> None:
            settings = b'{"retryQueueNums":1}' if command.code == codes.Request.GET_SUBSCRIPTION_GROUP else b""
            peer.answer(command, {"offset": "3"}, settings)

        with FakeServer(broker) as server:
            route = route_body({"a": (1, 1)}, {"a": {0: server.address}})
            with FakeServer(lambda command, peer: peer.answer(command, body=route)) as names:
                tool = RocketMQOffsetTool(lambda: RemotingClient(names.address), "billing")
                tool.client.route("orders", Deadline(30.0))
                tool.set({QUEUE: 3}, Deadline(30.0))
                with pytest.raises(SourceError, match="useServerSideResetOffset"):
                    tool.set({QUEUE: 7}, Deadline(30.0))
                tool.close()
