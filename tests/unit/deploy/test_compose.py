"""deploy/compose: accepted by docker-compose, and in agreement with the rest. `make image-test` runs its services."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from streams.cli import main as cli
from streams.kafka.topics import MAX_MESSAGE_BYTES
from streams.settings import load_settings, unknown_variables
from tests.images.compose import FILE, PROFILES, broker_properties, composed, mounts
from tests.support.paths import DOCS, ROOT
from tests.support.services import missing

ALWAYS = {"kafka", "redis", "topics", "worker", "exporter"}
BY_PROFILE = {"demo": {"fleet", "canary"}, "observability": {"prometheus", "alertmanager", "grafana"}}
ENDS = {"topics"}
SENDS = {"fleet", "canary"}
"""They serve nothing that could be asked whether it is well; a fleet that fails ends, and is started again."""


@pytest.fixture(scope="module")
def services() -> Mapping[str, Any]:
    if shutil.which("docker-compose") is None:
        missing("docker-compose is not installed; `make setup` installs it")
    return composed()


def ours(services: Mapping[str, Any]) -> dict[str, Any]:
    return {name: service for name, service in services.items() if service["image"].startswith("thaw-")}


def test_profiles_add_what_their_names_say(services: Mapping[str, Any]) -> None:
    assert set(BY_PROFILE) == set(PROFILES)
    assert set(services) == ALWAYS.union(*BY_PROFILE.values())
    for name, service in services.items():
        assert service.get("profiles", []) == [profile for profile, names in BY_PROFILE.items() if name in names]


def test_whatever_serves_has_a_health_check_and_restarts(services: Mapping[str, Any]) -> None:
    for name, service in services.items():
        assert service["restart"] in ("on-failure", "unless-stopped")
        assert ("healthcheck" in service) == (name not in ENDS | SENDS)


def test_nothing_waits_for_a_service_that_never_becomes_what_is_waited_for(services: Mapping[str, Any]) -> None:
    for service in services.values():
        for name, wait in service.get("depends_on", {}).items():
            assert (wait["condition"] == "service_completed_successfully") == (name in ENDS)


def test_only_loopback_sees_ports(services: Mapping[str, Any]) -> None:
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_every_mounted_file_exists(services: Mapping[str, Any]) -> None:
    for service in services.values():
        for source in mounts(service):
            assert source.exists()
            assert ROOT in source.parents


def test_our_services_have_settings_that_exist_and_commands_that_parse(services: Mapping[str, Any]) -> None:
    for name, service in ours(services).items():
        environment = service["environment"]
        assert not unknown_variables(environment)
        settings = load_settings(environment=environment)
        assert settings.redis == f"redis://redis:{6379}/0"
        command: click.Command | None = cli.cli
        words = [word.replace("/surveys/", f"{ROOT}/deploy/surveys/") for word in service["command"]]
        while isinstance(command, click.Group):
            command = command.get_command(click.Context(command), words.pop(0))
        assert command is not None, name
        command.make_context(name, words)
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]


def test_ports_in_health_checks_and_scrapes_are_the_defaults(services: Mapping[str, Any]) -> None:
    settings = load_settings(environment={})
    ports = {"worker": settings.worker_port, "exporter": settings.exporter_port}
    config = yaml.safe_load(FILE.with_name("prometheus.yml").read_text())
    by_job = {job["job_name"]: job for job in config["scrape_configs"]}
    assert by_job["thaw-exporter"]["static_configs"] == [{"targets": [f"exporter:{ports['exporter']}"]}]
    assert by_job["thaw-worker"]["dns_sd_configs"] == [{"names": ["worker"], "type": "A", "port": ports["worker"]}]
    for name, port in ports.items():
        assert f":{port}/" in services[name]["healthcheck"]["test"][-1]


def test_prometheus_here_differs_from_the_one_on_a_single_machine_in_addresses_only() -> None:
    def plain(path: Path) -> Any:
        config = yaml.safe_load(path.read_text())
        for job in config["scrape_configs"]:
            job.pop("static_configs", None)
            job.pop("dns_sd_configs", None)
        config["alerting"] = None
        return config

    assert plain(FILE.with_name("prometheus.yml")) == plain(ROOT / "deploy" / "prometheus" / "prometheus.yml")


def test_promtool_accepts_the_configuration(tmp_path: Path) -> None:
    program = shutil.which("promtool") or missing("promtool is not installed; `make setup` installs it")
    config = tmp_path / "prometheus.yml"
    config.write_text(FILE.with_name("prometheus.yml").read_text())
    (tmp_path / "rules").symlink_to(ROOT / "deploy" / "prometheus" / "rules")
    done = subprocess.run([program, "check", "config", config], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 rule files found" in done.stdout


def test_the_broker_has_what_counting_needs(services: Mapping[str, Any]) -> None:
    found = broker_properties(services["kafka"]["environment"])
    single = dict(
        line.split("=", 1)
        for line in (ROOT / "deploy" / "kafka" / "server.properties").read_text().splitlines()
        if "=" in line and not line.startswith("#")
    )
    for name in ("log.message.timestamp.type", "auto.create.topics.enable", "message.max.bytes"):
        assert found[name] == single[name]
    assert int(found["message.max.bytes"]) == MAX_MESSAGE_BYTES
    assert found["log.dirs"] == services["kafka"]["volumes"][0].split(":")[1]


def test_the_version_of_kafka_is_the_one_that_is_tested(services: Mapping[str, Any]) -> None:
    pom = (ROOT / "deploy" / "kafka" / "pom.xml").read_text()
    [version] = re.findall(r"<artifactId>kafka_2\.13</artifactId>\s*<version>([\d.]+)</version>", pom)
    assert services["kafka"]["image"] == f"apache/kafka:{version}"


def test_redis_keeps_counts(services: Mapping[str, Any]) -> None:
    words = services["redis"]["command"]
    options = dict(zip(words[1::2], words[2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"


def test_the_docs_name_every_service_and_profile(services: Mapping[str, Any]) -> None:
    text = (DOCS / "deployment.md").read_text()
    for word in (*services, *PROFILES):
        assert f"`{word}`" in text, word
