"""The schemas of resources that operators define, each from the module that defines it.

KEDA and the Prometheus operator publish theirs as Go modules. Strimzi publishes the classes with which its operators
read resources: a program of a few lines (Strimzi.java) reads ours with them and names what they do not know.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema
import yaml

from streams.folders import cache_folder
from tests.kubernetes.manifests import Resource, name_of

MODULES: Final = {
    "github.com/kedacore/keda/v2": ("v2.21.0", "config/crd/bases"),
    "github.com/prometheus-operator/prometheus-operator": ("v0.85.0", "example/prometheus-operator-crd"),
}
STRIMZI: Final = "kafka.strimzi.io/"
HERE: Final = Path(__file__).parent

Schema = dict[str, Any]


class MissingToolError(RuntimeError):
    """A program that fetches schemas is not installed; the message names it."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # untyped
    """Takes a lone equals sign for text, as YAML 1.2 does."""


_Loader.add_constructor("tag:yaml.org,2002:value", yaml.SafeLoader.construct_yaml_str)


def definitions(kinds: Container[str]) -> dict[tuple[str, str], Schema]:
    """Return the strict schema of every version of these kinds that KEDA and the Prometheus operator define."""
    found: dict[tuple[str, str], Schema] = {}
    for module, (version, folder) in MODULES.items():
        for file in sorted((_module(module, version) / folder).glob("*_*.yaml")):
            text = file.read_text()
            named = re.search(r"^    kind: (\w+)$", text, re.MULTILINE)
            if named is None or named[1] not in kinds:
                continue  # they are long
            spec = yaml.load(text, _Loader)["spec"]
            for one in spec["versions"]:
                schema = one["schema"]["openAPIV3Schema"]
                found[f"{spec['group']}/{one['name']}", spec["names"]["kind"]] = strict(schema)
    return found


def _module(name: str, version: str) -> Path:
    if shutil.which("go") is None:
        raise MissingToolError("go is not installed; it fetches the modules with the schemas")
    env = os.environ | {"GOPATH": str(cache_folder() / "go"), "GOFLAGS": "-modcacherw"}
    command = ["go", "mod", "download", "-json", f"{name}@{version}"]
    # Outside of this repository, which is no Go module.
    done = subprocess.run(command, env=env, cwd=HERE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(json.loads(done.stdout)["Dir"])


def strict(schema: Schema) -> Schema:
    """Return a schema that refuses fields it does not name, as `kubectl --validate=strict` does."""
    made = {key: _inside(value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
        made["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    open_ = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if "properties" in schema and not open_:
        made["additionalProperties"] = False
        # Every resource has these, whatever its definition says.
        if "spec" in schema["properties"] and "metadata" in schema["properties"]:
            made["properties"] = {**made["properties"], "apiVersion": {}, "kind": {}, "metadata": {}}
    return made


def _inside(value: Any) -> Any:
    if isinstance(value, dict):
        return strict(value)
    return [_inside(item) for item in value] if isinstance(value, list) else value


def faults(resource: Resource, schema: Schema) -> Iterator[str]:
    """Return what a resource has that its schema does not allow."""
    for error in jsonschema.Draft202012Validator(schema).iter_errors(resource):
        place = ".".join(map(str, error.absolute_path))
        yield f"{name_of(resource)}: {place or 'at the top'}: {error.message}"


def strimzi_faults(resources: Iterable[Resource]) -> str:
    """Return what Strimzi's own classes say of these resources; empty if they take them as they are."""
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            raise MissingToolError(f"{tool} is not installed; it reads resources with Strimzi's classes")
    libs = cache_folder() / "strimzi"
    if not libs.exists():
        fetched = libs.with_name("strimzi.new")
        shutil.rmtree(fetched, ignore_errors=True)
        command = ["mvn", "--quiet", "--batch-mode", "--file", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
        subprocess.run([*command, f"-DoutputDirectory={fetched}"], check=True)
        fetched.rename(libs)
    text = json.dumps(list(resources))
    command = ["java", "-cp", f"{libs}/*", str(HERE / "Strimzi.java")]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
