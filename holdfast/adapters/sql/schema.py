"""The tables of SqlPositions, as SQL to print and to run.

holdfast_store has one row: the database's name for holdfast, and the version of this layout. holdfast_key has a row a
business key of handlers with `transaction=` and `key=`: in which scope and when it was handled. holdfast_position has
one row a partition (a stripe; further ones may follow):

| column | what it holds |
|---|---|
| name | group, cluster, topic, topic id, partition |
| owner | the acquire that owns it now; never used again, whatever the database loses |
| free | that owner has let it go |
| epoch, born_ms | their sum is the fence that handlers see; it rises with each acquire |
| version | counts the changes of watermark and done; a lower one than the owner's own: the database has lost some |
| begun | an owner has stated the watermark |
| watermark, done | all below is done, and these offsets above it (`offsets.py`) |
| again | after a reset: what lies below was known before it |
"""

from __future__ import annotations

import re
from typing import Literal

from holdfast.errors import SettingError

Kind = Literal["postgresql", "sqlite"]

#: The version of the layout.
LAYOUT = 1

#: fillfactor: an update stays in its page, and in no index (HOT), so that the table does not grow.
#: COLLATE "C": rows are locked in the order of their names by each member and each statement, also by Python's.
_POSTGRESQL = """\
CREATE TABLE IF NOT EXISTS {position} (
    name text COLLATE "C" NOT NULL,
    stripe smallint NOT NULL,
    owner uuid,
    free boolean NOT NULL,
    epoch bigint NOT NULL,
    born_ms bigint NOT NULL,
    version bigint NOT NULL,
    begun boolean NOT NULL,
    watermark bigint NOT NULL,
    done bytea NOT NULL,
    again bigint NOT NULL,
    PRIMARY KEY (name, stripe)
) WITH (fillfactor = 40);
CREATE TABLE IF NOT EXISTS {store} (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    id uuid NOT NULL,
    layout integer NOT NULL
);
CREATE TABLE IF NOT EXISTS {key} (
    scope text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (scope, key)
);
CREATE INDEX IF NOT EXISTS holdfast_key_at ON {key} (at);
INSERT INTO {store} (id, layout) VALUES (gen_random_uuid(), {layout}) ON CONFLICT DO NOTHING;
"""

_SQLITE = """\
CREATE TABLE IF NOT EXISTS {position} (
    name TEXT NOT NULL,
    stripe INTEGER NOT NULL,
    owner TEXT,
    free INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    born_ms INTEGER NOT NULL,
    version INTEGER NOT NULL,
    begun INTEGER NOT NULL,
    watermark INTEGER NOT NULL,
    done BLOB NOT NULL,
    again INTEGER NOT NULL,
    PRIMARY KEY (name, stripe)
);
CREATE TABLE IF NOT EXISTS {store} (
    single INTEGER PRIMARY KEY CHECK (single = 1),
    id TEXT NOT NULL,
    layout INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS {key} (
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (scope, key)
);
CREATE INDEX IF NOT EXISTS holdfast_key_at ON {key} (at);
INSERT INTO {store} (single, id, layout) VALUES (1, lower(hex(randomblob(16))), {layout}) ON CONFLICT DO NOTHING;
"""


class Names:
    """The tables' names in a schema.

    Args:
        schema: None = where the connection's search_path leads.

    Raises:
        SettingError: it is no plain name.
    """

    def __init__(self, schema: str | None = None) -> None:
        if schema is not None and not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
            raise SettingError("schema", schema, "give a name of small letters, digits and underscores")
        before = "" if schema is None else f'"{schema}".'
        self.position, self.store = f"{before}holdfast_position", f"{before}holdfast_store"
        self.key = f"{before}holdfast_key"


def schema_of(kind: Kind, names: Names) -> str:
    """The statements that make the tables. Where they are there already, these change nothing."""
    text = _POSTGRESQL if kind == "postgresql" else _SQLITE
    return text.format(position=names.position, store=names.store, key=names.key, layout=LAYOUT)
