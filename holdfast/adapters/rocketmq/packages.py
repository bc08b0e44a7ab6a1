"""Finds which Python client for RocketMQ is installed. Two packages have the import name `rocketmq`:

rocketmq-client-python (classic: `rocketmq.ffi` over the C++ client, the extra `rocketmq`) and
rocketmq-python-client (`rocketmq.v5` over gRPC, the extra `rocketmq5`). Installed together, one overwrites files of the
other. Therefore their files are checked before a module of theirs is imported.
"""

from __future__ import annotations

import importlib
import platform
import sys
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import ClientUnusable, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

_UNINSTALL = "pip uninstall -y rocketmq-client-python rocketmq-python-client"


class Package(Enum):
    """The package that `import rocketmq` would find: the value is its name."""

    NONE = ""
    CLASSIC = "rocketmq-client-python"
    GRPC = "rocketmq-python-client"
    BOTH = "rocketmq-client-python and rocketmq-python-client"
    FOREIGN = "neither"  #: for example a folder of the application


_EXTRA = {Package.CLASSIC: "rocketmq", Package.GRPC: "rocketmq5"}


def installed() -> Package:
    """Find the installed package by its files, without an import."""
    return _package_in(_folders())


def load_classic() -> ModuleType:
    """`rocketmq.client` of rocketmq-client-python, with its native library.

    Raises:
        MissingExtraError: it is not installed, and it has a wheel for this platform.
        ClientUnusable: the other package or both are installed, the native library is missing, or there is no wheel for
            this platform; with the remedy.
    """
    _require(Package.CLASSIC)
    try:
        return importlib.import_module("rocketmq.client")
    except (ImportError, OSError, NotImplementedError, AttributeError) as error:
        # ctypes may raise any of these: the library is missing, or built for another machine.
        raise ClientUnusable(_without_library(_folders(), error)) from error


def load_grpc(name: str = "rocketmq") -> ModuleType:
    """Import a module of rocketmq-python-client.

    Raises:
        MissingExtraError: it is not installed.
        ClientUnusable: the other package or both are installed, or it cannot be imported; with the remedy.
    """
    _require(Package.GRPC)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ClientUnusable(
            f"rocketmq-python-client is installed and cannot be imported ({error}): pip install --force-reinstall "
            "'holdfast-mq[rocketmq5]'"
        ) from error


def _require(wanted: Package) -> None:
    found = installed()
    if found is wanted:
        return
    if found is Package.NONE and wanted is Package.CLASSIC and not _has_wheel():
        raise ClientUnusable(_no_wheel_text())
    if found is Package.NONE:
        raise MissingExtraError(wanted.value, _EXTRA[wanted])
    if found is Package.FOREIGN:
        raise ClientUnusable(
            f"the import name 'rocketmq' belongs to {', '.join(map(str, _folders())) or 'a module'}, which is no "
            f"RocketMQ client: rename it, then pip install 'holdfast-mq[{_EXTRA[wanted]}]'"
        )
    have = "are both" if found is Package.BOTH else "is"
    raise ClientUnusable(
        f"this needs {wanted.value}, and {found.value} {have} installed; both own the import name 'rocketmq', so that "
        f"only one of them works in an environment: {_UNINSTALL}; pip install 'holdfast-mq[{_EXTRA[wanted]}]'"
    )


def _folders() -> list[Path]:
    try:
        spec = find_spec("rocketmq")
    except ValueError:  # `rocketmq` is in sys.modules without a spec
        return []
    return [Path(each) for each in (spec.submodule_search_locations or ())] if spec is not None else []


def _package_in(folders: Iterable[Path]) -> Package:
    folders = list(folders)
    classic = any((folder / "ffi.py").exists() for folder in folders)
    grpc = any((folder / "v5").is_dir() for folder in folders)
    if classic and grpc:
        return Package.BOTH
    if classic or grpc:
        return Package.CLASSIC if classic else Package.GRPC
    # pip leaves a folder behind if files were created in it later. A folder with only caches is no package.
    left = any(each.suffix in {".py", ".so"} for folder in folders for each in folder.iterdir())
    return Package.FOREIGN if left else Package.NONE


def _has_wheel() -> bool:
    return sys.platform == "linux" and platform.machine() in {"x86_64", "AMD64"}


def _no_wheel_text() -> str:
    return (
        "rocketmq-client-python brings its native library for Linux x86-64 alone, and this is "
        f"{platform.system()} {platform.machine()}: use RocketMQSource, which needs no client; or pip install "
        "rocketmq-client-python==2.0.0 and put a librocketmq that you built from github.com/apache/rocketmq-client-cpp "
        "beside its ffi.py"
    )


def _without_library(folders: Iterable[Path], error: Exception) -> str:
    if not _has_wheel():
        return f"rocketmq-client-python has no native library that works here ({error}). {_no_wheel_text()}"
    folder = next(iter(folders), Path("rocketmq"))
    return (
        f"rocketmq-client-python is installed, and its native library cannot be used ({error}): pip install "
        "'rocketmq-client-python==0.5.0rc2', which carries it; or put librocketmq.so and the folder .libs of that "
        f"wheel into {folder}"
    )
