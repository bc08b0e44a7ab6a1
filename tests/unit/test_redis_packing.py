"""What goes to a server is what redis-py would send, byte for byte; and a batch of keys is named as each alone is."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import DataError

from holdfast.dedup.claims import ClaimKey
from holdfast.dedup.redis_client import pack
from holdfast.dedup.redis_layout import Layout

arguments = st.one_of(st.binary(max_size=40), st.text(max_size=10), st.integers(), st.floats(allow_nan=False))
names = st.one_of(st.sampled_from(["GET", "CONFIG GET", b"EVALSHA"]))


#: Packs as redis-py does; connects to nothing.
CONNECTION: Any = redis.Connection(protocol=2)  # type: ignore[no-untyped-call]


def redis_pys(command: list[Any]) -> bytes:
    return b"".join(CONNECTION.pack_command(*command))


@given(names, st.lists(arguments, max_size=12))
def test_a_command_is_packed_as_redis_py_packs_it(name: str | bytes, args: list[Any]) -> None:
    try:
        wanted = redis_pys([name, *args])
    except UnicodeEncodeError:
        with pytest.raises(UnicodeEncodeError):
            pack(name, *args)
        return
    assert pack(name, *args) == wanted


def test_a_long_one_goes_in_one_piece() -> None:
    command = ["EVALSHA", *[b"key %d" % n for n in range(2000)], b"x" * 20_000]
    assert pack("EVALSHA", *command[1:]) == redis_pys(command)


@pytest.mark.parametrize("value", [None, True, ["a"]])
def test_what_is_no_argument_is_refused_as_by_redis_py(value: object) -> None:
    for packs in (pack, lambda *command: redis_pys([*command])):
        with pytest.raises(DataError):
            packs("SET", b"k", value)


keys = st.builds(ClaimKey, st.sampled_from(["a", "a:b", "line\nbreak"]), st.text(max_size=8) | st.just("x" * 600))


@pytest.mark.parametrize("layout", [{"hash_keys": False}, {"hash_keys": True, "shards": 3}], ids=["plain", "digests"])
@given(found=st.lists(keys | st.sampled_from([ClaimKey("a", "\ud800"), ClaimKey("a", "\udc00")]), max_size=6))
def test_a_key_has_one_name_whatever_is_asked_for_beside_it(layout: dict[str, Any], found: list[ClaimKey]) -> None:
    made = Layout("n", layout.get("shards", 1), hash_keys=layout["hash_keys"])
    each = [made.names_of([key]) for key in found]
    assert [[name] for name in made.names_of(found)] == each
    assert len({name for [name] in each}) == len(set(found))
