"""The short form of the calibration: every mechanism, every method, alert bounds and the homogeneity test."""

from __future__ import annotations

from pathlib import Path

import pytest

from estimators.mechanisms.registry import names, specification_class
from tests.calibration import report
from tests.calibration.suite import FORMS, Findings, run


@pytest.fixture(scope="module")
def findings() -> Findings:
    return run(FORMS["short"], seed=1)


@pytest.mark.statistical
def test_bands_alert_bounds_and_the_homogeneity_test_keep_their_promise(findings: Findings) -> None:
    failures = list(findings.failures())
    assert not failures, "\n".join([*failures, report.statement(findings)])


@pytest.mark.statistical
def test_every_mechanism_and_method_is_covered(findings: Findings) -> None:
    covered = {(outcome.mechanism, outcome.method) for outcome in findings.outcomes}
    offered = {(name, method) for name in names() for method in specification_class(name).methods}
    assert covered == offered


@pytest.mark.statistical
def test_the_report_has_a_row_per_mechanism_and_ends_with_the_counts(findings: Findings, tmp_path: Path) -> None:
    page, image = tmp_path / "page.md", tmp_path / "image.svg"
    page.write_text("<!-- generated: calibration -->\nold\n<!-- end: calibration -->\nrest", encoding="utf-8")
    report.write(findings, page, image)
    table, picture = page.read_text(encoding="utf-8"), image.read_text(encoding="utf-8")
    assert table.endswith("\n<!-- end: calibration -->\nrest")
    assert "old" not in table
    for name in names():
        assert f"| {name} |" in table
        assert f">{name}</text>" in picture
    assert report.closing_line(findings) == f"cells {findings.cells}, below 0, above {len(list(findings.above()))}"
