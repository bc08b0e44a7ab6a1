"""What is said where a package that Spark's adapter needs is not installed."""

from __future__ import annotations

import importlib
import sys

import pytest

from holdfast.errors import MissingExtraError


@pytest.mark.parametrize("package", ["pyspark", "pyarrow", "pandas", "py4j"])
def test_a_package_that_is_missing_is_said_with_the_extra_that_brings_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("holdfast.adapters.spark")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # Python's way to say that there is none
    with pytest.raises(MissingExtraError, match=rf"^{package} is not installed: pip install 'holdfast-mq\[spark\]'$"):
        importlib.import_module("holdfast.adapters.spark")
