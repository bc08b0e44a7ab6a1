"""Kafka in memory does what the real one was seen to do. Each test names who saw it: contracts, on a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError

from holdfast.adapters.kafka import faults
from holdfast.errors import SourceFatal, SourceUnavailable, StaticIdTaken, UnknownTopic
from holdfast.plugin.ports import CommitFate
from holdfast.records import Partition
from holdfast.testing.brokers.kafka_answers import FATES, Answer
from holdfast.testing.brokers.watcher import Watcher
from tests.simulation.actors import Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.records import Record

P0 = Partition("orders", 0)
SESSION_S = 6.0
PROTOCOLS = ("eager", "cooperative", "consumer")


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize("answer", Answer)
def test_what_an_answer_means_for_a_commit_is_as_the_adapter_reads_it(answer: Answer) -> None:
    fate = faults.commit_fate(KafkaError(getattr(KafkaError, answer.value)))
    ends = {faults.CommitFate.FATAL: faults.CommitFate.DISCARD}
    assert FATES[answer].value == ends.get(fate, fate).value


class TestRebalances:
    """tests/stories: a rolling restart per protocol; facts of a real Kafka 4.3.1."""

    def test_each_gets_its_share_and_nobody_has_what_another_has(self, protocol: Any) -> None:
        with Stage(protocol) as stage:
            one = stage.member("one")
            stage.until(lambda: one.has == [0, 1, 2, 3])
            two = stage.member("two")
            assert stage.settled(one, two) < 4.0

    def test_eager_members_give_up_everything_first(self) -> None:
        with Stage("eager") as stage:
            one = stage.member("one")
            stage.until(lambda: one.has)
            two = stage.member("two")
            stage.settled(one, two)
            assert one.story == [("assigned", (0, 1, 2, 3)), ("revoked", (0, 1, 2, 3)), ("assigned", tuple(one.has))]

    @pytest.mark.parametrize("protocol", ["cooperative", "consumer"])
    def test_others_give_up_only_what_moves(self, protocol: Any) -> None:
        with Stage(protocol) as stage:
            one = stage.member("one")
            stage.until(lambda: one.has)
            two = stage.member("two")
            stage.settled(one, two)
            assert one.story == [("assigned", (0, 1, 2, 3)), ("revoked", tuple(two.has))]

    def test_nobody_gets_what_another_has_not_given_up_yet(self, protocol: Any) -> None:
        with Stage(protocol) as stage:
            one = stage.member("one")
            stage.until(lambda: one.has)
            one.on_revoked = lambda _: one.process.runtime.sleep(3.0)
            two = stage.member("two")
            for _ in range(100):
                stage.pass_time(0.1)
                assert not set(one.has) & set(two.has)
            assert stage.owned_once(one, two)
            assert two.times[-1] >= one.times[1] + 3.0

    @pytest.mark.parametrize("protocol", ["cooperative", "consumer"])
    def test_others_read_on_while_one_gives_up_a_partition_and_reads_nothing(self, protocol: Any) -> None:
        """contracts/kafka/test_source.py::test_a_partition_that_stays_is_handled_on_while_another_is_drained sees the
        member that drains: with what is in the process, since inside its callback a client is not polled."""
        with Stage(protocol) as stage:
            one, two = stage.member("one"), stage.member("two")
            stage.settled(one, two)
            [kept, _], [stays, goes] = one.has, two.has
            two.on_revoked = lambda _: two.process.runtime.sleep(3.0)
            three = stage.member("three")
            aims = {one.source: one.has, two.source: [stays], three.source: [goes]}
            stage.group.aim({who: [Partition("orders", each) for each in has] for who, has in aims.items()})
            stage.until(lambda: two.story[-1] == ("revoked", (goes,)))
            for number in (kept, stays):
                stage.broker.produce("orders", number, "x")
            stage.until(lambda: (kept, 0) in one.read, 2.0)
            assert stage.scheduler.now < two.times[-1] + 3.0
            stage.until(lambda: two.source.readers[Partition("orders", stays)].position == 1)
            assert stage.scheduler.now >= two.times[-1] + 3.0
            stage.until(lambda: three.has == [goes])
            assert two.read == [(stays, 0)]

    def test_a_consumer_group_moves_member_by_member(self) -> None:
        """Who does not poll keeps its own, and holds up nobody else."""
        with Stage("consumer", orders=6) as stage:
            one, two = stage.member("one"), stage.member("two")
            stage.settled(one, two)
            one.polls = False
            three = stage.member("three")
            stage.until(lambda: len(three.has) == 1)
            assert len(one.has) == 3
            assert len(two.has) == 2

    @pytest.mark.parametrize("protocol", ["eager", "cooperative"])
    def test_a_classic_group_waits_for_all(self, protocol: Any) -> None:
        with Stage(protocol) as stage:
            one = stage.member("one")
            stage.until(lambda: one.has)
            one.on_revoked = lambda _: one.process.runtime.sleep(5.0)
            two, three = stage.member("two"), stage.member("three")
            stage.pass_time(4.0)
            assert not two.has
            assert not three.has
            one.on_revoked = lambda _: None
            stage.until(lambda: two.has and three.has)

    def test_a_group_that_waits_too_long_goes_on_without(self) -> None:
        with Stage("eager") as stage:
            one = stage.member("one", max_poll_interval_s=8.0)
            stage.until(lambda: one.has)
            one.polls = False
            two = stage.member("two", max_poll_interval_s=8.0)
            assert 7.0 < stage.until(lambda: len(two.has) == 4) < 10.0

    def test_an_assignment_brings_one_record_at_most_in_the_poll_in_which_it_comes(self) -> None:
        """contracts/kafka/test_source.py, of the same name."""
        with Stage(orders=1) as stage:
            stage.broker.produce("orders", 0, *"abc")
            one = stage.member("one")
            stage.until(lambda: one.read)
            assert [count for count in one.batches if count] == [1, 2]

    def test_partitions_that_are_added_are_handed_out(self, protocol: Any) -> None:
        with Stage(protocol) as stage:
            one = stage.member("one")
            stage.until(lambda: one.has)
            stage.broker.create("orders", 6)
            stage.until(lambda: one.has == [0, 1, 2, 3, 4, 5])


class TestTheEndOfAMember:
    def test_one_that_is_killed_is_missed_when_its_session_ends(self, protocol: Any) -> None:
        """facts: kill -9 to takeover in 5.9 to 6.1 s, with a session of 6 s."""
        with Stage(protocol) as stage:
            one, two = stage.member("one"), stage.member("two")
            stage.settled(one, two)
            two.process.crash()
            assert SESSION_S - 1 < stage.until(lambda: len(one.has) == 4) < SESSION_S + 2

    def test_one_that_stands_still_learns_of_its_end_in_its_next_poll(self, protocol: Any) -> None:
        with Stage(protocol) as stage:
            one, two = stage.member("one"), stage.member("two")
            stage.settled(one, two)
            had = tuple(two.has)
            two.process.stall(20.0)
            stage.until(lambda: len(one.has) == 4)
            assert two.has == list(had)
            stage.settled(one, two)
            assert ("lost", had) in two.story

    def test_its_commit_is_refused_until_it_has_come_again(self, protocol: Any) -> None:
        """facts: a zombie past its session is refused (UNKNOWN_MEMBER_ID)."""
        with Stage(protocol) as stage:
            one, two = stage.member("one"), stage.member("two")
            stage.settled(one, two)
            mine = Partition("orders", two.has[0])
            two.order(lambda: two.process.stall(20.0))
            two.order(lambda: two.source.commit({mine: 7}))
            stage.until(lambda: two.fates)
            assert two.fates == [(mine.number, 7, CommitFate.DISCARD)]
            assert stage.group.offset(mine) is None

    def test_one_that_leaves_is_replaced_at_once(self, protocol: Any) -> None:
        """facts: SIGTERM to takeover in 0.3 to 0.6 s."""
        with Stage(protocol) as stage:
            one, two = stage.member("one"), stage.member("two")
            stage.settled(one, two)
            two.close()
            assert stage.until(lambda: len(one.has) == 4) < 2.0

    def test_one_whose_leave_is_not_heard_is_missed_like_a_dead_one(self, protocol: Any) -> None:
        with Stage(protocol) as stage:
            one, two = stage.member("one"), stage.member("two")
            stage.settled(one, two)
            two.order(lambda: setattr(two.source.line, "hears", False))
            two.close()
            assert stage.until(lambda: len(one.has) == 4) > SESSION_S - 1

    def test_one_that_does_not_poll_leaves(self, protocol: Any) -> None:
        """librdkafka: max.poll.interval.ms; the application hears of it as lost, at its next poll."""
        with Stage(protocol) as stage:
            one, two = stage.member("one"), stage.member("two", max_poll_interval_s=10.0)
            stage.settled(one, two)
            had = tuple(two.has)
            two.polls = False
            assert 9.0 < stage.until(lambda: len(one.has) == 4) < 13.0
            two.polls = True
            stage.settled(one, two)
            assert ("lost", had) in two.story

    def test_one_that_cannot_be_heard_loses_its_place_though_it_polls(self, protocol: Any) -> None:
        with Stage(protocol) as stage:
            one, two = stage.member("one"), stage.member("two")
            stage.settled(one, two)
            two.source.line.hears = False
            stage.until(lambda: len(one.has) == 4)
            two.source.line.mend()
            stage.settled(one, two)


class TestStaticMembers:
    """contracts/kafka/test_static_members.py, by the names of its tests."""

    def test_a_restart_under_the_same_id_moves_nothing(self, protocol: Any) -> None:
        with Stage(protocol) as stage:
            one, two = stage.member("one", static_id="a"), stage.member("two", static_id="b")
            stage.settled(one, two)
            had, moved = two.has, len(one.story)
            two.close()
            stage.pass_time(3.0)
            again = stage.member("two", static_id="b")
            stage.until(lambda: again.has == had)
            stage.pass_time(10.0)
            assert len(one.story) == moved
            assert len(one.has) == 2

    def test_of_who_does_not_come_back_others_have_the_partitions_once_its_session_has_ended(
        self, protocol: Any
    ) -> None:
        with Stage(protocol) as stage:
            one, two = stage.member("one"), stage.member("two", static_id="b")
            stage.settled(one, two)
            two.close()
            assert SESSION_S - 1 < stage.until(lambda: len(one.has) == 4) < SESSION_S + 2

    def test_who_leaves_for_good_frees_its_partitions_at_once(self, protocol: Any) -> None:
        with Stage(protocol) as stage:
            one, two = stage.member("one"), stage.member("two", static_id="b")
            stage.settled(one, two)
            two.close(leave=True)
            assert stage.until(lambda: len(one.has) == 4) < 2.0

    @pytest.mark.parametrize("protocol", ["eager", "cooperative"])
    def test_of_two_with_one_id_the_older_stops_and_says_why(self, protocol: Any) -> None:
        with Stage(protocol) as stage:
            one = stage.member("one", static_id="a")
            stage.until(lambda: one.has)
            newer = stage.member("newer", static_id="a")
            stage.until(lambda: len(newer.has) == 4)
            stage.until(lambda: one.errors)
            assert isinstance(one.errors[0], StaticIdTaken)

    def test_under_the_consumer_protocol_the_newer_waits_for_the_older(self) -> None:
        with Stage("consumer") as stage:
            one = stage.member("one", static_id="a")
            stage.until(lambda: one.has)
            newer = stage.member("newer", static_id="a")
            stage.until(lambda: newer.errors)
            assert isinstance(newer.errors[0], SourceFatal)
            one.process.crash()
            assert stage.until(lambda: len(newer.has) == 4) > SESSION_S - 1
            assert len(newer.errors) == 1


class TestCommits:
    def test_one_of_a_partition_that_the_member_does_not_own_is_taken(self, protocol: Any) -> None:
        """facts: a live member's commit for a partition it does not own is accepted in all three (rewound 90 to 5)."""
        with Stage(protocol) as stage:
            one, two = stage.member("one"), stage.member("two")
            stage.settled(one, two)
            theirs = Partition("orders", two.has[0])
            one.order(lambda: one.source.commit({theirs: 5}))
            stage.until(lambda: one.fates)
            assert stage.group.offset(theirs) == 5

    def test_one_inside_a_revocation_is_answered_before_the_partitions_go(self, protocol: Any) -> None:
        """facts: the new owner began exactly at the committed offset on all moved partitions."""
        with Stage(protocol) as stage:
            for number in range(4):
                stage.broker.produce("orders", number, *"abcd")
            one = stage.member("one")
            stage.until(lambda: len(one.read) == 16)
            one.source.line.delay_s = 0.2
            one.on_revoked = lambda gone: one.source.commit(dict.fromkeys(gone, 4))
            two = stage.member("two")
            stage.until(lambda: two.has)
            stage.pass_time(3.0)
            assert two.read == []

    def test_one_without_an_answer_may_have_been_taken(self) -> None:
        with Stage(orders=1) as stage:
            one = stage.member("one", request_timeout_s=2.0, session_timeout_s=30.0)
            stage.until(lambda: one.has)
            one.order(lambda: setattr(one.source.line, "speaks", False))
            one.order(lambda: one.source.commit({P0: 3}))
            stage.until(lambda: one.fates)
            assert one.fates == [(0, 3, CommitFate.AGAIN)]
            assert stage.group.offset(P0) == 3

    def test_one_that_did_not_arrive_is_to_be_sent_again(self) -> None:
        with Stage(orders=1) as stage:
            one = stage.member("one", request_timeout_s=2.0, session_timeout_s=30.0)
            stage.until(lambda: one.has)
            one.order(lambda: setattr(one.source.line, "hears", False))
            one.order(lambda: one.source.commit({P0: 3}))
            stage.until(lambda: one.fates)
            assert one.fates == [(0, 3, CommitFate.AGAIN)]
            assert stage.group.offset(P0) is None

    def test_one_that_comes_late_is_taken_though_its_sender_has_given_it_up(self) -> None:
        with Stage(orders=1) as stage:
            one = stage.member("one", request_timeout_s=2.0, session_timeout_s=30.0)
            stage.until(lambda: one.has)
            one.order(lambda: setattr(one.source.line, "delay_s", 5.0))
            one.order(lambda: one.source.commit({P0: 3}))
            stage.until(lambda: one.fates)
            assert (one.fates, stage.group.offset(P0)) == ([(0, 3, CommitFate.AGAIN)], None)
            stage.until(lambda: stage.group.offset(P0) == 3)

    def test_one_that_comes_twice_moves_the_offset_back_and_is_known_as_ours(self) -> None:
        with Stage(orders=1) as stage:
            one = stage.member("one")
            stage.until(lambda: one.has)
            one.source.line.twice_s = 1.0
            one.order(lambda: one.source.commit({P0: 3}))
            one.order(one.source.line.mend)
            one.order(lambda: one.source.commit({P0: 5}))
            stage.until(lambda: stage.group.offset(P0) == 5)
            stage.until(lambda: stage.group.offset(P0) == 3)
            assert stage.group.committed[P0].metadata == "holdfast:1:3::store"

    @pytest.mark.parametrize("protocol", ["cooperative", "consumer"])
    def test_one_that_crosses_a_new_generation_is_to_be_sent_again(self, protocol: Any) -> None:
        """facts: ILLEGAL_GENERATION under cooperative is transient for partitions that stay; STALE_MEMBER_EPOCH before
        Kafka 4.3."""
        with Stage(protocol) as stage:
            stage.group.refuses_old_epochs = True
            one = stage.member("one")
            stage.until(lambda: one.has)
            one.source.line.delay_s = 0.4
            sent: list[int] = []

            def send() -> None:
                sent.append(len(sent))
                one.source.commit({Partition("orders", one.has[0]): len(sent)})
                one.order(send)

            one.order(send)
            two = stage.member("two")
            stage.settled(one, two)
            stage.pass_time(5.0)
            assert CommitFate.AGAIN in {fate for _, _, fate in one.fates}
            assert one.fates[-1][2] is CommitFate.DONE

    def test_a_person_sets_no_offset_of_a_group_that_has_members(self, protocol: Any) -> None:
        """facts: an admin client is refused while the group is active."""
        with Stage(protocol) as stage:
            one = stage.member("one")
            stage.until(lambda: one.has)
            assert not stage.group.reset(P0, 2)
            one.close()
            stage.until(lambda: one.over)
            assert stage.group.reset(P0, 2)
            assert stage.group.committed[P0].metadata == ""


