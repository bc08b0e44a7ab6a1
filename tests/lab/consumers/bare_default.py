"""confluent-kafka as its README begins: poll, handle, close; offsets are committed by the client each 5 s."""

from __future__ import annotations

from confluent_kafka import Consumer

from tests.lab.consumers.member import Work, place, told, until_terminated


def main() -> None:
    """Consume until SIGTERM."""
    member, stopping = told(), until_terminated()
    work = Work(member)
    consumer = Consumer(member.classic)
    consumer.subscribe([member.topic])
    try:
        while not stopping.is_set():
            message = consumer.poll(0.5)
            if message is not None and (found := place(message)) is not None:
                work.do(*found)
    finally:
        consumer.close()


if __name__ == "__main__":
    main()
