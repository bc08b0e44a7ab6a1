"""`holdfast audit` over tables that are there: the verdict, the exit code, the page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.tools.audit_report import tables as t
from tests.docs.sample_audit import sample, write
from tests.spark.audit.synthetic import played
from tests.unit.test_audit_report import summary

if TYPE_CHECKING:
    from tests.cli.conftest import Here


ROOT = Path(__file__).parents[2]


def test_the_verdict_is_the_first_line_and_findings_end_with_1(here: Here, tmp_path: Path) -> None:
    said = here("audit", "--tables", write(tmp_path, sample()), code=1).stdout.splitlines()
    assert said[0] == "1 lost, 12 unknown, 3 repeated (3 by crash), of 14,401 records that ran"
    assert any(line.split()[:2] == ["orders-2", "1,341"] and "its owner's position passed it" in line for line in said)
    assert any(line.split()[:2] == ["orders-4", "1,184-1,186"] and "crash" in line for line in said)


def test_a_group_in_which_all_went_well_ends_with_0(here: Here, tmp_path: Path) -> None:
    here("audit", "--tables", write(tmp_path, {t.SUMMARY: [summary()]}), code=0)


def test_what_is_not_known_ends_with_4(here: Here, tmp_path: Path) -> None:
    here("audit", "--tables", write(tmp_path, {t.SUMMARY: [summary(unknown=3)]}), code=4)


def test_a_group_of_which_nothing_can_be_read_ends_with_4(here: Here, tmp_path: Path) -> None:
    dark = dict.fromkeys(t.SUMMARY.names) | {"group": "dark", "unheard": 1, "unreadable": 9}
    said = here("audit", "--tables", write(tmp_path, {t.SUMMARY: [dark]}), code=4).stdout
    assert said.startswith("Nothing known to be lost")
    assert "no event of 1 process can be read" in said
    assert "1970" not in said


def test_the_page_is_written_where_it_was_asked_for(here: Here, tmp_path: Path) -> None:
    file = tmp_path / "audit.html"
    said = here("audit", "--tables", write(tmp_path, sample()), "--html", file, code=1)
    assert file.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert str(file) in said.stderr


def test_json_has_the_same_findings(here: Here, tmp_path: Path) -> None:
    lines = here("audit", "--tables", write(tmp_path, sample()), "--json", code=1).stdout.splitlines()
    values = [json.loads(line) for line in lines]
    assert (values[0]["type"], values[0]["mood"]) == ("audit", "bad")
    [group] = [each for each in values if each["type"] == "group"]
    assert (group["lost"], group["unknown"], group["repeats"]["crash"]) == (1, 12, 3)
    assert [(each["partition"], each["verdict"]) for each in values if each["type"] == "gap"] == [
        ("orders-2", "lost"),
        ("orders-3", "unknown"),
    ]


def test_names_of_strangers_do_not_reach_the_terminal_as_they_are(here: Here, tmp_path: Path) -> None:
    rows = {table: [{**each, "group": "\x1b[31mred"} for each in rows] for table, rows in sample().items()}
    assert "\x1b" not in here("audit", "--tables", write(tmp_path, rows), code=1).stdout


@pytest.mark.parametrize(
    ("before", "environment", "said"),
    [
        ("import sys; sys.modules['pyspark'] = None", {}, "pip install 'holdfast-mq[spark]'"),
        ("", {"PATH": "/nowhere", "JAVA_HOME": ""}, "Spark needs Java"),
    ],
    ids=["no pyspark", "no Java"],
)
@pytest.mark.parametrize("place", ["kafka:localhost:1/audit", "s3a://lake/audit"])
def test_what_spark_needs_and_is_missing_is_said_in_one_sentence(
    before: str, environment: dict[str, str], said: str, place: str
) -> None:
    code = f"{before}\nimport sys\nfrom holdfast.adapters.cli import main\nsys.exit(main(['audit', {place!r}]))"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2  # 1 would say that something is lost
    assert said in ran.stderr.splitlines()[-1]
    assert "Traceback" not in ran.stderr


#: With nothing but Python, and no Java.
_BARE = """
import sys
for name in ("pyspark", "pyarrow", "pandas", "numpy", "py4j"):
    sys.modules[name] = None