class TestTopics:
    def test_one_that_is_made_again_has_another_id_and_nothing_committed(self) -> None:
        """contracts/kafka/test_topic_ids.py; the broker drops a group's offsets with the topic."""
        with Stage(orders=1) as stage:
            one = stage.member("one")
            stage.until(lambda: one.has)
            one.order(lambda: one.source.commit({P0: 3}))
            stage.until(lambda: one.fates)
            before = stage.broker.id_of("orders")
            stage.broker.delete("orders")
            assert stage.broker.id_of("orders") != before
            assert stage.group.offset(P0) is None

    def test_a_commit_that_was_under_way_says_nothing_of_the_new_one(self) -> None:
        """contracts/kafka/test_source.py::test_a_topic_made_again_under_a_living_member_is_read_from_its_start."""
        with Stage(orders=1) as stage:
            one = stage.member("one")
            stage.until(lambda: one.has)
            asked: list[Any] = []
            source = one.source
            one.order(lambda: asked.append(source.position_names([P0], one.deadline())))
            one.order(lambda: setattr(source.line, "delay_s", 1.0))
            one.order(lambda: source.commit({P0: 3}))
            one.order(lambda: stage.broker.delete("orders"))
            stage.until(lambda: one.fates)
            one.order(source.line.mend)
            one.order(lambda: asked.append(source.position_names([P0], one.deadline())))
            one.order(lambda: asked.append(source.committed([P0], one.deadline())))
            stage.until(lambda: len(asked) == 3)
            assert asked[0] != asked[1]
            assert asked[2] == {P0: None}

    def test_one_that_is_deleted_is_taken_away_and_has_no_name(self, protocol: Any) -> None:
        """contracts/kafka/test_source.py::test_a_topic_that_is_deleted_stops_nothing_of_the_others."""
        with Stage(protocol, orders=1) as stage:
            one = stage.member("one")
            stage.until(lambda: one.has)
            stage.broker.remove("orders")
            stage.until(lambda: not one.has)
            asked: list[Any] = []
            one.order(lambda: asked.append(one.source.position_names([P0], one.deadline())))
            stage.until(lambda: asked)
            assert isinstance(asked[0][P0], UnknownTopic)

    def test_a_partition_without_a_leader_is_not_read_and_its_ends_are_not_known(self) -> None:
        with Stage(orders=2) as stage:
            one = stage.member("one")
            stage.until(lambda: one.has)
            stage.broker.lead("orders", 0, led=False)
            stage.broker.produce("orders", 1, "y")
            stage.until(lambda: one.read)
            asked: list[Any] = []
            both = [P0, Partition("orders", 1)]
            one.order(lambda: asked.append(one.source.first_offsets(both, one.deadline())))
            stage.until(lambda: asked)
            assert isinstance(asked[0][P0], SourceUnavailable)
            assert asked[0][both[1]] == 0

    def test_gaps_are_told_by_the_end(self) -> None:
        """contracts/kafka/test_source.py::test_transaction_markers_and_aborted_records_hold_nothing_up."""
        with Stage(orders=1) as stage:
            stage.broker.produce("orders", 0, *"abcd")
            stage.broker.compact("orders", 0, [1, 3])
            stage.broker.leave_out("orders", 0, 2)
            one = stage.member("one")
            stage.until(lambda: len(one.read) == 2)
            assert one.read == [(0, 1), (0, 3)]
            stage.until(lambda: one.source.readers[P0].position == 6)

    def test_what_retention_leaves_is_read(self) -> None:
        """contracts/kafka/test_source.py::test_what_retention_leaves_is_read_whatever_the_reset_policy."""
        with Stage(orders=1) as stage:
            stage.broker.produce("orders", 0, *"abcd")
            stage.group.set_offset(P0, 1, ours=True)
            stage.broker.expire("orders", 0, 3)
            one = stage.member("one")
            stage.until(lambda: one.read)
            assert one.read == [(0, 3)]

    def test_a_record_that_a_producer_sends_again_is_there_twice(self) -> None:
        with Stage(orders=1) as stage:
            stage.broker.produce("orders", 0, "a", key="k")
            assert stage.broker.store_again("orders", 0, 0) == 1
            one = stage.member("one")
            stage.until(lambda: len(one.read) == 2)

    def test_one_that_nobody_can_read_stops_its_reader_with_the_offset(self) -> None:
        with Stage(orders=1) as stage:
            stage.broker.produce("orders", 0, *"abc")
            stage.broker.spoil("orders", 0, 1)
            one = stage.member("one")
            stage.until(lambda: one.errors)
            assert one.read == [(0, 0)]
            assert "at 1 cannot be read" in str(one.errors[0])

    def test_a_question_without_an_answer_ends_with_its_deadline(self) -> None:
        with Stage(orders=1) as stage:
            one = stage.member("one")
            stage.until(lambda: one.has)
            one.source.line.speaks = False
            one.order(lambda: void(one.source.committed([P0], one.deadline(2.0))))
            assert 2.0 <= stage.until(lambda: stage.scheduler.errors, 5.0) < 2.5
            [crash] = stage.scheduler.errors
            stage.scheduler.errors.clear()
            assert isinstance(crash.error, SourceUnavailable)


def test_judges_are_told_what_is_delivered_committed_and_moved() -> None:
    told: list[tuple[str, object]] = []

    class Judge(Watcher):
        def on_commit(self, partition: Partition, offset: int, member: object, metadata: str) -> None:
            told.append(("commit", (partition.number, offset, metadata)))

        def on_assign(self, partitions: Sequence[Partition], member: object) -> None:
            told.append(("assign", member))

        def on_revoke(self, partitions: Sequence[Partition], member: object) -> None:
            told.append(("revoke", member))

        def on_deliver(self, record: Record, member: object) -> None:
            told.append(("deliver", record.offset))

    with Stage(orders=1) as stage:
        stage.broker.watchers.append(Judge())
        stage.broker.produce("orders", 0, "a")
        one = stage.member("one")
        stage.until(lambda: one.read)
        one.order(lambda: one.source.commit({P0: 1}))
        one.close()
        stage.until(lambda: one.over)
        assert told == [
            ("assign", one.source),
            ("deliver", 0),
            ("commit", (0, 1, "holdfast:1:1::store")),
            ("revoke", one.source),
        ]


def void(_: object) -> None: ...
