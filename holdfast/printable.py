"""Text of strangers (names, keys, what errors say) for terminals and logs: no letter of it steers one."""

from __future__ import annotations

import re

#: What stands between the scheme of a URL and its host, however a password is written: also with a slash in it.
#: But for the words by which our own texts say how to write one.
_CREDENTIALS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)(?!user:password@host)[^\s'\"]*@")


def printable(text: str) -> str:
    """One line, without control characters, which a terminal obeys, and without letters that turn its direction: each
    is escaped as in Python."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def printable_lines(text: str) -> str:
    """Several lines, each as `printable`, those behind the first set in: none can pass for a line of ours."""
    return "\n  ".join(map(printable, text.expandtabs().split("\n")))


def without_credentials(text: str) -> str:
    """The text with `user:password@` of URLs hidden: fit for a repr, a log line, an error."""
    return _CREDENTIALS.sub(r"\1***@", text) if "://" in text else text