from holdfast.adapters.cli import main
sys.exit(main(sys.argv[1:]))
"""


def bare(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _BARE, *map(str, arguments)],
        env=os.environ | {"PATH": "/nowhere", "JAVA_HOME": ""},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("mix", "code"), [("calm", 0), ("losses", 1), ("repeats", 1), ("events", 4)], ids=str)
def test_files_are_judged_without_spark_java_and_pyarrow(mix: str, code: int, tmp_path: Path) -> None:
    group = played(f"{mix}-0", 0, mix)
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "told.jsonl").write_text("\n".join(group.lines))
    ran = bare("audit", tmp_path / "events", "--html", tmp_path / "audit.html", "--json")
    assert ran.returncode == code, ran.stderr
    [found] = [each for each in map(json.loads, ran.stdout.splitlines()) if each["type"] == "group"]
    assert found["executions"] == sum(each.told for all_ in group.truth.executed.values() for each in all_)
    assert (found["lost"] > 0) == bool(group.truth.lost)
    assert (found["unknown"] > 0) == bool(group.truth.unknown)
    assert group.name in (tmp_path / "audit.html").read_text(encoding="utf-8")


def test_tables_without_pyarrow_are_refused_before_the_work(tmp_path: Path) -> None:
    ran = bare("audit", tmp_path / "absent", "--output", tmp_path / "tables")
    assert (ran.returncode, ran.stderr) == (2, "holdfast: pyarrow is not installed: pip install 'holdfast-mq[spark]'\n")


def test_tables_of_files_say_what_the_events_say(here: Here, tmp_path: Path) -> None:
    (tmp_path / "told.jsonl").write_text("\n".join(played("losses-and-crashes-0", 0, "losses-and-crashes").lines))
    for _ in range(2):  # what was there is replaced
        said = here("audit", tmp_path / "told.jsonl", "--output", tmp_path / "tables", code=1).stdout
        assert here("audit", "--tables", tmp_path / "tables", code=1).stdout == said
    assert sorted(each.name for each in (tmp_path / "tables").iterdir()) == sorted(t.TABLES)


def test_tables_of_a_stream_are_left_alone(here: Here, tmp_path: Path) -> None:
    (tmp_path / "_holdfast").mkdir()
    (tmp_path / "_holdfast" / "query").touch()
    (tmp_path / "told.jsonl").write_text("\n".join(played("calm-0", 0, "calm").lines))
    refused = here("audit", tmp_path / "told.jsonl", "--output", tmp_path, code=2).stderr
    assert "a stream writes its tables there" in refused


def test_a_folder_without_events_is_not_known_to_be_well(here: Here, tmp_path: Path) -> None:
    assert here("audit", tmp_path, code=4).stdout == "No events: nothing is known\n"
    assert "no such file or folder" in here("audit", tmp_path / "absent", code=2).stderr


def test_the_module_says_in_one_sentence_that_there_is_no_java(tmp_path: Path) -> None:
    unset = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_REMOTE")}
    ran = subprocess.run(
        [sys.executable, "-m", "holdfast.adapters.spark.audit", str(tmp_path), "--output", str(tmp_path / "out")],
        env=unset | {"PATH": "/nowhere"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    [said] = ran.stderr.splitlines()
    assert "Spark needs Java" in said
    assert "install Java 17 or 21" in said


def test_what_is_asked_has_to_make_sense(here: Here, tmp_path: Path) -> None:
    here("audit", code=2)
    here("audit", tmp_path, "--tables", tmp_path, code=2)
    here("audit", "--tables", tmp_path, "--complete", code=2)
    here("audit", tmp_path, "--spark", "driver.memory=4g", code=2)
    assert (
        "no events of this group" in here("audit", "--tables", write(tmp_path, sample()), "--group", "x", code=2).stderr
    )


def test_a_folder_without_tables_and_a_page_that_cannot_be_written_end_with_2(here: Here, tmp_path: Path) -> None:
    assert "summary" in here("audit", "--tables", tmp_path, code=2).stderr
    folder = write(tmp_path, sample())
    assert "cannot be written" in here("audit", "--tables", folder, "--html", tmp_path, code=2).stderr
