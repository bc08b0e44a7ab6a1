"""examples/ops: the files that deploy a consumer say what is valid, agree with each other and with the app's times.

There is no Docker and no cluster here: no image is built, no manifest is applied.
"""

from __future__ import annotations

import copy
import fnmatch
import math
import re
import shlex
import shutil
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest

from examples.ops.billing import SETTINGS, make_app
from holdfast.adapters.cli.entry import parser
from holdfast.plugin.budget import COMMIT_S, DEFAULT_SESSION_MS
from holdfast.plugin.engine.lifecycle import _CLOSE_S
from tests.examples.bench import ROOT
from tests.examples.deployed import KUBERNETES, OPS, dockerfile, of, read
from tests.harness.servers.prometheus import promtool

if TYPE_CHECKING:
    from pathlib import Path

MANIFESTS = {path.stem: read(path) for path in KUBERNETES.glob("*.yaml")}
#: Those that Kubernetes itself knows.
OWN = ["networkpolicy", "poddisruptionbudget", "service", "statefulset"]
#: Names of KEDA's ScaledObject, of its trigger `kafka`, and of a service of Compose, as far as one may want them here.
SCALED_OBJECT = {
    "advanced",
    "cooldownPeriod",
    "fallback",
    "maxReplicaCount",
    "minReplicaCount",
    "pollingInterval",
    "scaleTargetRef",
    "triggers",
}
KAFKA_TRIGGER = {
    "activationLagThreshold",
    "allowIdleConsumers",
    "bootstrapServers",
    "consumerGroup",
    "lagThreshold",
    "limitToPartitionsWithLag",
    "offsetResetPolicy",
    "topic",
}
SERVICE = {
    "build",
    "cap_drop",
    "depends_on",
    "deploy",
    "environment",
    "healthcheck",
    "image",
    "ports",
    "read_only",
    "restart",
    "security_opt",
    "stop_grace_period",
    "volumes",
}
STATEFUL_SET: dict[str, Any] = MANIFESTS["statefulset"]["spec"]
POD: dict[str, Any] = STATEFUL_SET["template"]["spec"]
CONTAINER: dict[str, Any] = POD["containers"][0]
COMPOSE = read(OPS / "compose.yaml")
IMAGE = dockerfile(OPS / "Dockerfile")
#: What a good end of the app takes at most.
END_S = SETTINGS.drain_s + COMMIT_S + SETTINGS.linger_timeout_s + _CLOSE_S
SAID = (
    f"drain {SETTINGS.drain_s:g} s, commit {COMMIT_S:g} s, linger {SETTINGS.linger_timeout_s:g} s, "
    f"dead letters {_CLOSE_S:g} s"
)


def environment() -> dict[str, str]:
    """Of the container in the pod billing-0."""
    return {each["name"]: each.get("value", "redis://redis:6379/0") for each in CONTAINER["env"]} | {
        "STATIC_ID": "billing-0"
    }


