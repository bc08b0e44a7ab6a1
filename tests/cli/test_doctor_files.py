"""`holdfast doctor` on files of configurations."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.bench import holdfast, lines

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Here

HEALTHY = {
    "bootstrap.servers": "broker:9092",
    "group.id": "billing",
    "group.instance.id": "billing-0",
    "group.protocol": "consumer",
    "group.remote.assignor": "uniform",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "queued.min.messages": 10_000,
    "fetch.queue.backoff.ms": 50,
}


def properties(conf: dict[str, Any]) -> str:
    return "# ours\n" + "".join(f"{name}={value}\n" for name, value in conf.items())


def toml(conf: dict[str, Any]) -> str:
    return "[kafka.consumer]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in conf.items())


@pytest.mark.parametrize(
    ("name", "text", "more"),
    [
        ("consumer.properties", properties(HEALTHY), []),
        ("consumer.json", json.dumps(HEALTHY), []),
        ("app.toml", toml(HEALTHY), ["--section", "kafka.consumer"]),
        ("app.json", json.dumps({"kafka": {"consumer": HEALTHY}}), ["--section", "kafka.consumer"]),
    ],
)
def test_every_kind_of_file_is_read(here: Here, tmp_path: Path, name: str, text: str, more: list[str]) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert "nothing found" in here("doctor", file, *more).stdout
    file.write_text(text.replace("earliest", "latest"))
    found = here("doctor", file, *more, code=4).stdout
    assert "WARNING: records skipped  [offset-reset-latest]" in found
    assert "auto.offset.reset: latest" in found


def test_the_exit_code_and_the_lines_say_how_bad_it_is(here: Here, tmp_path: Path) -> None:
    """0 notes at most, 4 warnings at most, 1 an error; of several files the worst."""
    files = {}
    for name, change in (
        ("note", {"group.instance.id": None}),
        ("warning", {"auto.offset.reset": "latest"}),
        ("error", {"session.timeout.ms": 6000}),
    ):
        files[name] = tmp_path / f"{name}.json"
        files[name].write_text(json.dumps({**HEALTHY, **change}))
    for names, code in ((("note",), 0), (("warning", "note"), 4), (("note", "error", "warning"), 1)):
        told = lines(here("doctor", *(files[each] for each in names), "--json", code=code))
        assert [each["severity"] for each in told if each["type"] == "finding"] == list(names)
        counts = [each for each in told if each["type"] == "diagnosis"]
        assert [each["file"] for each in counts] == [str(files[each]) for each in names]
        assert [each[f"{name}s"] for each, name in zip(counts, names, strict=True)] == [1] * len(names)


def test_what_a_configuration_does_not_say_is_told_beside_it(here: Here, tmp_path: Path) -> None:
    file = tmp_path / "consumer.json"
    file.write_text(json.dumps(HEALTHY))
    asked = ("doctor", file, "--handler", "700ms", "--drain", "10s")
    here(*asked)
    assert "700 s" not in here(*asked, "--batch", "100").stdout
    found = here(*asked, "--batch", "500", code=1).stdout
    assert "a batch of 500 records of 0.7 s each: 350 s + drain: 10 s" in found
    here(*asked, "--batch", "500", "--workers", "8")
    assert "Java client has no such setting" in here("doctor", file, "--client", "java", code=4).stdout


def test_no_credential_is_ever_written(here: Here, tmp_path: Path) -> None:
    file = tmp_path / "consumer.json"
    file.write_text(json.dumps({**HEALTHY, "sasl.password": "hunter2", "sasl.pasword": "hunter2", "x": "hunter2"}))
    for more in ([], ["--json"], ["--debug"]):
        ran = holdfast("doctor", file, *more, code=1)
        assert "hunter2" not in ran.stdout + ran.stderr
        assert "sasl.password" in ran.stdout


@pytest.mark.parametrize(
    ("name", "text", "more", "says"),
    [
        ("none.properties", None, [], "cannot be read (No such file or directory)"),
        (".", None, [], "cannot be read (Is a directory)"),
        ("a.yaml", "group.id: billing", [], "YAML is not read: give properties, JSON or TOML"),
        ("a.toml", "group.id = ", [], "this is no TOML"),
        ("a.json", '{"group.id": }', [], "the file is no valid JSON, from line 1 on"),
        ("a.json", "[1]", [], "no object of names and values"),
        ("a.properties", "group.id", [], "line 1 is no name=value"),
        ("a.properties", "", [], "the file has no settings"),
        (
            "a.toml",
            "[kafka]\nx = 1",
            ["--section", "kafka.consumer"],
            "under 'kafka.consumer' the file has no settings",
        ),
        ("a.properties", "group.id=billing", ["--workers", "0"], ""),
        ("a.properties", "group.id=billing", ["--handler", "soon"], "'soon' is no time"),
        ("a.properties", "group.id=billing", ["--client", "go"], "invalid choice: 'go'"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(
    here: Here, tmp_path: Path, name: str, text: str | None, more: list[str], says: str
) -> None:
    file = tmp_path / name
    if text is not None:
        file.write_text(text)
    ran = here("doctor", file, "--handler", "1s", *more, code=2)
    assert says in ran.stderr
    assert ran.stdout == ""


def test_a_file_that_may_not_be_read_is_one_sentence(here: Here, tmp_path: Path) -> None:
    file = tmp_path / "secret.properties"
    file.write_bytes(b"group.id=\xff\xfe")
    assert "the file is no UTF-8" in here("doctor", file, code=2).stderr


def test_what_is_alike_is_folded_and_a_reason_is_given_once(here: Here, tmp_path: Path) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file in files:
        file.write_text(
            json.dumps({**HEALTHY, **{f"x.{number}": 1 for number in range(9)}, "auto.offset.reset": "end"})
        )
    told = here("doctor", *files, code=1).stdout
    assert told.count("ERROR: does not start  [unknown-key]  9 times") == 2
    assert told.count("and 4 more (--json has all)") == 2
    assert told.count("  why   librdkafka has no such setting") == 1
    assert "WARNING: records skipped  [offset-reset-latest], for the reason above" in told
    found = lines(here("doctor", *files, "--json", code=1))
    assert len([each for each in found if each.get("rule") == "unknown-key"]) == 18


def test_what_was_not_judged_is_one_line(here: Here, tmp_path: Path) -> None:
    file = tmp_path / "consumer.json"
    file.write_text(json.dumps(HEALTHY))
    assert (
        "not checked without --handler TIME (how long a record takes): poll-interval-short"
        in here("doctor", file).stdout
    )
    assert lines(here("doctor", file, "--json"))[-1]["not_judged"] == ["poll-interval-short"]
    assert "not checked" not in here("doctor", file, "--handler", "1ms").stdout
