"""What is stored."""

from __future__ import annotations

from django.db import models


class Bill(models.Model):
    """One for each time that an order was billed.

    No unique order_id, so that one could see an order that was billed twice. In a shop of your own have it unique, and
    write with `get_or_create`: then a crash between the write and its mark in Redis does no harm either.
    """

    order_id = models.CharField(max_length=64, db_index=True)
    cents = models.PositiveIntegerField()
    billed_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.order_id}: {self.cents}"
