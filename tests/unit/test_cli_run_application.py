"""`holdfast run`: from module:attribute to the app, and the sentences where that cannot be."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.cli import main
from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Told = Callable[..., str]

APP = """
from holdfast import Holdfast, MemoryClaims
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource

class Shop:
    def __init__(self, group="billing"):
        self.app = Holdfast(MemoryPartitionedSource(MemoryBroker(orders=2), group), claims=MemoryClaims())

        @self.app.handler(["orders", "^refunds-.*"], name="bill")
        def bill(record): ...

shop = Shop()
app = shop.app
bare = Holdfast(MemoryPartitionedSource(MemoryBroker(orders=2), "bare"), claims=MemoryClaims())
"""
#: Says whether what its own hook has made is frozen, and whether the collector runs seldom; then stops.
LOOKS = """
import gc
from holdfast import Holdfast, MemoryClaims
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource

broker = MemoryBroker(orders=1)
broker.produce("orders", 0, "first")
app = Holdfast(MemoryPartitionedSource(broker, "g"), claims=MemoryClaims())
kept = []

@app.on_startup
def make():
    kept.append([])

@app.handler("orders")
def look(record):
    print(not any(each is kept[0] for each in gc.get_objects()), int(gc.get_threshold()[0] >= 10_000))
    app.stop()
"""
FACTORIES = """
from shop import Shop

def make(group="made"): return Shop(group).app
def asks(group): return Shop(group).app
def nothing(): ...
def fails(): raise LookupError("no such till")
async def later(): return Shop().app
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of modules, which no other test sees."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("shop", "factories", "broken", "script"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a module that is written anew within a second
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "factories.py").write_text(FACTORIES)
    return tmp_path


@pytest.fixture
def told(folder: Path, capsys: pytest.CaptureFixture[str]) -> Told:
    """What `holdfast run --check` says, where its exit code is as expected."""

    def run(*arguments: str, code: int) -> str:
        assert main(["run", *arguments, "--check", "--offline", "--app-dir", str(folder)]) == code
        said = capsys.readouterr()
        return said.err if code == 2 else said.out

    return run


@pytest.mark.parametrize("target", ["shop:app", "shop:shop.app"])
def test_an_app_is_found_by_its_attribute(told: Told, target: str) -> None:
    lines = told(target, code=0).splitlines()
    assert lines[0].split() == ["ok", "import", target, "is", "the", "app", "of", "group", "billing"]
    [handlers] = [line for line in lines if line.split()[1] == "handlers"]
    assert "1 handler: orders, ^refunds-.* by bill" in handlers


def test_a_factory_is_called(told: Told) -> None:
    assert "the app of group made" in told("factories:make", "--factory", code=0)


def test_programs_get_a_value_a_check(told: Told) -> None:
    checks = [json.loads(line) for line in told("shop:app", "--json", code=0).splitlines()]
    assert {each["type"] for each in checks} == {"check"}
    assert [(each["check"], each["result"]) for each in checks] == [
        ("import", "ok"),
        ("settings", "ok"),
        ("handlers", "ok"),
        ("broker", "skipped"),
    ]


def test_what_cannot_run_is_a_check_that_fails(told: Told) -> None:
    [line] = [line for line in told("shop:bare", code=1).splitlines() if line.startswith("error")]
    assert line.split()[1] == "handlers"
    assert "register at least one handler" in line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["shop"], "write it as module:attribute, such as billing.main:app"),
        (["shop:"], "write it as module:attribute"),
        (["shop:app()"], "write it as module:attribute"),
        (["./billing/main.py:app"], "this is a file: say its module, such as billing.main:app"),
        (["/srv/main.py"], "this is a file: say its module, such as main:app --app-dir /srv"),
        (["shpo:app"], "there is no module shpo, looked for in "),
        (["shop.main:app"], "there is no module shop.main, looked for in "),
        (["shop:ap"], "shop has no ap: did you mean app"),
        (["shop:shop.ap"], "Shop shop:shop.ap has no ap: did you mean app?"),
        (["shop:Shop"], "this is a function or class, no app: say --factory"),
        (["shop:shop"], "this is a Shop, no Holdfast: name the app itself"),
        (["shop:app", "--factory"], "--factory wants a function, and this is a Holdfast: leave it out"),
        (["factories:asks", "--factory"], "the factory is called without arguments: give its parameters defaults"),
        (["factories:nothing", "--factory"], "the factory returned a NoneType, no Holdfast"),
        (["factories:later", "--factory"], "the factory is an async def: let a plain function return the app"),
    ],
)
def test_what_is_no_app_is_told_in_a_sentence(told: Told, arguments: list[str], says: str) -> None:
    line = told(*arguments, code=2)
    assert says in line
    assert line.startswith("holdfast: MODULE:APP='")
    assert len(line.splitlines()) == 1


def test_what_the_user_s_module_raises_is_shown_from_its_own_line_on(told: Told, folder: Path) -> None:
    (folder / "broken.py").write_text("import json\n\njson.loads('{')\n")
    lines = told("broken:app", code=2).splitlines()
    assert lines[0].startswith("holdfast: importing broken failed (JSONDecodeError)")
    assert lines[2] == f'    File "{folder}/broken.py", line 3, in <module>'
    assert lines[-1].startswith("  json.decoder.JSONDecodeError: ")


def test_a_module_that_the_user_s_own_module_misses_is_not_taken_for_the_app_s(told: Told, folder: Path) -> None:
    (folder / "broken.py").write_text("import no_such_package\n")
    told_here = told("broken:app", code=2)
    assert "importing broken failed (ModuleNotFoundError)" in told_here
    assert "broken.py" in told_here


def test_what_a_factory_raises_is_shown_too(told: Told) -> None:
    assert "LookupError: no such till" in told("factories:fails", "--factory", code=2)


def test_a_setting_that_holdfast_refuses_in_the_module_stays_a_sentence(told: Told, folder: Path) -> None:
    (folder / "broken.py").write_text("from holdfast import Settings\nSettings(workers=-1)\n")
    assert told("broken:app", code=2) == "holdfast: workers=-1: use a value above 0\n"


def test_a_script_that_runs_its_app_when_it_is_imported_is_refused(told: Told, folder: Path) -> None:
    (folder / "script.py").write_text("from shop import app\n\napp.run()\n")
    assert "put that under `if __name__ == '__main__':`" in told("script:app", code=2)
    assert "ok" in told("shop:app", code=0)  # run() is what it was


@pytest.mark.parametrize(("options", "frozen"), [((), True), (("--gc", "default"), False)])
def test_the_collector_leaves_out_what_is_there_when_the_app_joins(
    folder: Path, options: tuple[str, ...], frozen: bool
) -> None:
    """In a process of its own: what is frozen stays so."""
    (folder / "looks.py").write_text(LOOKS)
    command = [sys.executable, "-m", "holdfast", "run", "looks:app", "--app-dir", str(folder), *options]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S, cwd=folder)
    default = "1" if gc.get_threshold()[0] >= 10_000 else "0"
    assert said.stdout.split() == (["True", "1"] if frozen else ["False", default])
