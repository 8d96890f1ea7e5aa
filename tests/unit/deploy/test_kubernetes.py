"""deploy/kubernetes: built by kustomize, fits Kubernetes' schemas, and agrees with the rest of the project.

`make kubernetes-test` holds the resources of operators against their own schemas.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from producers.survey.survey import load_folder
from streams.cli import main as cli
from streams.exporter.alert_rules import rules_text
from streams.kafka.rights import Right, rights
from streams.kafka.topics import wanted
from streams.settings import Settings, load_settings, unknown_variables
from tests.kubernetes.manifests import FOLDER, OVERLAYS, Resource, build, check_own, is_own, kustomize
from tests.support.paths import DOCS, ROOT
from tests.support.services import missing

RULES = FOLDER / "components" / "prometheus" / "alerts.yaml"
WORKLOADS = {
    "minimal": {"thaw-worker", "thaw-exporter", "thaw-topics"},
    "production": {"thaw-worker", "thaw-exporter", "thaw-gateway"},
}
USERS = {
    "thaw-worker": "thaw worker",
    "thaw-device": "devices, thaw gateway, thaw fleet",
    "thaw-gateway": "devices, thaw gateway, thaw fleet",
    "thaw-reader": "thaw verify, thaw export",
}
PER_REPLICA = {"min.insync.replicas"}
"""Settings of topics that belong to a cluster of several brokers; `thaw topics create` leaves them to the brokers."""


@pytest.fixture(scope="module", params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def resources(overlay: str) -> tuple[Resource, ...]:
    program = kustomize()
    if program is None:
        missing("kustomize is not installed; `make setup` unpacks it")
    return build(program, overlay)


@pytest.fixture(scope="module")
def production() -> tuple[Resource, ...]:
    program = kustomize()
    if program is None:
        missing("kustomize is not installed; `make setup` unpacks it")
    return build(program, "production")


def of(resources: tuple[Resource, ...], *kinds: str) -> dict[str, Resource]:
    return {one["metadata"]["name"]: one for one in resources if one["kind"] in kinds}


def pods(resources: tuple[Resource, ...]) -> Iterator[tuple[str, Resource, Mapping[str, str]]]:
    """Return of every workload its name, its pod, and the pod's labels."""
    for name, workload in of(resources, "StatefulSet", "Deployment", "Job").items():
        template = workload["spec"]["template"]
        yield name, template["spec"], template["metadata"]["labels"]


def environment(resources: tuple[Resource, ...], container: Resource) -> dict[str, str]:
    """Return what a container gets; a secret or the name of its pod stands as something of the same form."""
    shared = of(resources, "ConfigMap")
    made: dict[str, str] = {}
    for source in container["envFrom"]:
        made |= shared[source["configMapRef"]["name"]]["data"]
    for row in container.get("env", []):
        secret = "redis://redis:6379/0" if row["name"] == "THAW_REDIS" else "worker-0"
        made[row["name"]] = row.get("value", secret)
    return made


def test_all_workloads_are_there_in_one_namespace(overlay: str, resources: tuple[Resource, ...]) -> None:
    assert {name for name, _, _ in pods(resources)} == WORKLOADS[overlay]
    assert {one["metadata"]["namespace"] for one in resources} == {"thaw"}


def test_every_resource_of_kubernetes_fits_its_schema(resources: tuple[Resource, ...]) -> None:
    own = [one for one in resources if is_own(one)]
    assert len(own) >= 10
    for one in own:
        check_own(one)


def test_containers_have_settings_that_exist_and_commands_that_parse(resources: tuple[Resource, ...]) -> None:
    for name, pod, _ in pods(resources):
        [container] = pod["containers"]
        given = environment(resources, container)
        assert not unknown_variables(given)
        settings = load_settings(environment=given)
        assert settings.partitions == 8
        command: click.Command | None = cli.cli
        for word in container["args"]:
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), word)
            assert command is not None, word
        if "ports" in container:
            ports = {"worker": [settings.worker_port], "exporter": [settings.exporter_port]}
            ports["gateway"] = [settings.gateway_port, settings.gateway_metrics_port]
            assert [port["containerPort"] for port in container["ports"]] == ports[container["args"][0]], name
        assert settings.worker_bind == ("0.0.0.0" if name == "thaw-worker" else "127.0.0.1"), "workers alone"


