"""A billing service over HTTP that can be told to misbehave. Standard library only; no model for one of yours.

    python -m examples.http.service --fail-first 2 --refuse 7 --slow-s 0.2

POST /bills with an order as JSON and its id as `Idempotency-Key`. Each answer is a line of its output.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import Counter
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Billing:
    """What the service knows, and how it misbehaves.

    Args:
        fail_first: how often each order gets 503 before it is billed.
        refuse: each order whose id ends so gets 422, for ever.
        slow_s: how long each answer takes.
    """

    def __init__(self, *, fail_first: int, refuse: str | None, slow_s: float) -> None:
        self._fail_first, self._refuse, self._slow_s = fail_first, refuse, slow_s
        self._asked: Counter[str] = Counter()
        self._billed: set[str] = set()
        self._lock = threading.Lock()

    def bill(self, order_id: str) -> HTTPStatus:
        """Bill an order, once. 201: billed; 200: it was billed before; 422: never; 503: not now."""
        time.sleep(self._slow_s)
        with self._lock:
            self._asked[order_id] += 1
            if self._refuse is not None and order_id.endswith(self._refuse):
                return HTTPStatus.UNPROCESSABLE_ENTITY
            if self._asked[order_id] <= self._fail_first:
                return HTTPStatus.SERVICE_UNAVAILABLE
            if order_id in self._billed:
                return HTTPStatus.OK
            self._billed.add(order_id)
            return HTTPStatus.CREATED


def server(billing: Billing, port: int) -> ThreadingHTTPServer:
    """The service on the loopback; port 0: any that is free."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name is the library's
            body = self.rfile.read(int(self.headers["Content-Length"]))
            order_id = self.headers["Idempotency-Key"] or json.loads(body)["order_id"]
            status = billing.bill(order_id)
            sys.stdout.write(f"{order_id} {status.value}\n")  # threads: print would write the end of the line by itself
            sys.stdout.flush()
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as http.server has it
            """Our own line is enough."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def main() -> None:
    """Serve until Ctrl-C."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    options.add_argument("--port", type=int, default=8080, help="on the loopback (%(default)s); 0: any")
    options.add_argument("--fail-first", type=int, default=0, metavar="N", help="503 for the first N tries of an order")
    options.add_argument("--refuse", metavar="END", help="422 for orders whose id ends so")
    options.add_argument("--slow-s", type=float, default=0.0, metavar="S", help="seconds that each answer takes")
    asked = options.parse_args()
    serving = server(Billing(fail_first=asked.fail_first, refuse=asked.refuse, slow_s=asked.slow_s), asked.port)
    print(f"serving http://127.0.0.1:{serving.server_port}/bills", flush=True)
    try:
        serving.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        serving.server_close()


if __name__ == "__main__":
    main()
