"""Django's command line, for this project.

To run it:

    python -m examples.shop 20
    python -m examples.django_shop.manage migrate
    python -m examples.django_shop.manage bill   # until SIGTERM or Ctrl-C
"""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line


def main() -> None:
    """Run the command that is asked for."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.django_shop.settings")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
