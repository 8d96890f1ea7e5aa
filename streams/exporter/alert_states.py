"""States of alerts for the page: from Prometheus, or evaluated on the stored estimates if there is none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Mapping
from datetime import datetime
from typing import Any, Final, cast

import aiohttp
import msgspec

from producers.survey.file import RungAssumption
from producers.survey.survey import Survey
from streams.exporter.api import Alert, Alerts, AlertState, Health
from streams.exporter.health import out_of_calibration, rule_bounds, rungs_contradicted, worst_rung
from streams.windows.record import EstimateRecord

logger = logging.getLogger(__name__)

ASK_SECONDS: Final = 2.0
"""Shortest time between two requests to Prometheus, for any number of viewers."""
WAIT_SECONDS: Final = 1.0
"""How long one answer waits for Prometheus; after that it is the answer before."""
_TIMEOUT = aiohttp.ClientTimeout(total=3.0)
_NAMES: Final = {"share": "Frequency", "mean": "Mean"}
ASSUMED: Final[Mapping[RungAssumption, str]] = {
    "any": "nothing is assumed about rungs",
    "independent": "assumes that the rung of a device does not depend on its value",
}
_ORDER: Final = {"firing": 0, "pending": 1, "inactive": 2}


def threshold_alerts(survey: Survey, records: Mapping[str, EstimateRecord]) -> list[Alert]:
    """Evaluate the alert rules of a survey on the bounds stored with its windows, by age; one row per rule.

    The bounds hold at every look, so that looking every second raises no more false alarms than looking once.
    """
    kinds = {quantity.label: quantity for quantity in survey.mechanism.quantities}
    found = {}
    for rule in survey.alerts:
        name = f"Thaw{_NAMES[kinds[rule.value].kind]}{rule.side.capitalize()}Threshold"
        found[rule] = Alert(name, "inactive", survey.id, rule.value, None, "", None, None)
    for age, record in records.items():
        for rule, bound in rule_bounds(survey, record):
            if found[rule].state == "inactive" and bound.firing:
                end = "lower" if rule.side == "above" else "upper"
                limit = f"its threshold of {rule.threshold:.4g}"
                summary = f"{rule.value} is {rule.side} {limit}: the {end} bound is {bound.bound:.4g}"
                summary += f"; {ASSUMED[record.assumption]}"
                found[rule] = msgspec.structs.replace(found[rule], state="firing", window=age, summary=summary)
    return list(found.values())


def assumption_alerts(survey: Survey, records: Mapping[str, EstimateRecord]) -> list[Alert]:
    """Evaluate the rule on the survey's assumption about rungs; no row for a survey that assumes nothing."""
    if survey.rungs != "independent":
        return []
    against = rungs_contradicted(records)
    summary = f'{against} of the last five closed windows contradict rungs = "independent"' if against else ""
    return [Alert("ThawRungsContradicted", _state(against > 0), survey.id, None, None, summary, None, None)]


def pipeline_alerts(health: Health) -> list[Alert]:
    """Evaluate the rules on Redis, Kafka, lag, stale estimates and canaries, one row per survey that is stale."""
    down = health.store == "down"
    found = [
        _pipeline("ThawStoreDown", down, health.reasons[0] if down else ""),
        _pipeline("ThawKafkaDown", health.kafka == "down", "Kafka does not answer every worker"),
    ]
    lag, limit = health.lag_seconds, health.lag_limit_seconds
    behind = lag is not None and limit is not None and lag > limit
    found.append(_pipeline("ThawEstimatesBehind", behind, f"Estimates are {lag or 0:.0f} s behind"))
    stale = [entry for entry in health.surveys if entry.stale]
    for entry in stale:
        age_ms = health.now_ms - (entry.last_estimate_ms or 0)
        summary = f"The last estimate is {age_ms / 1_000:.0f} s old; the limit is {entry.stale_after_ms / 1_000:.0f} s"
        found.append(Alert("ThawEstimateStale", "firing", entry.survey, None, None, summary, None, None))
    if not stale:
        found.append(Alert("ThawEstimateStale", "inactive", None, None, None, "", None, None))
    canary = health.canary
    if canary is not None:
        wrong = out_of_calibration(canary)
        summary = f"{canary.value} is {canary.z:+.1f} standard errors from its truth" if wrong else ""
        found.append(
            Alert("ThawCanaryOutOfCalibration", _state(wrong), canary.survey, canary.value, None, summary, None, None)
        )
    for audit in health.epsilon_audits:
        worst = worst_rung(audit)
        summary = (
            f"Answers up to rung {worst.rung} cost an epsilon of at least {worst.lower_bound:.2f}; "
            f"declared is {worst.declared:.2f}"
            if audit.exceeded
            else ""
        )
        firing = _state(audit.exceeded)
        found.append(Alert("ThawEpsilonAboveDeclared", firing, audit.survey, None, None, summary, None, None))
    return found


