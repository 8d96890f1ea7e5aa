"""The services of deploy/compose, run as the file says, without an engine of Compose and without a registry.

`python -m tests.images.compose` runs in a network and a file tree of its own (`unshare --net --mount`), so that every
port and name is the one in the file. Our services are containers of our images; Kafka, Redis, Prometheus and
Alertmanager are the programs of this machine with the file's own variables, arguments and mounts. Grafana is not run.
There is no name server here, so Prometheus is told the address of the worker's name, which it would ask one for.
"""

from __future__ import annotations

import fcntl
import json
import socket
import struct
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from streams.folders import cache_folder
from streams.local.kafka import ApacheKafka
from streams.local.process import Child, ServiceError, signals_as_interrupt
from streams.local.redis import Redis, redis_program
from tests.images.engine import Engine
from tests.support.deadline import until
from tests.support.paths import ROOT

FILE: Final = ROOT / "deploy" / "compose" / "compose.yaml"
PROFILES: Final = ("demo", "observability")
NAMES: Final = ("kafka", "redis", "worker", "exporter", "prometheus", "alertmanager")
OURS: Final = ("worker", "exporter", "fleet", "canary")
PROMETHEUS: Final = "http://127.0.0.1:9090"
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1

Services = Mapping[str, Any]


def composed() -> Services:
    """Return the services of the file, as docker-compose understands it."""
    profiles = [word for name in PROFILES for word in ("--profile", name)]
    command = ["docker-compose", "--file", str(FILE), *profiles, "config"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    services: Services = yaml.safe_load(done.stdout)["services"]
    return services


def mounts(service: Mapping[str, Any]) -> dict[Path, str]:
    """Return the folders and files of this machine that a service mounts, each with its place inside."""
    parts = [volume.split(":") for volume in service.get("volumes", [])]
    return {Path(source): place for source, place, *_ in parts if source.startswith("/")}


def broker_properties(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the broker's properties, by the rule of the image `apache/kafka`."""
    named = {name.removeprefix("KAFKA_"): value for name, value in variables.items() if name.startswith("KAFKA_")}
    return {name.lower().replace("_", "."): value for name, value in named.items()}


class ComposedKafka(ApacheKafka):
    """A broker with the properties of the file; only its data lie elsewhere."""

    def __init__(self, service: Mapping[str, Any], folder: Path) -> None:
        super().__init__(folder=folder)
        self._given = broker_properties(service["environment"])
        self._ports = [9092, 9094]

    def _properties(self, data: Path) -> str:
        return "\n".join(f"{name}={value}" for name, value in {**self._given, "log.dirs": str(data)}.items())


class ComposedRedis(Redis):
    """A Redis with the arguments of the file; only its data lie elsewhere."""

    def __init__(self, service: Mapping[str, Any], folder: Path) -> None:
        super().__init__(folder=folder)
        self._arguments = service["command"][1:]
        self._ports = [6379]

    def _launch(self) -> Child:
        return Child(self.name, [str(redis_program()), *self._arguments, "--dir", str(self.folder)], log=self.log)


def without_name_server(text: str) -> str:
    """Return a configuration in which Prometheus asks no name server for the containers of a service."""
    config = yaml.safe_load(text)
    for job in config.get("scrape_configs", []):
        for found in job.pop("dns_sd_configs", []):
            job["static_configs"] = [{"targets": [f"{name}:{found['port']}" for name in found["names"]]}]
    return str(yaml.safe_dump(config))


@contextmanager
def monitor(service: Mapping[str, Any], program: str, folder: Path) -> Iterator[Child]:
    """Run Prometheus or Alertmanager with the arguments and mounts of the file, below a folder."""
    for source, place in mounts(service).items():
        inside = folder / place[1:]
        inside.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            inside.symlink_to(source)
        else:
            inside.write_text(without_name_server(source.read_text()))
    arguments = [word.replace("=/", f"={folder}/") for word in service["command"]]
    child = Child(program, [program, *arguments], log=folder / f"{program}.log", cwd=folder)
    try:
        yield child
    finally:
        child.kill()


class Course:
    """Starts everything in the order of the file and looks at it.

    Args:
        engine: what runs containers; it has both images.
        folder: where data and logs go.
    """

    def __init__(self, engine: Engine, folder: Path) -> None:
        self._engine, self._folder, self._services = engine, folder, composed()

    def play(self) -> str:
        """Run the services; return what was seen."""
        with ExitStack() as stack:
            stack.enter_context(ComposedKafka(self._services["kafka"], self._folder / "kafka"))
            stack.enter_context(ComposedRedis(self._services["redis"], self._folder / "redis"))
            created = self._run("topics")
            assert created.returncode == 0, created
            for name in OURS:
                stack.enter_context(self._running(name))
            for name in ("worker", "exporter"):
                self._wait_until_healthy(name)
            stack.enter_context(monitor(self._services["alertmanager"], "prometheus-alertmanager", self._folder))
            stack.enter_context(monitor(self._services["prometheus"], "prometheus", self._folder))
            found = self._watched()
            self._engine.kill(_container("worker"))
            self._wait_until_healthy("worker")
            for name in ("fleet", "canary"):
                assert self._engine.stop(_container(name)) == 0, self._engine.log(_container(name))
            until(self._verified, 120, "windows that `thaw verify` finds equal", poll_seconds=2)
        return found

    def _options(self, name: str) -> dict[str, Any]:
        service = self._services[name]
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        return {"variables": service["environment"], "mounts": mounts(service)}

    def _image(self, name: str) -> str:
        return f"localhost/{self._services[name]['image']}"

    def _run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = arguments or self._services[name]["command"]
        return self._engine.run(self._image(name), command, network="host", **self._options(name))

    @contextmanager
    def _running(self, name: str) -> Iterator[str]:
        command = self._services[name]["command"]
        with self._engine.running(_container(name), self._image(name), command, **self._options(name)) as running:
            yield running

    def _wait_until_healthy(self, name: str) -> None:
        _, *command = self._services[name]["healthcheck"]["test"]
        until(
            lambda: self._engine.inside(_container(name), command).returncode == 0,
            120,
            f"the health check of {name} to pass",
            poll_seconds=1,
        )

    def _watched(self) -> str:
        """Wait until Prometheus sees every target and estimates, and Alertmanager; return a word on it."""
        jobs = 'count by (job) (up{job=~"thaw.*"} == 1)'
        targets = until(lambda: _all(_query(jobs), 2), 120, "exporter and worker to be scraped", poll_seconds=1)
        shares = 'thaw_frequency_estimate_ratio{survey=~"browser.*"}'
        estimates = until(lambda: _query(shares), 120, "estimates in Prometheus", poll_seconds=1)
        until(lambda: _query("thaw_canary_joint_z_score"), 240, "the canary in Prometheus", poll_seconds=1)
        until(lambda: _get("/api/v1/alertmanagers")["activeAlertmanagers"], 60, "Alertmanager to be found")
        down = _query('ALERTS{alertname=~"ThawTargetDown|ThawStoreDown|ThawKafkaDown"}')
        assert not down, down
        return f"{len(estimates)} estimates of browser, {len(targets)} targets"

    def _verified(self) -> bool:
        done = self._run("worker", "verify", "--json")
        found = json.loads(done.stdout)
        assert not found["different"], done
        return bool(found["equal"])


def _all(found: list[Any], count: int) -> list[Any]:
    """Return what was found if it is as many, else nothing."""
    return found if len(found) == count else []


def _container(name: str) -> str:
    return f"thaw-compose-{name}"


def _get(path: str) -> Any:
    try:
        with urllib.request.urlopen(f"{PROMETHEUS}{path}", timeout=10) as answer:
            return json.load(answer)["data"]
    except OSError:
        return {"result": [], "activeAlertmanagers": []}


def _query(expression: str) -> list[Any]:
    found: list[Any] = _get(f"/api/v1/query?{urllib.parse.urlencode({'query': expression})}")["result"]
    return found


def _enter(folder: Path) -> None:
    """Make this network's loopback work, and give the services their names."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        _, flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 localhost\n" + "".join(f"127.0.0.1 {name}\n" for name in NAMES))
    subprocess.run(["mount", "--bind", str(hosts), "/etc/hosts"], check=True)


def run_apart() -> str:
    """Run this module in a network and a file tree of its own; return what it saw.

    Raises:
        ServiceError: it failed; the message is its own.
    """
    command = ["unshare", "--net", "--mount", "--propagation=private", sys.executable, "-m", __name__]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServiceError(f"the services of {FILE.relative_to(ROOT)} do not run: {done.stderr}")
    return done.stdout.strip()


def main() -> int:
    """Play the course; return the exit status."""
    with tempfile.TemporaryDirectory(prefix="thaw-compose-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        _enter(folder)
        with signals_as_interrupt():
            print(f"compose: {Course(Engine(cache_folder() / 'images'), folder).play()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
