"""user:password@ of a URL is shown nowhere, whatever the property is called that has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.cli.entry import main
from holdfast.errors import HoldfastError, SettingError
from holdfast.plugin.choice import Choice
from holdfast.plugin.secret_names import masked
from holdfast.printable import without_credentials

if TYPE_CHECKING:
    from pathlib import Path

URL = "https://me:hush@tokens.example:8443/path?x=1"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (URL, "https://***@tokens.example:8443/path?x=1"),
        ("redis+sentinel://me:hu/sh@a:1,b:2/name", "redis+sentinel://***@a:1,b:2/name"),
        ("http://:hu@sh@proxy", "http://***@proxy"),
        (
            "no answer from 'http://me:hush@a' and \"http://me:hush@b\"",
            "no answer from 'http://***@a' and \"http://***@b\"",
        ),
        ("kafka:9092", "kafka:9092"),
        ("mail a@b", "mail a@b"),
    ],
)
def test_what_stands_before_a_host_is_hidden(text: str, shown: str) -> None:
    assert without_credentials(text) == shown


def test_no_property_shows_it() -> None:
    conf = {"sasl.oauthbearer.token.endpoint.url": URL, "https.proxy": URL, "of.a.later.client": {"proxy": URL}}
    assert "hush" not in str(masked(conf))
    assert "tokens.example" in str(masked(conf))
    assert "hush" not in str(Choice("https.proxy", URL, "why"))


def test_no_finding_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = (
        "partition.assignment.strategy",
        "session.timeout.ms",
        "group.protocol",
        "auto.offset.reset",
        "https.proxi",
    )
    file = tmp_path / "consumer.properties"
    file.write_text("".join(f"{each}={URL}\n" for each in names))
    for form in ((), ("--json",)):
        assert main(["doctor", str(file), *form]) == 1
        told = capsys.readouterr()
        assert "hush" not in told.out + told.err
        assert "***@tokens.example" in told.out


def test_no_error_shows_it() -> None:
    for error in (
        SettingError("proxy", URL, f"give another one than {URL}"),
        SettingError("proxy", {"https": URL}, "give another one"),
        HoldfastError(f"no answer from {URL}"),
    ):
        assert "hush" not in str(error) + repr(error)
    assert "hush" not in str(SettingError("proxy", URL, "no").value)
