"""The alert rules for Prometheus: one static file, `deploy/prometheus/rules/thaw.yaml`, for all surveys.

Thresholds and limits are metrics of the exporter, so the rules do not depend on survey files.
"""

from __future__ import annotations

import re
import textwrap
from typing import Final, Literal

from producers.survey.alert_ranges import rule_problems
from producers.survey.survey import Survey
from streams.folders import deploy_folder
from streams.urls import masked

RUNBOOKS: Final = "docs/runbooks"
"""Where the annotations of the file point to."""

Form = Literal["prometheus", "prometheusrule"]
_RESOURCE: Final = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: thaw
  labels:
    app.kubernetes.io/part-of: thaw
spec:
"""


class AlertRenderError(ValueError):
    """The rules cannot be rendered, or a rule of a survey could never fire; the message says why."""


def check_rules(survey: Survey) -> None:
    """Refuse a survey with an alert rule that could never fire.

    Raises:
        AlertRenderError: a threshold lies outside the possible estimates, or the mechanism has no always-valid bounds.
    """
    problems = rule_problems(survey)
    if problems:
        raise AlertRenderError(f"{survey.name}: {'; '.join(problems)}")


def rules_text(*, runbooks: str = RUNBOOKS, form: Form = "prometheus") -> str:
    """Return the rule file, its annotations pointing to the runbooks at this path or URL.

    With the form `prometheusrule` it is a resource of the Prometheus operator.

    Raises:
        AlertRenderError: the path or URL has characters that need quoting.
    """
    if not re.fullmatch(r"[\w.:/~%+-]+", runbooks, flags=re.ASCII):
        raise AlertRenderError(
            "--runbooks must be a path or URL of letters, digits and . : / ~ % + - _, which everyone who sees an alert "
            f"may see; got {masked(runbooks)!r}"
        )
    text = (deploy_folder("prometheus/rules") / "thaw.yaml").read_text(encoding="utf-8")
    text = text.replace(f"runbook_url: {RUNBOOKS}/", f"runbook_url: {runbooks.rstrip('/')}/")
    if form == "prometheus":
        return text
    head, groups = text.split("\ngroups:\n", 1)
    return f"{head}\n{_RESOURCE}" + textwrap.indent(f"groups:\n{groups}", "  ")
