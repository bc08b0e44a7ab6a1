"""A web hook that its sender delivers twice at once, and again later: as in aiohttp, FastAPI or Django.

python examples/idempotent/web_hook.py --redis redis://localhost:6379/0
"""

from __future__ import annotations

import argparse
import asyncio
import uuid
from typing import Any

from holdfast import KeyBusy, RedisClaims, idempotent


async def main() -> None:
    """Deliver an event three times."""
    parser = argparse.ArgumentParser(description="Each event is handled once.")
    parser.add_argument("--redis", default="redis://localhost:6379/0")
    claims = RedisClaims.from_url(parser.parse_args().redis, namespace=f"example-{uuid.uuid4()}")
    handled: list[str] = []
    began, may_end = asyncio.Event(), asyncio.Event()

    @idempotent(claims, key="event.id", name="hooks.paid", on_busy="raise")
    async def paid(event: dict[str, Any]) -> dict[str, str]:
        handled.append(event["id"])
        began.set()
        await may_end.wait()
        return {"receipt": f"for {event['id']}"}

    async def hook(event: dict[str, Any]) -> tuple[int, object]:
        """What a route does: a status, and a body."""
        try:
            return 200, await paid(event)
        except KeyBusy as error:
            return 409, str(error)  # the sender delivers it again later

    event = {"id": "evt_1", "amount": 5}
    first = asyncio.create_task(hook(event))
    await began.wait()
    second = await hook(event)
    may_end.set()
    answers = [await first, second, await hook(event)]
    await asyncio.to_thread(claims.close)
    for status, body in answers:
        print(status, body)
    if handled != ["evt_1"] or [status for status, _ in answers] != [200, 409, 200] or answers[0] != answers[2]:
        raise SystemExit("the event was handled twice, or never")
    print("delivered 3 times, handled once")


if __name__ == "__main__":
    asyncio.run(main())
