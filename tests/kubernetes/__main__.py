"""`python -m tests.kubernetes`, which `make kubernetes-test` runs.

Builds every overlay with kustomize, holds each resource against the strict schema of who defines it, and shows that
each schema refuses a field that it does not have. Stdout ends with `passed: ...`. Exit status 1 if anything is refused,
3 if a program is missing.
"""

from __future__ import annotations

import copy
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import kubernetes_validate

from tests.kubernetes.manifests import OVERLAYS, Resource, build, check_own, is_own, kustomize, name_of
from tests.kubernetes.schemas import STRIMZI, MissingToolError, Schema, definitions, faults, strimzi_faults

CANNOT = 3


def main() -> int:
    """Check everything; return the exit status."""
    program = kustomize()
    if program is None:
        print("kubernetes: kustomize is not installed; `make setup` unpacks it", file=sys.stderr)
        return CANNOT
    resources = {name: build(program, name) for name in OVERLAYS}
    try:
        refused = [f"{name}: {text}" for name, some in resources.items() for text in refusals(some)]
        blind = [
            f"{name}: added field not noticed: {text}" for name, some in resources.items() for text in missed(some)
        ]
    except MissingToolError as error:
        print(f"kubernetes: {error}", file=sys.stderr)
        return CANNOT
    for text in (*refused, *blind):
        print(text, file=sys.stderr)
    if refused or blind:
        return 1
    kinds = Counter(resource["kind"] for some in resources.values() for resource in some)
    print(f"passed: {kinds.total()} resources of {len(kinds)} kinds in {len(OVERLAYS)} overlays fit the schemas")
    return 0


def refusals(resources: Sequence[Resource]) -> list[str]:
    """Return what the schemas refuse."""
    found: list[str] = []
    known = _definitions(frozenset(resource["kind"] for resource in resources if not is_own(resource)))
    of_strimzi = [resource for resource in resources if resource["apiVersion"].startswith(STRIMZI)]
    for resource in resources:
        if is_own(resource):
            try:
                check_own(resource)
            except kubernetes_validate.ValidationError as error:
                found.append(f"{name_of(resource)}: {error.message}")
        elif resource not in of_strimzi:
            schema = known.get((resource["apiVersion"], resource["kind"]))
            found += [f"{name_of(resource)}: nobody defines it"] if schema is None else faults(resource, schema)
    return found + (strimzi_faults(of_strimzi).splitlines() if of_strimzi else [])


def missed(resources: Sequence[Resource]) -> list[str]:
    """Return the resources to which a field can be added without a refusal: they would be checked by nothing."""
    damaged = [_damaged(resource) for resource in resources if "spec" in resource]
    told = refusals(damaged)
    return [name_of(one) for one in damaged if not any(text.startswith(name_of(one)) for text in told)]


def _damaged(resource: Resource) -> Resource:
    made: dict[str, Any] = copy.deepcopy(resource)
    made["spec"]["replicasss"] = 1
    return made


@cache
def _definitions(kinds: frozenset[str]) -> dict[tuple[str, str], Schema]:
    return definitions(kinds)


if __name__ == "__main__":
    sys.exit(main())
