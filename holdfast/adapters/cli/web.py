"""`holdfast web`: the page of a whole group, served by a process that is no member of it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from holdfast.adapters.cli import options as shared
from holdfast.adapters.cli.arguments import port, token
from holdfast.dedup.redis_coordinator import RedisCoordinator

if TYPE_CHECKING:
    import argparse

    from holdfast.adapters.cli.options import Commands
    from holdfast.adapters.cli.output import Output

_EXAMPLE = """\
  holdfast web --group billing --redis redis://localhost:6379/0
  holdfast web --group billing --redis @redis.url --port 9470

Ctrl-C ends it. Members tell of themselves while they serve a page: `holdfast run --port`, or serve(...).
"""


def add(commands: Commands) -> None:
    """The command and its options."""
    made = shared.command(commands, "web", "a page that shows all members of a group, for a browser", _EXAMPLE)
    shared.add_group(made)
    shared.add_redis(made, "where its members tell of themselves")
    made.add_argument("--host", default="127.0.0.1", help="the address to listen at (default: %(default)s)")
    made.add_argument("--port", type=port, default=9465, metavar="N", help="0: any free one (default: %(default)s)")
    made.add_argument(
        "--token",
        type=token,
        metavar="TEXT",
        help="the page asks for it; needed at an address that others may reach (default: none)",
    )
    made.set_defaults(run=run)


def run(options: argparse.Namespace, output: Output) -> int:
    """Serve until Ctrl-C. Raises SettingError, StoreError."""
    from holdfast.adapters.watching.endpoint import serve_group  # noqa: PLC0415 - a command loads what it uses

    with (
        shared.claims_of(options) as store,
        serve_group(
            RedisCoordinator(store), options.group, host=options.host, port=options.port, token=options.token
        ) as endpoint,
    ):
        output.json({"type": "serving", "url": endpoint.url})
        output.say(f"{options.group}: {endpoint.url}/ until Ctrl-C")
        threading.Event().wait()
    return 0
