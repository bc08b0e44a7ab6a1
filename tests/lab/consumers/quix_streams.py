"""quix-streams, as in its quickstart: a StreamingDataFrame and `update`."""

from __future__ import annotations

from quixstreams import Application, message_context

from tests.lab.consumers.member import Work, quiet_home, told


def main() -> None:
    """Consume until SIGTERM."""
    member = told()
    quiet_home()
    work = Work(member)
    app = Application(
        broker_address=member.bootstrap,
        consumer_group=member.group,
        auto_offset_reset="earliest",
        loglevel="WARNING",
        consumer_extra_config={"client.id": member.name, **member.timeouts},
    )

    def handle(value: bytes) -> None:
        place = message_context()
        work.do(place.partition, place.offset, value)

    frame = app.dataframe(app.topic(member.topic, value_deserializer="bytes"))
    frame = frame.update(handle)
    app.run()


if __name__ == "__main__":
    main()
