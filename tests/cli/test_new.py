"""`holdfast new` makes a project that runs and passes its own test at once, and changes nothing that is there."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from holdfast.adapters.cli.new import _FILES
from tests.cli.bench import ROOT, lines

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Here


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that has another name than the templates."""
    folder = tmp_path_factory.mktemp("new") / "invoices_2"
    ran = within(ROOT, "-m", "holdfast", "new", folder)
    assert ran.returncode == 0, ran.stderr
    return folder


def within(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Python in this folder, with this repository's holdfast."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTEST_"))}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT), "HOLDFAST_RUN_PORT": "0"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_its_own_test_passes_at_once(project: Path) -> None:
    ran = within(project, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout


def test_its_test_fails_where_the_consumer_is_broken(project: Path, tmp_path: Path) -> None:
    for each in ("test_invoices_2.py", "invoices_2.py"):
        text = (project / each).read_text()
        (tmp_path / each).write_text(
            text.replace("work(record.json())", "work(record.json())\n        work(record.json())")
        )
    assert "work(record.json())\n        work" in (tmp_path / "invoices_2.py").read_text()
    assert "done more than once" in within(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider").stdout


def test_it_would_start(project: Path) -> None:
    ran = within(project, "-m", "holdfast", "run", "invoices_2:app", "--check", "--offline")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "invoices_2:app is the app of group invoices_2" in ran.stdout
    assert "1 handler: orders by invoices_2" in ran.stdout
    assert "drain_timeout_s=10" in ran.stdout


def test_its_code_is_as_a_linter_wants_it(project: Path) -> None:
    ran = within(
        project, "-m", "ruff", "check", "--isolated", "--select", "E,F,I,UP,B,ANN001", "--line-length", "120", "."
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    ran = within(project, "-m", "ruff", "format", "--isolated", "--line-length", "120", "--check", ".")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_its_servers_are_those_of_the_repository(project: Path) -> None:
    made = yaml.safe_load((project / "compose.yaml").read_text())["services"]
    ours = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    assert {name: made[name] for name in made if name in ours} == {
        name: ours[name] for name in ("kafka", "topics", "redis")
    }
    assert set(made) == {"kafka", "topics", "redis", "invoices_2"}


def test_the_image_has_what_runs(project: Path) -> None:
    said = (project / "Dockerfile").read_text()
    assert "COPY invoices_2.py holdfast.toml ./" in said
    assert 'ENTRYPOINT ["holdfast", "run", "invoices_2:app"]' in said
    assert not any("billing" in each.read_text() for each in project.iterdir() if each.is_file())


def test_every_template_is_made(project: Path) -> None:
    templates = {each.name.removesuffix(".txt") for each in (ROOT / "holdfast/adapters/cli/project").iterdir()}
    assert templates == {each.lstrip(".") for each in _FILES}
    assert {each.name for each in project.iterdir() if each.is_file()} == {
        each.replace("billing", "invoices_2") for each in _FILES
    }


def test_what_to_do_next_is_told(here: Here, tmp_path: Path) -> None:
    told = here("new", tmp_path / "billing").stdout
    assert f"  cd {tmp_path / 'billing'}\n" in told
    assert "  python -m pytest\n" in told
    [made] = lines(here("new", tmp_path / "orders", "--json"))
    assert (made["type"], made["folder"]) == ("project", str(tmp_path / "orders"))
    assert "orders.py" in made["files"]


def test_a_folder_that_exists_is_left_as_it_is(here: Here, tmp_path: Path) -> None:
    (tmp_path / "billing").mkdir()
    told = here("new", tmp_path / "billing", code=2).stderr
    assert "it exists, and was left as it is" in told
    assert list((tmp_path / "billing").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Billing", "use small letters"),
        ("my-app", "use small letters"),
        ("2nd", "use small letters"),
        ("class", "use small letters"),
        (".", "use small letters"),
        ("json", "choose another name: json is a module"),
        ("holdfast", "choose another name: holdfast is a module"),
        ("missing/billing", "it cannot be made (No such file or directory)"),
    ],
)
def test_what_cannot_be_a_project_is_refused(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    told = here("new", name, code=2).stderr
    assert why in told
    assert "FOLDER=" in told
    assert list(tmp_path.iterdir()) == []
