"""`holdfast config`: the settings in force, and where each of them comes from. No credential is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.cli import options as shared
from holdfast.adapters.cli.output import shown
from holdfast.adapters.cli.run import add_application, add_config

if TYPE_CHECKING:
    import argparse

    from holdfast.adapters.cli.output import Output

_EXAMPLE = """\
  holdfast config
  HOLDFAST_WORKERS=16 holdfast config billing.main:app

HOLDFAST_... in the environment wins over the file, and the file over the program. This is what `holdfast run` applies.
"""


def add(commands: shared.Commands) -> None:
    """The command."""
    made = shared.command(commands, "config", "the settings in force, and where each comes from", _EXAMPLE)
    add_application(made, required=False)
    add_config(made)
    made.set_defaults(run=run, logs_itself=True)


def run(options: argparse.Namespace, output: Output) -> int:
    """Tell. Raises SettingError, ImportFailed."""
    from holdfast.adapters.cli.running import in_force  # noqa: PLC0415 - a command loads what it uses
    from holdfast.adapters.cli.running.application import load  # noqa: PLC0415 - as above
    from holdfast.plugin.settings import Settings  # noqa: PLC0415 - as above

    chosen = in_force.overrides(options.config)
    code = Settings()
    if options.application is not None:
        app = load(options.application, factory=options.factory, folder=options.app_dir)
        code = app.parts.settings
        in_force.apply(app, chosen)
        output.say(f"source: {shown(repr(app.parts.source), 2_000)}")
        output.say(f"store: {shown(repr(app.parts.claims), 2_000)}")
        output.say()
    found = list(in_force.in_force(code, chosen))
    for each in found:
        output.json({"type": "setting", "name": each.name, "value": each.value, "from": each.origin})
    if not output.as_json:
        output.table(("SETTING", "VALUE", "FROM"), [(each.name, str(each.value), each.origin) for each in found])
    return 0