def _pipeline(name: str, firing: bool, summary: str) -> Alert:
    return Alert(name, _state(firing), None, None, None, summary if firing else "", None, None)


def _state(firing: bool) -> AlertState:
    return "firing" if firing else "inactive"


class PrometheusAlerts:
    """Asks Prometheus for the alerting rules and their states."""

    def __init__(self, url: str) -> None:
        self._url = f"{url.rstrip('/')}/api/v1/rules?type=alert"
        self._asked = float("-inf")
        self._answer = Alerts("unreachable", [])
        self._asking: asyncio.Task[Alerts] | None = None

    async def __call__(self) -> Alerts:
        """Return the states; never raises, and never waits long: one question serves all that ask meanwhile."""
        now = asyncio.get_running_loop().time()
        if self._asking is None and now - self._asked >= ASK_SECONDS:
            self._asking, self._asked = asyncio.create_task(self._ask()), now
        if self._asking is not None:
            await asyncio.wait([self._asking], timeout=WAIT_SECONDS)
            if self._asking is not None and self._asking.done():
                self._answer, self._asking = self._asking.result(), None
        return self._answer

    async def _ask(self) -> Alerts:
        try:
            async with aiohttp.ClientSession(timeout=_TIMEOUT) as session, session.get(self._url) as response:
                response.raise_for_status()
                return alerts_of(await response.json())
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError, AttributeError) as error:
            logger.debug("cannot read alerts from Prometheus: %s", error)
            return Alerts("unreachable", [])


def alerts_of(answer: Any) -> Alerts:
    """Read Prometheus' answer: one row per firing or pending alert, and one for each inactive rule."""
    found: list[Alert] = []
    for group in answer["data"]["groups"]:
        for rule in group["rules"]:
            if rule.get("type") != "alerting":
                continue
            active = rule.get("alerts") or []
            if not active:
                found.append(_row(rule["name"], "inactive", rule.get("labels", {}), rule.get("annotations", {}), None))
            for alert in active:
                labels, notes = alert.get("labels", {}), alert.get("annotations", {})
                found.append(_row(rule["name"], alert["state"], labels, notes, alert.get("activeAt")))
    return Alerts("prometheus", in_order(found))


def in_order(alerts: list[Alert]) -> list[Alert]:
    """Return firing ones first, then pending ones, each by name, survey and value."""
    return sorted(alerts, key=lambda alert: (_ORDER[alert.state], alert.name, alert.survey or "", alert.value or ""))


def _row(name: str, state: str, labels: dict[str, str], notes: dict[str, str], since: str | None) -> Alert:
    if state not in _ORDER:
        raise ValueError(f"state of an alert must be inactive, pending or firing; got {state!r}")
    return Alert(
        name=name,
        state=cast(AlertState, state),
        survey=labels.get("survey"),
        value=labels.get("value"),
        window=labels.get("window"),
        # The text of an inactive rule has its templates not filled in.
        summary=(notes.get("summary") or notes.get("description") or "") if state != "inactive" else "",
        since_ms=None if since is None else int(datetime.fromisoformat(since).timestamp() * 1_000),
        runbook=notes.get("runbook_url"),
    )


def with_runbooks(alerts: Alerts, base: str, pages: Container[str]) -> Alerts:
    """Return the alerts with links that lead somewhere from the page.

    Absolute links stay. Paths such as those of the rule file, and missing ones, become links into `base`, a URL or a
    path of the exporter, if there is such a page.
    """
    linked = [
        msgspec.structs.replace(alert, runbook=f"{base.rstrip('/')}/{alert.name}.md")
        if f"{alert.name}.md" in pages and not (alert.runbook or "").startswith(("http://", "https://"))
        else alert
        for alert in alerts.alerts
    ]
    return Alerts(alerts.source, linked)


AlertSource = Callable[[], Awaitable[Alerts]]
