"""KafkaConsumer has what the installed client has: a new release shows here what is missing."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.aio import AIOConsumer

from holdfast.adapters.kafka import AIOKafkaConsumer, DeserializingKafkaConsumer, KafkaConsumer


def stubbed(name: str) -> dict[str, ast.FunctionDef]:
    """The methods of a class in the client's own stubs; of an overloaded one, the last."""
    stub = Path(confluent_kafka.__file__).with_name("cimpl.pyi")
    classes = [node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ClassDef)]
    wanted = next(node for node in classes if node.name == name)
    return {node.name: node for node in wanted.body if isinstance(node, ast.FunctionDef)}


METHODS = {name: node for name, node in stubbed("Consumer").items() if name != "__init__"}


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_takes_what_the_clients_takes(name: str) -> None:
    theirs = METHODS[name].args
    ours = inspect.signature(getattr(KafkaConsumer, name)).parameters
    names = [each.arg for each in (*theirs.posonlyargs, *theirs.args, *theirs.kwonlyargs)]
    assert [each for each in names if each not in ours] == []
    if not theirs.kwonlyargs:  # those are overloads: their order says nothing
        assert list(ours)[: len(names)] == names
    defaults = dict(zip([each.arg for each in theirs.args][::-1], theirs.defaults[::-1], strict=False))
    for argument, default in defaults.items():
        assert ours[argument].default == ast.literal_eval(default), argument


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_says_what_the_clients_stub_says_of_its_result(name: str) -> None:
    returns = METHODS[name].returns
    said = ast.unparse(returns) if returns is not None else ""
    ours = str(inspect.signature(getattr(KafkaConsumer, name)).return_annotation)
    same = said.replace("List", "list").replace("Tuple", "tuple").replace("Optional[Message]", "Message | None")
    same = same.replace("Optional[bool]", "bool | None")
    assert ours == same or (name == "commit" and ours == "list[TopicPartition] | None")


def test_the_client_itself_has_no_method_that_is_missing() -> None:
    theirs = {name for name in dir(confluent_kafka.Consumer) if not name.startswith("_")}
    assert theirs <= set(dir(KafkaConsumer))
    assert {name for name in dir(confluent_kafka.DeserializingConsumer) if not name.startswith("_")} <= set(
        dir(DeserializingKafkaConsumer)
    )


def test_the_asyncio_client_has_no_method_that_is_missing() -> None:
    theirs = {name for name in dir(AIOConsumer) if not name.startswith("_")}
    ours = set(dir(AIOKafkaConsumer))
    assert theirs - ours == set()
    for name in theirs:
        assert inspect.iscoroutinefunction(getattr(AIOKafkaConsumer, name)), name
