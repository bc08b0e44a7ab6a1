"""The least of an HTTP client on asyncio's streams: one POST a connection. Use httpx or aiohttp in its place."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit


async def post(url: str, body: bytes, headers: dict[str, str]) -> int:
    """Send a body; returns the answer's status.

    Raises:
        OSError: no connection, or it broke.
    """
    to = urlsplit(url)
    reader, writer = await asyncio.open_connection(to.hostname, to.port or 80)
    try:
        lines = [f"POST {to.path or '/'} HTTP/1.1", f"Host: {to.netloc}", f"Content-Length: {len(body)}"]
        lines += ["Connection: close", *(f"{name}: {value}" for name, value in headers.items())]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await writer.drain()
        answer = await reader.readline()
        if not answer.startswith(b"HTTP/"):
            raise ConnectionResetError(f"{to.netloc} closed the connection without an answer")
        return int(answer.split()[1])
    finally:
        writer.close()
