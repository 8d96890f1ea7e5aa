"""What `make sbom` and `make audit-deps` print, from the files of their tools. Runs without any package.

A package that the service of advisories does not know was not compared: that is said, and is never "no advisory".
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NOT_READY = 75


def sbom_line(file: Path) -> str:
    """Return what a CycloneDX file lists."""
    content = json.loads(file.read_text())
    parts = content["components"]
    licensed = sum(bool(part.get("licenses")) for part in parts)
    return f"{file}: CycloneDX {content['specVersion']}, {len(parts)} packages, {licensed} with a stated licence"


def audit_lines(found: dict[str, Any]) -> tuple[list[str], int]:
    """Return what pip-audit's JSON says, and the exit status."""
    packages = found["dependencies"]
    compared = [package for package in packages if "skip_reason" not in package]
    concerned = [package for package in compared if package["vulns"]]
    lines = [
        f"{package['name']} {package['version']}: {flaw['id']}; "
        f"fixed in {', '.join(flaw['fix_versions']) or 'no version yet'}"
        for package in concerned
        for flaw in package["vulns"]
    ]
    if not compared:
        lines.append(
            f"the service of advisories cannot be reached, or knows none of the {len(packages)} packages: nothing was "
            "compared; try again where it can be reached"
        )
        return lines, NOT_READY
    missing = len(packages) - len(compared)
    lines.append(
        f"{len(compared)} packages compared, {len(concerned)} with advisories, {missing} unknown to the service"
    )
    return lines, 1 if concerned else NOT_READY if missing else 0


def main(arguments: Sequence[str]) -> int:
    """Print the report; return the exit status."""
    kind, file = arguments[0], Path(arguments[1])
    if kind == "sbom":
        print(sbom_line(file))
        return 0
    if not file.exists():
        print(
            f"the service of advisories cannot be reached: nothing was compared; {arguments[2]} has the reason",
            file=sys.stderr,
        )
        return NOT_READY
    lines, status = audit_lines(json.loads(file.read_text()))
    print("\n".join(lines))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
