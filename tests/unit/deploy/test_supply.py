"""The report on advisories: what was not compared is never reported as free of them."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from deploy.supply_report import NOT_READY, audit_lines
from tests.support.paths import ROOT

GOOD: dict[str, Any] = {"name": "click", "version": "8.3.3", "vulns": []}
BAD: dict[str, Any] = {"name": "redis", "version": "8.1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["8.1.1"]}]}
UNKNOWN: dict[str, Any] = {"name": "numba", "skip_reason": "not found"}


def test_an_advisory_is_named_with_its_remedy() -> None:
    lines, status = audit_lines({"dependencies": [GOOD, BAD]})
    assert lines[0] == "redis 8.1.0: PYSEC-1; fixed in 8.1.1"
    assert (lines[-1], status) == ("2 packages compared, 1 with advisories, 0 unknown to the service", 1)


def test_packages_that_were_not_compared_are_no_success() -> None:
    assert audit_lines({"dependencies": [GOOD, UNKNOWN]})[1] == NOT_READY
    lines, status = audit_lines({"dependencies": [UNKNOWN]})
    assert ("nothing was compared" in lines[0], status) == (True, NOT_READY)
    assert audit_lines({"dependencies": [GOOD]})[1] == 0


def test_every_part_of_an_image_is_looked_at() -> None:
    [parts] = re.findall(r"^readonly PARTS='(.*)'$", (ROOT / "deploy" / "supply.sh").read_text(), re.MULTILINE)
    shipped = re.findall(r'"\.\[(.*)\]"', (ROOT / "deploy" / "images" / "Dockerfile").read_text())
    assert len(shipped) == 2
    assert {part for image in shipped for part in image.split(",")} <= set(parts.split(","))


def test_every_extra_that_somebody_may_deploy_is_looked_at() -> None:
    """A new one is on the list, or is said here not to run where reports are."""
    [parts] = re.findall(r"^readonly PARTS='(.*)'$", (ROOT / "deploy" / "supply.sh").read_text(), re.MULTILINE)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    of_developers = {"test", "demo", "audit", "papers", "flights", "data", "plot", "library", "parquet"}
    assert set(parts.split(",")) == extras.keys() - of_developers
