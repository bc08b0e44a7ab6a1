"""Settings of the project: those that a consumer needs. A web site has more."""

from __future__ import annotations

import os

INSTALLED_APPS = ["examples.django_shop.billing"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("DATABASE", "shop.sqlite3"),
        # Handlers run in several threads, and members in several processes. SQLite lets one of them write at a time:
        # the others wait for up to `timeout` seconds. A transaction that only becomes a writer after it has read cannot
        # wait, and fails with "database is locked": hence IMMEDIATE. WAL: who reads does not wait for who writes.
        "OPTIONS": {
            "timeout": 20,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
        },
        # A handler's thread keeps its connection from one record to the next; with 0, Django's default, it opens one
        # for each record. A connection that the server has closed meanwhile is noticed, and replaced.
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
    }
}

KAFKA = {"bootstrap.servers": os.environ.get("KAFKA", "localhost:9092"), "group.id": "billing-django"}
REDIS_URL = os.environ.get("REDIS", "redis://localhost:6379/0")
ORDERS_TOPIC = os.environ.get("TOPIC", "orders")

LOGGING = {  # what holdfast tells: who has which partitions, rebalances, a line a minute
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "loggers": {"holdfast": {"handlers": ["console"], "level": "INFO"}},
}
