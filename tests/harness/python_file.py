"""`python <file>` for a process that was forked: `fork("tests.harness.python_file", file)`."""

from __future__ import annotations

import runpy
import sys

if __name__ == "__main__":
    runpy.run_path(sys.argv[1], run_name="__main__")
