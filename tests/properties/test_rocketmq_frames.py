"""RocketMQ's frames: any stream, in any pieces, is commands or one clear error."""

from __future__ import annotations

import json
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.rocketmq.remoting.answers import Malformed, loose_json
from holdfast.adapters.rocketmq.remoting.frame import MOST_BYTES, Command, FrameReader, decode, encode

int32 = st.integers(-(1 << 31), (1 << 31) - 1)
fields = st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4)
commands = st.builds(
    Command,
    int32,
    int32,
    st.integers(0, 3),
    st.none() | st.text(min_size=1, max_size=9),
    fields,
    st.binary(max_size=64),
)


def binary(command: Command) -> bytes:
    """The frame with a binary header, as a broker with -Drocketmq.serialize.type=ROCKETMQ writes it."""
    remark = (command.remark or "").encode()
    pairs = b"".join(
        struct.pack(">h", len(key.encode())) + key.encode() + struct.pack(">i", len(value.encode())) + value.encode()
        for key, value in command.fields.items()
    )
    header = struct.pack(">hbhiii", command.code, 0, 453, command.opaque, command.flag, len(remark)) + remark
    header += struct.pack(">i", len(pairs)) + pairs
    return struct.pack(">ii", 4 + len(header) + len(command.body), 1 << 24 | len(header)) + header + command.body


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    at = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[first:last] for first, last in pairwise(at)]


def read(stream: bytes, cuts: list[int]) -> tuple[list[Command], bool]:
    """The commands, and whether the stream was found malformed."""
    reader, found = FrameReader(), []
    try:
        for piece in pieces(stream, cuts):
            for command in reader.feed(piece):
                found.append(command)  # noqa: PERF402 - those before an error count
    except Malformed:
        return found, True
    return found, False


@given(st.lists(commands, max_size=5), st.lists(st.integers(0, 10_000), max_size=8))
def test_what_was_written_is_read_in_whatever_pieces_it_arrives(sent: list[Command], cuts: list[int]) -> None:
    assert read(b"".join(map(encode, sent)), cuts) == (sent, False)


@given(commands.map(lambda each: each._replace(code=each.code % 32768)))
def test_a_binary_header_says_the_same(command: Command) -> None:
    assert decode(binary(command)[4:]) == command


@given(st.lists(commands, max_size=2), st.binary(max_size=60), st.lists(st.integers(0, 1000), max_size=5))
def test_any_stream_is_commands_or_malformed_and_pieces_make_no_difference(
    sent: list[Command], rest: bytes, cuts: list[int]
) -> None:
    stream = b"".join(map(encode, sent)) + rest
    found, malformed = read(stream, cuts)
    assert (found, malformed) == read(stream, [])
    assert found[: len(sent)] == sent


@given(st.sampled_from([0, 1 << 24, 2 << 24]), st.integers(0, 200), st.binary(max_size=200))
def test_any_header_is_a_command_or_malformed(kind: int, length: int, rest: bytes) -> None:
    try:
        assert isinstance(decode(struct.pack(">i", kind | length) + rest), Command)
    except Malformed:
        return


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
headers = st.dictionaries(
    st.sampled_from(["code", "opaque", "flag", "remark", "extFields", "language"]), json_values, max_size=6
)


@given(headers)
def test_a_header_with_anything_in_its_places_is_a_command_of_right_kinds_or_malformed(
    header: dict[str, object],
) -> None:
    text = json.dumps(header).encode()
    try:
        command = decode(struct.pack(">i", len(text)) + text)
    except Malformed:
        return
    assert all(type(number) is int for number in command[:3])
    assert all(type(part) is str for pair in command.fields.items() for part in pair)


@pytest.mark.parametrize("length", [-1, 0, 3, MOST_BYTES + 1])
def test_a_length_that_cannot_be_is_refused_before_anything_is_waited_for(length: int) -> None:
    with pytest.raises(Malformed, match="is this RocketMQ"):
        list(FrameReader().feed(struct.pack(">i", length)))


def test_a_frame_that_no_server_takes_is_not_sent() -> None:
    with pytest.raises(Malformed, match="less at a time"):
        encode(Command(310, 1, body=bytes(MOST_BYTES)))


def test_a_header_nested_without_end_is_malformed() -> None:
    text = b"[" * 200_000
    with pytest.raises(Malformed):
        decode(struct.pack(">i", len(text)) + text)


# -- what RocketMQ calls JSON

scalars = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=6)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.integers(0, 1 << 62), values, max_size=4))
def test_keys_without_quotes_are_read(found: dict[int, object]) -> None:
    text = "{" + ",".join(f"{key}:{json.dumps(value)}" for key, value in found.items()) + "}"
    assert loose_json(text.encode()) == {str(key): value for key, value in found.items()}


@given(st.lists(st.tuples(st.dictionaries(st.text(max_size=4), values, max_size=3), values), min_size=1, max_size=3))
def test_keys_that_are_objects_are_read(pairs: list[tuple[object, object]]) -> None:
    text = "{" + ", ".join(f"{json.dumps(key)} : {json.dumps(value)}" for key, value in pairs) + "}"
    assert loose_json(text.encode()) == pairs


@given(st.text(alphabet='{}[]:,"\\0123456789.-+eE aut\u0661', max_size=60) | st.text(max_size=20))
def test_any_text_is_json_of_this_kind_or_malformed(text: str) -> None:
    try:
        loose_json(text.encode("utf-8", "surrogatepass"))
    except Malformed:
        return


def test_depth_without_end_and_numbers_without_end_are_malformed() -> None:
    for body in (b"{1:" * 100_000, b"[" * 100_000, b"{1:" + b"9" * 100_000 + b"}"):
        with pytest.raises(Malformed):
            loose_json(body)
