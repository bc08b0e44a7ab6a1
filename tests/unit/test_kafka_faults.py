"""Error codes: typed, by code alone, and with one clear sentence."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import KafkaError

from holdfast.adapters.kafka import faults
from holdfast.adapters.kafka.faults import (
    COMMIT_FATES,
    FAULTS,
    CommitFate,
    Cure,
    as_source_error,
    commit_fate,
    cure_of,
)
from holdfast.errors import NotAuthorised, SourceError, SourceFatal, SourceUnavailable, UnknownTopic

ALL_CODES = sorted(
    {
        value
        for name in dir(KafkaError)
        if name.strip("_").isupper() and isinstance(value := getattr(KafkaError, name), int)
    }
)


def test_no_code_stands_in_a_table_twice() -> None:
    for table in (FAULTS, COMMIT_FATES):
        counted = Counter(code for line in table for code in line.codes)
        assert [code for code, times in counted.items() if times > 1] == []


def test_every_line_says_why() -> None:
    assert all(len(line.remedy) > 20 for line in FAULTS)
    assert all(len(line.why) > 15 for line in COMMIT_FATES)


def test_the_type_of_an_error_follows_from_who_can_cure_it() -> None:
    for line in FAULTS:
        if line.cure is Cure.CLIENT:
            assert line.error is SourceUnavailable
        elif line.cure is Cure.REBUILD:
            assert line.error is SourceFatal
        else:
            assert not line.error.retriable


@pytest.mark.parametrize("code", ALL_CODES)
def test_every_code_of_the_client_becomes_a_typed_error_with_what_was_asked(code: int) -> None:
    error = KafkaError(code)
    typed = as_source_error(error, "reading orders at broker:9092")
    assert isinstance(typed, SourceError)
    assert str(typed).startswith("reading orders at broker:9092: ")
    assert error.name() in str(typed)
    assert isinstance(commit_fate(error), CommitFate)


@pytest.mark.parametrize("code", ALL_CODES)
def test_a_fatal_error_is_never_left_to_the_client(code: int) -> None:
    assert cure_of(KafkaError(code, "gone", True)) is not Cure.CLIENT


@pytest.mark.parametrize(
    ("code", "cure", "kind"),
    [
        (KafkaError._ALL_BROKERS_DOWN, Cure.CLIENT, SourceUnavailable),
        (KafkaError._TRANSPORT, Cure.CLIENT, SourceUnavailable),
        (KafkaError._PARTITION_EOF, Cure.CLIENT, SourceUnavailable),
        (KafkaError._MAX_POLL_EXCEEDED, Cure.CLIENT, SourceUnavailable),
        (KafkaError.NOT_COORDINATOR, Cure.CLIENT, SourceUnavailable),
        (KafkaError.UNKNOWN_MEMBER_ID, Cure.CLIENT, SourceUnavailable),
        (KafkaError._FATAL, Cure.REBUILD, SourceFatal),
        (KafkaError.FENCED_INSTANCE_ID, Cure.REBUILD, SourceFatal),
        (KafkaError.UNRELEASED_INSTANCE_ID, Cure.REBUILD, SourceFatal),
        (KafkaError._AUTHENTICATION, Cure.PERSON, NotAuthorised),
        (KafkaError.SASL_AUTHENTICATION_FAILED, Cure.PERSON, NotAuthorised),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, Cure.PERSON, NotAuthorised),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Cure.PERSON, NotAuthorised),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Cure.PERSON, UnknownTopic),
        (KafkaError.INCONSISTENT_GROUP_PROTOCOL, Cure.PERSON, SourceError),
        # It stands still until somebody acts: to let it pass would be a silent loop.
        (KafkaError._AUTO_OFFSET_RESET, Cure.PERSON, SourceError),
    ],
)
def test_who_gets_a_client_over_an_error(code: int, cure: Cure, kind: type[SourceError]) -> None:
    error = KafkaError(code)
    assert cure_of(error) is cure
    assert type(as_source_error(error, "asked")) is kind


def test_the_words_of_an_error_decide_nothing() -> None:
    for words in ("Broker: Topic authorization failed", "fatal", ""):
        assert cure_of(KafkaError(KafkaError._TRANSPORT, words)) is Cure.CLIENT


@pytest.mark.parametrize(
    ("code", "fate"),
    [
        (KafkaError.NO_ERROR, CommitFate.DONE),
        (KafkaError.ILLEGAL_GENERATION, CommitFate.AGAIN),
        (KafkaError.REBALANCE_IN_PROGRESS, CommitFate.AGAIN),
        (KafkaError.STALE_MEMBER_EPOCH, CommitFate.AGAIN),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, CommitFate.AGAIN),
        (KafkaError.NOT_COORDINATOR, CommitFate.AGAIN),
        (KafkaError._TIMED_OUT, CommitFate.AGAIN),
        (KafkaError._TRANSPORT, CommitFate.AGAIN),
        (KafkaError.UNKNOWN_MEMBER_ID, CommitFate.DISCARD),
        (KafkaError.FENCED_MEMBER_EPOCH, CommitFate.DISCARD),
        (KafkaError._ASSIGNMENT_LOST, CommitFate.DISCARD),
        (KafkaError._NO_OFFSET, CommitFate.NOTHING),
        (KafkaError.FENCED_INSTANCE_ID, CommitFate.FATAL),
        (KafkaError._FATAL, CommitFate.FATAL),
        (KafkaError.OFFSET_METADATA_TOO_LARGE, CommitFate.FATAL),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, CommitFate.AGAIN),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, CommitFate.AGAIN),
    ],
)
def test_what_becomes_of_a_commit(code: int, fate: CommitFate) -> None:
    assert commit_fate(KafkaError(code)) is fate


def test_no_error_is_done() -> None:
    assert commit_fate(None) is CommitFate.DONE


@pytest.mark.parametrize("code", ALL_CODES)
def test_an_error_is_never_read_as_committed(code: int) -> None:
    if code != KafkaError.NO_ERROR:
        assert commit_fate(KafkaError(code)) is not CommitFate.DONE


def test_an_answer_that_nobody_knows_says_nothing_so_it_is_sent_again() -> None:
    assert commit_fate(KafkaError(9_999)) is CommitFate.AGAIN
    assert commit_fate(KafkaError(9_999, "gone", True)) is CommitFate.FATAL


def test_numbers_that_stand_in_for_names_of_newer_clients_are_theirs() -> None:
    assert faults._INVALID_REGULAR_EXPRESSION == KafkaError.INVALID_REGULAR_EXPRESSION
    assert faults._REBOOTSTRAP_REQUIRED == KafkaError.REBOOTSTRAP_REQUIRED
