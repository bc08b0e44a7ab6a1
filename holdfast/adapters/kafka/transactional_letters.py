"""TransactionalLetters: dead letters, and records for retry topics, as outputs of the transaction of their record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.adapters.kafka.dead_letter import KafkaDeadLetters
from holdfast.plugin.handling.outputs import Output
from holdfast.plugin.retrying.dead_letter import forms_of

if TYPE_CHECKING:
    from holdfast.plugin.retrying.dead_letter import Letter
    from holdfast.timing import Deadline


class TransactionalLetters(KafkaDeadLetters):
    """Checks topics as its base does, and sends nothing itself: a letter is what was made of its record."""

    def send(self, letter: Letter, deadline: Deadline) -> None:  # noqa: ARG002 - the port's signature
        """Keep it for the transaction that commits its record. Waits for nothing."""
        owner: Any = letter.record.fence  # the ownership under which it came
        form = forms_of(letter)[0]
        owner.made.put_letter(letter.record.offset, Output(letter.topic, form.key, form.value, form.headers))
