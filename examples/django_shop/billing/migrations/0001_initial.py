"""The table of bills."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """As `makemigrations` writes it."""

    initial = True
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar = [
        migrations.CreateModel(
            name="Bill",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("order_id", models.CharField(db_index=True, max_length=64)),
                ("cents", models.PositiveIntegerField()),
                ("billed_at", models.DateTimeField(auto_now_add=True)),
            ],
        )
    ]
