"""What kustomize makes of deploy/kubernetes, and the schemas of Kubernetes itself."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import yaml

from streams.folders import cache_folder
from tests.support.paths import ROOT

FOLDER: Final = ROOT / "deploy" / "kubernetes"
OVERLAYS: Final = ("minimal", "production")
KUBERNETES: Final = "1.37.0"
OWN_GROUPS: Final = ("", "apps", "batch", "policy")
"""Groups of resources that Kubernetes itself defines, beside those of its own domain."""

Resource = dict[str, Any]


def kustomize() -> Path | None:
    """Return the program, from the path or as `make setup` unpacked it; None if it is not there."""
    unpacked = cache_folder() / "unstable" / "kustomize" / "usr" / "bin" / "kustomize"
    found = shutil.which("kustomize")
    return unpacked if unpacked.exists() else None if found is None else Path(found)


@cache
def build(program: Path, overlay: str) -> tuple[Resource, ...]:
    """Return all resources of an overlay."""
    folder = FOLDER / "overlays" / overlay
    done = subprocess.run([str(program), "build", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def is_own(resource: Resource) -> bool:
    """Tell whether Kubernetes itself defines the resource."""
    group, _, version = resource["apiVersion"].rpartition("/")
    return group in OWN_GROUPS or (group.endswith(".k8s.io") and bool(version))


def check_own(resource: Resource) -> None:
    """Hold a resource against the schema of Kubernetes; fields that it does not have are refused.

    Raises:
        kubernetes_validate.ValidationError: it does not fit.
    """
    kubernetes_validate.validate(resource, KUBERNETES, strict=True)


def name_of(resource: Resource) -> str:
    """Return kind and name."""
    return f"{resource['kind']}/{resource['metadata']['name']}"
