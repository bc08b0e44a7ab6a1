"""Bodies that a producer has compressed. zlib is Python's own; lz4 and zstd are read where their packages are there."""

from __future__ import annotations

import importlib
import zlib
from typing import TYPE_CHECKING, Any, Final

from holdfast.adapters.rocketmq.remoting.errors import Malformed
from holdfast.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable

#: A body may not become larger: brokers take 4 MiB by default, so this leaves room for who has raised that.
MOST_BYTES: Final = 64 * 1024 * 1024
_EXTRA: Final = "rocketmq-codecs"
_PIECE_BYTES: Final = 512


def decompress(body: bytes, kind: int) -> bytes:
    """The body as it was before.

    Args:
        body: the compressed bytes.
        kind: bits 8 to 10 of the message's sysFlag: 1 lz4, 2 zstd, 3 zlib; 0 is what clients before 5.0 wrote for zlib.

    Raises:
        Malformed: it is none of that kind, or would grow beyond MOST_BYTES.
        MissingExtraError: the kind's package is not installed.
    """
    reader = _READERS.get(kind)
    if reader is None:
        raise Malformed(f"a body compressed in a way that is not known: {kind}")
    plain = reader(body)
    if plain is None:
        raise Malformed("the compressed body is damaged or cut")
    if len(plain) > MOST_BYTES:
        raise Malformed(f"the body would grow beyond {MOST_BYTES} bytes")
    return plain


def _zlib(body: bytes) -> bytes | None:
    reader = zlib.decompressobj()
    try:
        plain = reader.decompress(body, MOST_BYTES + 1)
    except zlib.error:
        return None
    return plain if reader.eof or len(plain) > MOST_BYTES else None


def _lz4(body: bytes) -> bytes | None:
    reader = _package("lz4.frame", "lz4").LZ4FrameDecompressor()
    try:
        plain: bytes = reader.decompress(body, max_length=MOST_BYTES + 1)
    except RuntimeError:  # that is what the package raises
        return None
    return plain if reader.eof or len(plain) > MOST_BYTES else None


def _zstd(body: bytes) -> bytes | None:
    package = _package("zstandard", "zstandard")
    reader = package.ZstdDecompressor(max_window_size=MOST_BYTES).decompressobj()
    plain = bytearray()
    try:
        # It takes no bound for what it gives, so it gets little at a time: a block of at most 128 KiB needs 4 bytes.
        for at in range(0, len(body), _PIECE_BYTES):
            plain += reader.decompress(body[at : at + _PIECE_BYTES])
            if reader.eof or len(plain) > MOST_BYTES:
                return bytes(plain)
    except package.ZstdError:
        return None
    return None


def _package(module: str, package: str) -> Any:  # noqa: ANN401 - neither has types
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtraError(package, _EXTRA) from None


_READERS: dict[int, Callable[[bytes], bytes | None]] = {0: _zlib, 1: _lz4, 2: _zstd, 3: _zlib}