class TestKubernetes:
    @pytest.mark.parametrize("version", ["1.30", "1.37"])
    @pytest.mark.parametrize("name", OWN)
    def test_a_manifest_is_what_kubernetes_takes(self, name: str, version: str) -> None:
        kubernetes_validate.validate(MANIFESTS[name], version, strict=True)

    def test_a_misspelt_name_is_found(self) -> None:
        broken = copy.deepcopy(MANIFESTS["statefulset"])
        broken["spec"]["template"]["spec"]["terminationGracePeriod"] = 35
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(broken, "1.37", strict=True)

    def test_the_scaled_object_has_names_that_keda_knows(self) -> None:
        """A cluster drops a name that its schema does not have, without a word. KEDA's is not on this machine."""
        scaled = MANIFESTS["scaledobject"]
        assert (scaled["apiVersion"], scaled["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
        assert set(scaled["spec"]) <= SCALED_OBJECT
        [trigger] = scaled["spec"]["triggers"]
        assert set(trigger) <= {"type", "metadata", "authenticationRef", "metricType", "name", "useCachedMetrics"}
        assert set(trigger["metadata"]) <= KAFKA_TRIGGER
        assert all(isinstance(each, str) for each in trigger["metadata"].values())  # numbers are refused

    def test_the_autoscaler_that_keda_makes_is_what_kubernetes_takes(self) -> None:
        scaled = MANIFESTS["scaledobject"]["spec"]
        made = {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "keda-hpa-billing"},
            "spec": {
                "scaleTargetRef": scaled["scaleTargetRef"],
                "minReplicas": scaled["minReplicaCount"],
                "maxReplicas": scaled["maxReplicaCount"],
                "behavior": scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"],
            },
        }
        kubernetes_validate.validate(made, "1.37", strict=True)

    def test_each_manifest_is_applied(self) -> None:
        listed = MANIFESTS["kustomization"]["resources"]
        assert sorted(listed) == sorted(f"{name}.yaml" for name in MANIFESTS if name != "kustomization")

    def test_they_speak_of_the_same_pods(self) -> None:
        labels = STATEFUL_SET["template"]["metadata"]["labels"]
        name = MANIFESTS["statefulset"]["metadata"]["name"]
        assert STATEFUL_SET["selector"]["matchLabels"] == labels
        assert POD["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"] == labels
        assert MANIFESTS["service"]["spec"]["selector"] == labels
        assert MANIFESTS["poddisruptionbudget"]["spec"]["selector"]["matchLabels"] == labels
        assert MANIFESTS["networkpolicy"]["spec"]["podSelector"]["matchLabels"] == labels
        assert STATEFUL_SET["serviceName"] == MANIFESTS["service"]["metadata"]["name"]
        target = MANIFESTS["scaledobject"]["spec"]["scaleTargetRef"]
        assert (target["kind"], target["name"]) == ("StatefulSet", name)

    def test_one_of_them_says_how_many_members_there_are(self) -> None:
        assert "replicas" not in STATEFUL_SET
        scaled = MANIFESTS["scaledobject"]["spec"]
        assert MANIFESTS["poddisruptionbudget"]["spec"]["maxUnavailable"] < scaled["minReplicaCount"]

    def test_the_scaling_looks_at_the_group_of_the_app(self) -> None:
        trigger = MANIFESTS["scaledobject"]["spec"]["triggers"][0]
        told, env = trigger["metadata"], environment()
        assert trigger["type"] == "kafka"
        assert (told["bootstrapServers"], told["consumerGroup"], told["topic"]) == (
            env["KAFKA"],
            env["GROUP"],
            env["TOPIC"],
        )

    def test_a_static_member_leaves_more_slowly_than_its_session_ends(self) -> None:
        behavior = MANIFESTS["scaledobject"]["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        for policy in behavior["scaleDown"]["policies"]:
            assert policy["value"] == 1
            assert policy["periodSeconds"] > DEFAULT_SESSION_MS / 1000

    def test_the_name_of_a_pod_is_its_static_id(self) -> None:
        [static] = [each for each in CONTAINER["env"] if each["name"] == "STATIC_ID"]
        assert static["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
        make_app(environment())  # raises, where a variable is missing

    def test_no_password_is_in_the_manifest(self) -> None:
        [redis] = [each for each in CONTAINER["env"] if each["name"] == "REDIS"]
        assert "secretKeyRef" in redis["valueFrom"]

    def test_the_probes_ask_what_the_app_serves(self) -> None:
        [port] = CONTAINER["ports"]
        for probe, path in (("livenessProbe", "/live"), ("readinessProbe", "/ready")):
            asked = CONTAINER[probe]["httpGet"]
            assert (asked["path"], asked["port"]) == (path, port["name"])
            assert CONTAINER[probe]["timeoutSeconds"] > 2, "an answer takes up to two seconds"
        assert [each["targetPort"] for each in MANIFESTS["service"]["spec"]["ports"]] == [port["name"]]
        assert [each.rest for each in of(IMAGE[-1], "EXPOSE")] == [str(port["containerPort"])]

    def test_the_pod_is_not_root_and_cannot_become_it(self) -> None:
        assert POD["securityContext"]["runAsNonRoot"]
        assert of(IMAGE[-1], "USER")[0].rest == str(POD["securityContext"]["runAsUser"])
        own = CONTAINER["securityContext"]
        assert own["readOnlyRootFilesystem"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["capabilities"] == {"drop": ["ALL"]}


class TestTheEnd:
    """Nobody is killed who could have ended well, and a restart is over before the session is."""

    def test_kubernetes_waits_for_the_longest_good_end(self) -> None:
        assert END_S < POD["terminationGracePeriodSeconds"] < DEFAULT_SESSION_MS / 1000

    def test_compose_waits_for_the_longest_good_end(self) -> None:
        grace = COMPOSE["services"]["billing"]["stop_grace_period"]
        assert END_S < float(grace.removesuffix("s")) < math.inf

    @pytest.mark.parametrize(
        "path", [KUBERNETES / "statefulset.yaml", OPS / "compose.yaml"], ids=lambda path: path.stem
    )
    def test_the_files_say_where_the_number_comes_from(self, path: Path) -> None:
        assert SAID in re.sub(r"\n\s*# ", " ", path.read_text(encoding="utf-8"))


class TestDockerfile:
    def test_sigterm_comes_to_the_app(self) -> None:
        """A command in one line is run by a shell, which does not hand it on."""
        [entry] = of(IMAGE[-1], "ENTRYPOINT")
        assert entry.words == ["python", "-m", "billing"]
        assert entry.rest.startswith("[")
        assert not of(IMAGE[-1], "CMD")
        assert not of(IMAGE[-1], "STOPSIGNAL")

    def test_the_image_is_slim_and_has_no_build_files(self) -> None:
        for stage in IMAGE:
            assert stage[0].words[0].endswith("-slim")
        assert [step.words for step in of(IMAGE[-1], "COPY")] == [["/venv", "/venv"], ["examples/ops/billing.py", "./"]]
        assert "--no-cache-dir" in of(IMAGE[0], "RUN")[-1].rest

    def test_its_python_is_one_that_holdfast_is_for(self) -> None:
        python = IMAGE[-1][0].words[0].removeprefix("python:").removesuffix("-slim")
        assert f'"Programming Language :: Python :: {python}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")

    def test_the_user_is_a_number_that_is_not_root(self) -> None:
        [user] = of(IMAGE[-1], "USER")
        assert int(user.rest) > 0
        names = [step.word for step in IMAGE[-1]]
        assert names.index("USER") < names.index("ENTRYPOINT")
        assert f"--uid {user.rest}" in of(IMAGE[-1], "RUN")[0].rest

    def test_the_build_sees_what_it_copies_and_nothing_else(self) -> None:
        """The folder has environments and servers of some gigabytes."""
        said = (OPS / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
        assert said[1] == "*"
        seen = [line.removeprefix("!") for line in said if line.startswith("!")]
        copied = [
            path
            for stage in IMAGE
            for step in of(stage, "COPY")
            if "--from" not in step.rest
            for path in step.words[:-1]
        ]
        assert sorted(copied) == sorted(seen)
        for path in copied:
            assert (ROOT / path).exists()
        assert not any(fnmatch.fnmatch(".venv", pattern) for pattern in seen)


class TestCompose:
    def test_it_has_names_that_compose_knows(self) -> None:
        assert set(COMPOSE) <= {"include", "services"}
        for service in COMPOSE["services"].values():
            assert set(service) <= SERVICE

    def test_what_it_names_is_there(self) -> None:
        [included] = COMPOSE["include"]
        services = {**read(OPS / included)["services"], **COMPOSE["services"]}
        for service in COMPOSE["services"].values():
            assert set(service.get("depends_on", ())) <= set(services)
            for volume in service.get("volumes", ()):
                assert (OPS / volume.split(":")[0]).is_file()
        build = COMPOSE["services"]["billing"]["build"]
        assert (OPS / build["context"]).resolve() == ROOT
        assert (ROOT / build["dockerfile"]).is_file()

    def test_the_app_reaches_kafka_and_redis_by_their_names(self) -> None:
        env = COMPOSE["services"]["billing"]["environment"]
        listeners = read(ROOT / "compose.yaml")["services"]["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
        assert f"INTERNAL://{env['KAFKA']}" in listeners.split(",")
        make_app(env)

    def test_the_health_check_is_a_command_of_holdfast(self) -> None:
        word, *command = COMPOSE["services"]["billing"]["healthcheck"]["test"]
        assert (word, command[0]) == ("CMD", "holdfast")
        asked = parser().parse_args(shlex.split(shlex.join(command[1:])))
        assert asked.run

    def test_prometheus_takes_its_configuration_and_looks_at_every_member(self, tmp_path: Path) -> None:
        for volume in COMPOSE["services"]["prometheus"]["volumes"]:
            source, target, _ = volume.split(":")
            assert target.startswith("/etc/prometheus/")
            shutil.copy(OPS / source, tmp_path / target.removeprefix("/etc/prometheus/"))
        assert "SUCCESS" in promtool("check", "config", tmp_path / "prometheus.yml")
        [job] = read(OPS / "prometheus.yml")["scrape_configs"]
        [found] = job["dns_sd_configs"]
        assert found["names"] == ["billing"]
        assert str(found["port"]) == of(IMAGE[-1], "EXPOSE")[0].rest

    def test_grafana_reads_that_prometheus_and_has_the_dashboard(self) -> None:
        grafana = COMPOSE["services"]["grafana"]
        mounted = dict(reversed(volume.split(":")[:2]) for volume in grafana["volumes"])
        [provider] = read(OPS / "grafana" / "dashboards.yml")["providers"]
        board = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
        assert mounted[board] == "./grafana.json"
        assert board.startswith(provider["options"]["path"])
        [source] = read(OPS / "grafana" / "datasource.yml")["datasources"]
        assert source["url"] == "http://prometheus:9090"
        assert source["isDefault"]
        assert source["type"] == read(OPS / "grafana.json")["templating"]["list"][0]["query"]
