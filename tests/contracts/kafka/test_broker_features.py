"""What brokers can, asked of real ones, of the mock cluster and of what is no broker."""

from __future__ import annotations

import socket
import subprocess
import threading
from typing import TYPE_CHECKING, NoReturn

import pytest
from confluent_kafka.admin import AdminClient

import holdfast.adapters.kafka.broker_features
from holdfast.adapters.kafka.broker_features import ask, fetch
from holdfast.adapters.kafka.wire import Malformed
from holdfast.errors import NotAuthorised, SettingError, SourceUnavailable
from holdfast.timing import Deadline
from tests.harness.kafka_brokers import bootstrap, closed_port, mock_cluster, silent_broker
from tests.harness.servers.kafka import KafkaServer

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["bootstrap", "closed_port", "mock_cluster", "silent_broker"]


def test_a_broker_with_the_consumer_protocol_says_so(bootstrap: str) -> None:
    features = ask({"bootstrap.servers": bootstrap, "group.id": "asks"}, Deadline(20))
    assert features.consumer_protocol
    assert features.asked


def test_asking_leaves_no_group_behind(kafka: KafkaServer) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})  # kept: one that is collected answers nothing any more

    def groups() -> set[str]:
        listed = admin.list_consumer_groups(request_timeout=60).result(60)
        return {each.group_id for each in listed.valid}

    before = groups()
    ask({"bootstrap.servers": kafka.bootstrap, "group.id": "never-joined"}, Deadline(20))
    assert groups() <= before  # another test's may go meanwhile


@pytest.mark.full
def test_a_cluster_that_has_the_feature_off_says_so() -> None:
    with KafkaServer() as server:
        command = ["java", "-cp", f"{server._lib}/*", "org.apache.kafka.tools.FeatureCommand"]
        command += ["--bootstrap-server", server.bootstrap, "downgrade", "--feature", "group.version=0"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        features = ask({"bootstrap.servers": server.bootstrap, "group.id": "asks"}, Deadline(20))
    assert not features.consumer_protocol
    assert features.asked
    assert "group.version" in features.why


def test_an_address_without_a_broker_is_named(closed_port: str) -> None:
    with pytest.raises(SourceUnavailable, match=closed_port):
        ask({"bootstrap.servers": closed_port, "group.id": "asks"}, Deadline(1))


def test_a_name_that_does_not_exist_is_named() -> None:
    with pytest.raises(SourceUnavailable, match=r"no-such-host\.invalid"):
        ask({"bootstrap.servers": "no-such-host.invalid:9092", "group.id": "asks"}, Deadline(1))


def test_a_broker_that_never_answers_costs_no_more_than_the_deadline(silent_broker: str) -> None:
    with pytest.raises(SourceUnavailable, match="within 1 s"):
        ask({"bootstrap.servers": silent_broker, "group.id": "asks"}, Deadline(1))


def test_one_answering_broker_of_several_is_enough(kafka: KafkaServer, closed_port: str) -> None:
    assert ask({"bootstrap.servers": f"{closed_port},{kafka.bootstrap}", "group.id": "asks"}, Deadline(20)).asked


def test_refused_credentials_are_told_without_the_password(kafka: KafkaServer) -> None:
    conf = {"bootstrap.servers": kafka.bootstrap, "group.id": "asks", "security.protocol": "sasl_plaintext"}
    conf |= {"sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": "hunter2"}
    with pytest.raises(NotAuthorised) as caught:
        ask(conf, Deadline(20))
    assert kafka.bootstrap in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_what_librdkafka_refuses_is_a_setting(bootstrap: str) -> None:
    with pytest.raises(SettingError, match=r"no\.such\.property"):
        ask({"bootstrap.servers": bootstrap, "group.id": "asks", "no.such.property": 1}, Deadline(20))


def test_a_question_that_got_no_answer_is_not_taken_for_a_no(
    mock_cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_: object) -> NoReturn:
        raise ConnectionResetError("cut")

    monkeypatch.setattr(holdfast.adapters.kafka.broker_features, "fetch", cut)
    features = ask({"bootstrap.servers": mock_cluster, "group.id": "asks"}, Deadline(20))
    assert not features.asked
    assert not features.consumer_protocol
    assert "cut" in features.why


# -- the question itself ----------------------------------------------------------------------------------------------


@pytest.fixture
def stranger() -> Iterator[tuple[str, int]]:
    """A port that answers everything with a line of HTTP and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        yield listening.getsockname()
        thread.join()


def test_a_stranger_is_not_taken_for_a_broker(stranger: tuple[str, int]) -> None:
    with pytest.raises(Malformed):
        fetch(*stranger, None, Deadline(10))


def test_a_silent_port_is_given_up_at_the_deadline(silent_broker: str) -> None:
    host, _, port = silent_broker.partition(":")
    with pytest.raises(TimeoutError):
        fetch(host, int(port), None, Deadline(0.2))


def test_a_real_broker_tells_its_features_and_the_mock_cluster_does_not(kafka: KafkaServer, mock_cluster: str) -> None:
    host, _, port = kafka.bootstrap.partition(":")
    features = fetch(host, int(port), None, Deadline(10)).features
    assert features is not None
    assert features["group.version"] >= 1
    host, _, port = mock_cluster.partition(":")
    assert fetch(host, int(port), None, Deadline(10)).features is None
