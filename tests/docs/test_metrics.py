"""docs/reference/metrics.md has every metric, as it is."""

from __future__ import annotations

from pathlib import Path

from holdfast.plugin.observe.metrics import METRICS, Metric

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")


def row(metric: Metric) -> str:
    labels = ", ".join(f"`{each}`" for each in metric.labels)
    return f"| `{metric.name}` | {metric.kind.value} | {metric.unit} | {labels} | {metric.help} |"


def test_every_metric_is_in_the_table_and_nothing_else() -> None:
    assert [line for line in PAGE.splitlines() if line.startswith("| `")] == [row(each) for each in METRICS]