def test_containers_run_without_rights_on_a_read_only_root(resources: tuple[Resource, ...]) -> None:
    dockerfile = (ROOT / "deploy" / "images" / "Dockerfile").read_text()
    users = set(re.findall(r"^USER (\d+):(\d+)$", dockerfile, re.MULTILINE))
    targets = set(re.findall(r"^FROM python AS (\w+)$", dockerfile, re.MULTILINE))
    for _, pod, _ in pods(resources):
        [container] = pod["containers"]
        context = pod["securityContext"]
        assert {(str(context["runAsUser"]), str(context["runAsGroup"]))} == users
        assert context["runAsNonRoot"] is True
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert pod["automountServiceAccountToken"] is False
        assert container["image"].partition(":")[0].removeprefix("thaw-") in targets
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert "memory" in container["resources"]["limits"]


def test_whatever_serves_has_probes_on_its_own_ports(resources: tuple[Resource, ...]) -> None:
    for name, pod, _ in pods(resources):
        [container] = pod["containers"]
        ports = {port["name"] for port in container.get("ports", [])}
        probes = [container[kind] for kind in ("startupProbe", "livenessProbe", "readinessProbe") if kind in container]
        assert len(probes) == (0 if name == "thaw-topics" else 3)
        assert {probe.get("httpGet", probe.get("tcpSocket"))["port"] for probe in probes} <= ports


def test_policies_and_budgets_select_every_pod(resources: tuple[Resource, ...]) -> None:
    def selected(one: Resource, labels: Mapping[str, str]) -> bool:
        selector = one["spec"].get("podSelector", one["spec"].get("selector"))["matchLabels"]
        return bool(selector.items() <= labels.items())

    policies, budgets = of(resources, "NetworkPolicy"), of(resources, "PodDisruptionBudget")
    for name, _, labels in pods(resources):
        mine = {policy for policy, one in policies.items() if selected(one, labels)}
        assert mine == {"thaw-nothing-else", name}
        assert [budget for budget, one in budgets.items() if selected(one, labels)] == (
            [] if name == "thaw-topics" else [name]
        )


def test_every_budget_lets_a_node_be_drained(resources: tuple[Resource, ...]) -> None:
    """A budget that allows no eviction of the pods that there are holds a drain for ever."""
    workloads = of(resources, "StatefulSet", "Deployment")
    budgets = of(resources, "PodDisruptionBudget")
    assert budgets
    for name, budget in budgets.items():
        pods_of_it = workloads[name]["spec"].get("replicas", 1)
        spec = budget["spec"]
        allowed = spec["maxUnavailable"] if "maxUnavailable" in spec else pods_of_it - spec["minAvailable"]
        assert allowed >= 1, name


def test_keda_asks_kafka_by_a_name_that_resolves_in_its_own_namespace(
    production: tuple[Resource, ...], tmp_path: Path
) -> None:
    def asked(made: tuple[Resource, ...]) -> Any:
        [trigger] = of(made, "ScaledObject")["thaw-worker"]["spec"]["triggers"]
        return trigger["metadata"]["bootstrapServers"]

    assert asked(production) == "kafka-kafka-bootstrap.thaw.svc:9093"
    shutil.copytree(FOLDER, tmp_path / "kubernetes")
    own = tmp_path / "kubernetes" / "overlays" / "production" / "kustomization.yaml"
    own.write_text(own.read_text().replace("namespace: thaw\n", "namespace: mine\n"))
    program = kustomize()
    assert program is not None
    made = build(program, str(own.parent))
    assert {one["metadata"]["namespace"] for one in made} == {"mine"}
    assert asked(made) == "kafka-kafka-bootstrap.mine.svc:9093"
    alone = yaml.safe_load((FOLDER / "components" / "keda" / "scaledobject.yaml").read_text())
    assert re.fullmatch(r"kafka\.thaw\.svc:\d+", asked((alone,))), "the namespace that the docs create"


