"""Two packages own the import name `rocketmq`: which one is there, and what is said where it is the wrong one."""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.rocketmq.packages import Package, installed, load_classic, load_grpc
from holdfast.errors import ClientUnusable, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NO_LIBRARY = "raise ImportError('rocketmq dynamic library not found')"
_BROKEN_LIBRARY = "raise OSError('librocketmq.so: wrong ELF class')"


class Site:
    """A folder on the path, in the place of site-packages."""

    def __init__(self, home: Path) -> None:
        self.package = home / "rocketmq"

    def install(self, **files: str) -> None:
        self.package.mkdir(exist_ok=True)
        for name, text in ({"__init__": ""} | files).items():
            path = self.package / f"{name.replace('__v5', 'v5/__init__')}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)

    def classic(self, ffi: str = "") -> None:
        self.install(ffi=ffi, client="from . import ffi\nPushConsumer = object")

    def grpc(self, text: str = "") -> None:
        self.install(__v5=text)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    # Only this folder: what is installed in the environment of the tests is not to decide.
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(sys, "platform", "linux")
    before = {name for name in sys.modules if name.partition(".")[0] == "rocketmq"}
    for name in before:
        monkeypatch.delitem(sys.modules, name)
    yield Site(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "rocketmq"]:
        del sys.modules[name]


def test_each_package_is_known_by_its_files(site: Site) -> None:
    assert installed() is Package.NONE
    site.classic()
    assert installed() is Package.CLASSIC
    site.grpc()
    assert installed() is Package.BOTH


def test_the_grpc_client_is_known(site: Site) -> None:
    site.grpc()
    assert installed() is Package.GRPC
    assert load_grpc("rocketmq.v5").__name__ == "rocketmq.v5"


def test_the_classic_client_is_given(site: Site) -> None:
    site.classic()
    assert load_classic().PushConsumer is object


def test_none_names_the_extra(site: Site) -> None:
    with pytest.raises(MissingExtraError, match=r"pip install 'holdfast-mq\[rocketmq\]'"):
        load_classic()
    with pytest.raises(MissingExtraError, match=r"pip install 'holdfast-mq\[rocketmq5\]'"):
        load_grpc()


def test_the_wrong_one_names_both_and_the_way_out(site: Site) -> None:
    site.grpc()
    with pytest.raises(ClientUnusable, match=r"needs rocketmq-client-python, and .* is installed.*\[rocketmq\]"):
        load_classic()


def test_the_other_wrong_one_too(site: Site) -> None:
    site.classic()
    with pytest.raises(ClientUnusable, match=r"needs rocketmq-python-client, .* is installed.*\[rocketmq5\]"):
        load_grpc()


def test_both_are_refused_by_both(site: Site) -> None:
    site.classic()
    site.grpc()
    with pytest.raises(ClientUnusable, match=r"are both installed.*pip uninstall"):
        load_classic()
    with pytest.raises(ClientUnusable, match=r"are both installed.*pip uninstall"):
        load_grpc()


def test_a_folder_of_that_name_is_not_taken_for_a_client(site: Site) -> None:
    site.install(orders="")
    with pytest.raises(ClientUnusable, match="which is no RocketMQ client: rename it"):
        load_classic()


@pytest.mark.parametrize("ffi", [_NO_LIBRARY, _BROKEN_LIBRARY, "raise AttributeError('undefined symbol: Subscribe')"])
def test_without_its_library_the_sentence_says_where_to_get_one(site: Site, ffi: str) -> None:
    site.classic(ffi)
    with pytest.raises(ClientUnusable, match=rf"==0\.5\.0rc2.*into .*{site.package.name}"):
        load_classic()


@pytest.mark.parametrize("machine", ["arm64", "aarch64"])
def test_elsewhere_than_on_linux_x86_64_another_source_is_named(
    site: Site, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(ClientUnusable, match="use RocketMQSource, which needs no client"):
        load_classic()
    site.classic("raise NotImplementedError('rocketmq-python does not support Windows')")
    with pytest.raises(ClientUnusable, match="use RocketMQSource, which needs no client"):
        load_classic()


def test_a_grpc_client_that_cannot_be_imported_is_one_sentence(site: Site) -> None:
    site.grpc("import a_package_that_is_not_there")
    with pytest.raises(ClientUnusable, match="cannot be imported"):
        load_grpc("rocketmq.v5")
