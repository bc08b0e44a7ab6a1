"""The files by which examples/ops is deployed, read: manifests, the Dockerfile, the compose file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from tests.examples.bench import ROOT

if TYPE_CHECKING:
    from pathlib import Path

OPS = ROOT / "examples" / "ops"
KUBERNETES = OPS / "kubernetes"


def read(path: Path) -> dict[str, Any]:
    """A YAML file of one document."""
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


class Step(NamedTuple):
    """A line of a Dockerfile."""

    word: str
    rest: str

    @property
    def words(self) -> list[str]:
        """As a list of JSON, where it is one; otherwise by its spaces, without options."""
        if self.rest.startswith("["):
            return [str(each) for each in json.loads(self.rest)]
        return [each for each in self.rest.split() if not each.startswith("--")]


def dockerfile(path: Path) -> list[list[Step]]:
    """Its stages, each from its FROM on."""
    text = "\n".join(line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    stages: list[list[Step]] = []
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip():
            continue
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            stages.append([])
        stages[-1].append(Step(word, rest.strip()))
    return stages


def of(stage: list[Step], word: str) -> list[Step]:
    """The lines of a stage that begin with that word."""
    return [step for step in stage if step.word == word]
