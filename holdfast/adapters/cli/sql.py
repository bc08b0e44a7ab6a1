"""`holdfast sql schema`: the tables of SqlPositions, as statements for who may make tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.cli import options as shared
from holdfast.adapters.sql.schema import Names, schema_of
from holdfast.errors import SettingError

if TYPE_CHECKING:
    import argparse

    from holdfast.adapters.cli.output import Output

_SCHEMA = """\
  holdfast sql schema | psql "$DATABASE_URL"
  holdfast sql schema postgresql --schema holdfast > migrations/0042_holdfast.sql
  holdfast sql schema sqlite | sqlite3 positions.db

Where the tables are there already, the statements change nothing. The application's user needs SELECT, INSERT and
UPDATE on holdfast_position, SELECT and INSERT on holdfast_key, and SELECT on holdfast_store. Nothing is sent to a
database.
"""


def add(commands: shared.Commands) -> None:
    """The command and its options."""
    whole = commands.add_parser("sql", help="print the tables that SqlPositions needs")
    inner = whole.add_subparsers(title="commands", metavar="COMMAND", required=True)
    made = shared.command(inner, "schema", "print the statements that make the tables", _SCHEMA)
    made.add_argument(
        "kind",
        nargs="?",
        choices=("postgresql", "sqlite"),
        default="postgresql",
        metavar="KIND",
        help="postgresql or sqlite (default: %(default)s)",
    )
    made.add_argument("--schema", metavar="NAME", help="of PostgreSQL, for the tables; it has to exist")
    made.set_defaults(run=run_schema)


def run_schema(options: argparse.Namespace, output: Output) -> int:
    """Print them."""
    if options.kind == "sqlite" and options.schema is not None:
        raise SettingError("schema", options.schema, "leave it out: a SQLite file has none")
    statements = schema_of(options.kind, Names(options.schema))
    output.json({"type": "schema", "kind": options.kind, "sql": statements})
    output.say_all(statements.splitlines())
    return 0
