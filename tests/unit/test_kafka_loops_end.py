"""Loops with KafkaConsumer and AIOKafkaConsumer whose calls wait for what never comes: their processes end."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: No broker listens there, and the client tells its error callback so.
_PROGRAM = """
import asyncio, threading
from holdfast.adapters.kafka import AIOKafkaConsumer

async def told(error):
    await asyncio.sleep(3600)

async def begin():
    conf = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "error_cb": told}
    consumer = AIOKafkaConsumer(conf, claims=None)
    scheduled, schedule = threading.Event(), loop.call_soon_threadsafe
    polls = asyncio.ensure_future(consumer.poll(5.0))
    loop.call_soon_threadsafe = lambda *args, **how: (schedule(*args, **how), scheduled.set())
    return polls, scheduled

loop = asyncio.new_event_loop()
polls, scheduled = loop.run_until_complete(begin())
assert scheduled.wait(30)
%s
loop.close()
"""
_CANCEL = """
def cancelled_at_once(loop, coro, **how):
    task = asyncio.Task(coro, loop=loop, **how)
    task.cancel()
    return task

loop.set_task_factory(cancelled_at_once)
loop.call_later(0.1, loop.stop)
loop.run_forever()
"""


@pytest.mark.parametrize("end", ["", _CANCEL], ids=["never run", "cancelled before its first step"])
def test_a_process_whose_event_loop_ends_in_a_callback_ends(end: str) -> None:
    subprocess.run([sys.executable, "-c", _PROGRAM % end], check=True, timeout=60.0)


#: A broker that takes connections and is silent. Ctrl-C that strikes while the client logs is lost to it.
_POLLS = """
import asyncio, _thread, socket, threading
from holdfast.adapters.kafka import AIOKafkaConsumer, KafkaConsumer
broker = socket.create_server(("127.0.0.1", 0))
conf = {"bootstrap.servers": "127.0.0.1:%d" % broker.getsockname()[1], "group.id": "g"}
"""
_CTRL_C = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, where a shell runs us in the background
consumer = KafkaConsumer(conf, claims=None)
threading.Timer(1.0, _thread.interrupt_main).start()
try:
    consumer.poll()
except KeyboardInterrupt:
    pass
"""
_CLOSE = """
async def run():
    consumer = AIOKafkaConsumer(conf, claims=None)
    polls = asyncio.create_task(consumer.poll())
    await asyncio.sleep(0)
    await consumer.close()
    await asyncio.gather(polls, return_exceptions=True)

asyncio.run(run())
"""


@pytest.mark.parametrize("end", [_CTRL_C, _CLOSE], ids=["Ctrl-C", "close"])
def test_a_loop_that_has_not_subscribed_yet_can_be_ended(end: str) -> None:
    subprocess.run([sys.executable, "-c", _POLLS + end], check=True, timeout=60.0)
