"""`manage.py bill`: the consumer as a process of its own."""

from __future__ import annotations

from django.core.management.base import BaseCommand

from examples.django_shop.billing.consumer import make_app


class Command(BaseCommand):
    """Django finds it by its module's name."""

    help = "Bill orders until SIGTERM or Ctrl-C."

    def handle(self, *_: object, **__: object) -> None:
        """In the main thread: `run()` answers SIGTERM and Ctrl-C."""
        make_app().run()