def test_workers_have_stable_names_and_grow_to_the_number_of_partitions(production: tuple[Resource, ...]) -> None:
    worker = of(production, "StatefulSet")["thaw-worker"]
    assert "replicas" not in worker["spec"], "KEDA sets it"
    [container] = worker["spec"]["template"]["spec"]["containers"]
    [instance] = [row for row in container["env"] if row["name"] == "THAW_INSTANCE"]
    assert instance["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    settings = load_settings(environment=environment(production, container))
    scaled = of(production, "ScaledObject")["thaw-worker"]["spec"]
    assert scaled["scaleTargetRef"]["kind"] == "StatefulSet"
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (1, settings.partitions)
    [trigger] = scaled["triggers"]
    about = trigger["metadata"]
    assert (about["consumerGroup"], about["topic"]) == (settings.group, settings.reports_topic)
    alerts = (ROOT / "deploy" / "prometheus" / "rules" / "thaw.yaml").read_text()
    assert f"sum(thaw_worker_lag_records) > {about['lagThreshold']}\n" in alerts, "the same lag as the alert"


def test_the_topics_of_strimzi_are_those_that_thaw_would_make(production: tuple[Resource, ...]) -> None:
    topics = of(production, "KafkaTopic")
    specs = wanted(Settings(replication=3), load_folder(ROOT / "deploy" / "surveys").values())
    assert topics.keys() == {spec.name for spec in specs}
    for spec in specs:
        made = topics[spec.name]["spec"]
        assert (made["partitions"], made["replicas"]) == (spec.partitions, spec.replication)
        given = {key: str(value) for key, value in made["config"].items()}
        assert {key: value for key, value in given.items() if key not in PER_REPLICA} == spec.settings


def test_the_users_of_strimzi_have_the_rights_of_the_docs(production: tuple[Resource, ...]) -> None:
    needed = rights(Settings())
    users = of(production, "KafkaUser")
    assert users.keys() == USERS.keys() | {"thaw-scaler"}
    for name, command in USERS.items():
        rows = users[name]["spec"]["authorization"]["acls"]
        assert {row["resource"]["patternType"] for row in rows} == {"literal"}
        found = {Right(row["resource"]["type"], row["resource"]["name"], tuple(row["operations"])) for row in rows}
        assert found == set(needed[command])
    scaler = users["thaw-scaler"]["spec"]["authorization"]["acls"]
    assert {operation for row in scaler for operation in row["operations"]} == {"Describe"}


def test_the_shipped_alert_rules_are_what_thaw_renders() -> None:
    assert RULES.read_text() == rules_text(form="prometheusrule"), "run: make generated"
    plain, wrapped = yaml.safe_load(rules_text()), yaml.safe_load(RULES.read_text())
    assert wrapped["spec"] == plain


def test_every_monitor_finds_a_port_and_gives_the_job_that_alerts_expect(production: tuple[Resource, ...]) -> None:
    monitors = of(production, "PodMonitor", "ServiceMonitor")
    labels = {name: (pod, labels) for name, pod, labels in pods(production)}
    services = of(production, "Service")
    for one in (item for item in production if item["kind"] in ("PodMonitor", "ServiceMonitor")):
        spec = one["spec"]
        wanted_labels = spec["selector"]["matchLabels"]
        if one["kind"] == "PodMonitor":
            [(pod, found)] = [(pod, some) for pod, some in labels.values() if wanted_labels.items() <= some.items()]
            ports = {port["name"] for port in pod["containers"][0]["ports"]}
            [endpoint] = spec["podMetricsEndpoints"]
        else:
            [service] = [s for s in services.values() if wanted_labels.items() <= s["metadata"]["labels"].items()]
            found, ports = service["metadata"]["labels"], {port["name"] for port in service["spec"]["ports"]}
            [endpoint] = spec["endpoints"]
        assert endpoint["port"] in ports
        assert re.fullmatch("thaw.*", found[spec["jobLabel"]])
    assert monitors.keys() == {"thaw-worker", "thaw-exporter", "thaw-gateway"}


def test_the_docs_name_every_secret_and_map_that_is_not_in_the_manifests(production: tuple[Resource, ...]) -> None:
    made = of(production, "Secret", "ConfigMap").keys() | of(production, "KafkaUser").keys() | {"kafka-cluster-ca-cert"}
    asked: set[str] = set()

    def look(value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                if key in ("secretKeyRef", "configMapRef", "configMap") and isinstance(inner, dict):
                    asked.add(inner["name"])
                elif key == "secretName":
                    asked.add(inner)
                look(inner)
        elif isinstance(value, list):
            for inner in value:
                look(inner)

    look(list(production))
    text = (DOCS / "deployment.md").read_text()
    assert asked - made
    for name in asked - made:
        assert f"`{name}`" in text, name
