"""What all addresses of stores that cannot be read have in common."""

from __future__ import annotations

import traceback

import pytest

from holdfast import RedisClaims
from holdfast.errors import SettingError

#: A password with what an address cannot have unquoted.
SECRET = "se#cr/et"  # noqa: S105 - of no server


def refused_without_its_password(url: str, sample: str) -> None:
    """The error shows a sample, a regular expression, and nothing of the password."""
    with pytest.raises(SettingError, match=sample) as caught:
        RedisClaims.from_url(url)
    shown = "".join(traceback.format_exception(caught.value)).split("SettingError", 1)[1]
    assert not [part for part in (SECRET, "se#", "cr/et", "secret") if part in shown]
