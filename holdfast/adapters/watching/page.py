"""The page at `/`: one file that asks `/status` each second, and a policy by which it can load nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files


def page() -> tuple[bytes, tuple[tuple[str, str], ...]]:
    """Read the page. Returns: it, and the headers that belong to it."""
    text = files("holdfast.adapters.watching").joinpath("page.html").read_text("utf-8")
    policy = (
        "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"frame-ancestors 'none'; style-src {_hash(text, 'style')}; script-src {_hash(text, 'script')}"
    )
    return text.encode(), (("Content-Security-Policy", policy), ("Referrer-Policy", "no-referrer"))


def _hash(text: str, tag: str) -> str:
    """The one style or script that a browser may apply: what is between the tags, as it is."""
    [inside] = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'"
