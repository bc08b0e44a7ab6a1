"""`holdfast config`: the settings in force, and where each of them comes from. No credential is shown."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.adapters.cli import options as shared
from holdfast.adapters.cli.output import shown
from holdfast.adapters.cli.run import add_application, add_config

if TYPE_CHECKING:
    from holdfast.adapters.cli.output import Output

_EXAMPLE = """\
  holdfast config
  HOLDFAST_WORKERS=16 holdfast config billing.main:app

HOLDFAST_... in the environment wins over the file, and the file over the program. This is what `holdfast run` applies,
with its own options (run.processes is --processes), which the command line sets.
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
    from holdfast.adapters.cli.running.in_force import Setting  # noqa: PLC0415 - as above
    from holdfast.adapters.cli.running.run_options import settle  # noqa: PLC0415 - as above
    from holdfast.adapters.cli.running.source_settings import settings_of  # noqa: PLC0415 - as above
    from holdfast.plugin.settings import Settings  # noqa: PLC0415 - as above

    chosen = in_force.overrides(options.config)
    code, told = Settings(), list[Setting]()
    if options.application is not None:
        app = load(options.application, factory=options.factory, folder=options.app_dir)
        code = app.parts.settings
        in_force.apply(app, chosen)
        told = [*settings_of(app.parts.source), Setting("store", repr(app.parts.claims), "code")]
    found = [*told, *in_force.in_force(code, chosen), *settle(argparse.Namespace(), options.config)]
    for each in found:
        output.json({"type": "setting", "name": each.name, "value": each.value, "from": each.origin})
    if not output.as_json:
        output.table(
            ("SETTING", "VALUE", "FROM"), [(each.name, shown(str(each.value), 200), each.origin) for each in found]
        )
    return 0
