"""The dashboard and the alert rules hold on a real Prometheus that looks at a real app."""

from __future__ import annotations

import json
import re
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Settings, Unretriable
from holdfast.adapters.watching import serve
from holdfast.plugin.observe.metrics import METRICS
from tests.harness.engine import Bench, Letters
from tests.harness.servers.prometheus import PrometheusServer, promtool
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
RULES = ROOT / "examples" / "ops" / "alerts.yml"
BOARD: dict[str, Any] = json.loads((ROOT / "examples" / "ops" / "grafana.json").read_text(encoding="utf-8"))
#: As Grafana fills them in.
FILLED_IN = {"$__rate_interval": "10s", "$group": ".*"}
QUERIES = {
    f"{panel['title']} {target['refId']}": target["expr"] for panel in BOARD["panels"] for target in panel["targets"]
}
#: What the app of this test does not show: its ramp holds nothing back.
MAY_BE_EMPTY = {"Pauses by rebalances C"}
_NAME = re.compile(r"\bholdfast_\w+")


@pytest.fixture(scope="module")
def app() -> Iterator[Any]:
    """An app that has handled, failed, retried and buried, and that is held up in one partition."""
    with Bench(orders=2) as bench:
        bench.work.fail("again", ValueError("no"))
        bench.work.fail("bad", Unretriable("no"))
        bench.work.hold("slow")
        bench.broker.produce("orders", 0, "good", "again", "bad")
        member = bench.member(
            settings=Settings(workers=4), dead_letter="orders.dlq", dead_letters=Letters(bench.changed), key=_value
        )
        until(lambda: member.app.snapshot().rebalances.by_trigger)  # what it found at its start is worked off
        bench.broker.produce("orders", 0, "slow")
        bench.wait_running("slow")
        with serve(member.app, port=0) as endpoint:
            yield endpoint


def scraped(host: str, port: int) -> str:
    with closing(HTTPConnection(host, port, timeout=60)) as connection:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()


def _value(record: Any) -> bytes:
    return bytes(record.value)


@pytest.fixture(scope="module")
def prometheus(app: Any) -> Iterator[PrometheusServer]:
    with PrometheusServer(f"{app.host}:{app.port}", [RULES]) as server:
        until(lambda: server.query("count_over_time(holdfast_lag_records[10s]) >= 3"))
        yield server


def test_the_alert_rules_are_well_formed_and_fire_when_they_are_to() -> None:
    assert "SUCCESS" in promtool("check", "rules", RULES)
    promtool("test", "rules", Path(__file__).with_name("prometheus_alerts.yml"))


def test_every_alert_rule_is_tried() -> None:
    tried = Path(__file__).with_name("prometheus_alerts.yml").read_text(encoding="utf-8")
    for alert in re.findall(r"- alert: (\w+)", RULES.read_text(encoding="utf-8")):
        assert tried.count(f'alertname="{alert}"') == 2, alert  # fires, and does not


def test_each_name_in_the_dashboard_and_the_rules_is_one_that_the_exporter_tells(app: Any) -> None:
    body = scraped(app.host, app.port)
    told = {sample.name for family in text_string_to_metric_families(body) for sample in family.samples}
    assert {each.name for each in METRICS if each.name.startswith("holdfast_records_")} <= told
    used = set(_NAME.findall(json.dumps(BOARD))) | set(
        _NAME.findall("\n".join(re.findall(r"expr: .*(?:\n {10}.*)*", RULES.read_text(encoding="utf-8"))))
    )
    assert len(used) > 30
    assert used - told == {"holdfast_ramp_records_per_second"}
    assert "holdfast_ramp_records_per_second" in {metric.name for metric in METRICS}


@pytest.mark.parametrize("name", QUERIES)
def test_each_query_of_the_dashboard_finds_something(prometheus: PrometheusServer, name: str) -> None:
    promql = QUERIES[name]
    for variable, value in FILLED_IN.items():
        promql = promql.replace(variable, value)
    assert "$" not in promql
    # After a scrape that took too long there is nothing until the next one.
    found = prometheus.query(promql) if name in MAY_BE_EMPTY else until(lambda: prometheus.query(promql))
    assert bool(found) is (name not in MAY_BE_EMPTY), promql
    legend = next(
        target["legendFormat"]
        for panel in BOARD["panels"]
        for target in panel["targets"]
        if f"{panel['title']} {target['refId']}" == name
    )
    for series in found:  # each label that the legend names is there
        assert set(re.findall(r"{{(\w+)}}", legend)) <= set(series["metric"]), (legend, series["metric"])


def test_the_rules_are_evaluated_and_none_of_them_fires_without_cause(prometheus: PrometheusServer) -> None:
    def rules() -> list[dict[str, Any]]:
        return [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]

    until(lambda: all(rule["health"] == "ok" for rule in rules()), rules)
    # One record is a dead letter, before the first look: increase() does not see it.
    assert {rule["name"] for rule in rules() if rule["state"] == "firing"} == set()


def test_the_dashboard_is_one_that_grafana_can_lay_out() -> None:
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert {each["name"] for each in BOARD["templating"]["list"]} == {"datasource", "group"}
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
