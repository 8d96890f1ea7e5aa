"""States of alerts for the page: as Prometheus sees them, or judged from the stored estimates if there is none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Final, cast

import aiohttp

from producers.survey.survey import Survey
from streams.exporter.api import Alert, Alerts, AlertState, Health
from streams.windows.record import EstimateRecord

logger = logging.getLogger(__name__)

ASK_SECONDS: Final = 2.0
"""Prometheus is asked at most this often, however many people look."""
_TIMEOUT = aiohttp.ClientTimeout(total=3.0)
_ORDER: Final = {"firing": 0, "pending": 1, "inactive": 2}


def threshold_alerts(survey: Survey, records: Mapping[str, EstimateRecord]) -> list[Alert]:
    """Judge the rules of a survey by the bounds stored with its windows, by age; one row per rule.

    The bounds hold at every look, so that looking every second raises no more false alarms than looking once.
    """
    found = []
    for rule in survey.alerts:
        name = f"ThawFrequency{rule.side.capitalize()}Threshold"
        alert = Alert(name, "inactive", survey.id, rule.value, None, "", None, None)
        for age, record in records.items():
            for bound in record.alerts:
                same = (bound.value, bound.side, bound.threshold) == (rule.value, rule.side, rule.threshold)
                if same and bound.firing and bound.bound is not None and alert.state == "inactive":
                    summary = f"{rule.value} is surely {rule.side} {rule.threshold:.4g}: the bound is {bound.bound:.4g}"
                    alert = Alert(name, "firing", survey.id, rule.value, age, summary, None, None)
        found.append(alert)
    return found


def pipeline_alerts(health: Health) -> list[Alert]:
    """Judge the pipeline itself: estimates that stand still, and a canary that strays from its truth."""
    stale = health.status != "ok"
    found = [
        Alert(
            "ThawEstimateStale", _state(stale), None, None, None, " ".join(health.reasons) if stale else "", None, None
        )
    ]
    canary = health.canary
    if canary is not None:
        wrong = abs(canary.z) > canary.limit
        summary = f"{canary.value} is {canary.z:+.1f} standard errors from its truth" if wrong else ""
        found.append(
            Alert("ThawCanaryOutOfCalibration", _state(wrong), canary.survey, canary.value, None, summary, None, None)
        )
    return found


def _state(firing: bool) -> AlertState:
    return "firing" if firing else "inactive"


class PrometheusAlerts:
    """Asks Prometheus for the alerting rules and their states."""

    def __init__(self, url: str) -> None:
        self._url = f"{url.rstrip('/')}/api/v1/rules?type=alert"
        self._asked = float("-inf")
        self._answer = Alerts("unreachable", [])
        self._lock = asyncio.Lock()

    async def __call__(self) -> Alerts:
        """Return the states; never raises."""
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if now - self._asked >= ASK_SECONDS:
                self._answer = await self._ask()
                self._asked = now
            return self._answer

    async def _ask(self) -> Alerts:
        try:
            async with aiohttp.ClientSession(timeout=_TIMEOUT) as session, session.get(self._url) as response:
                response.raise_for_status()
                return alerts_of(await response.json())
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError, AttributeError) as error:
            logger.debug("Prometheus does not tell its alerts: %s", error)
            return Alerts("unreachable", [])


def alerts_of(answer: Any) -> Alerts:
    """Read Prometheus' answer: one row per firing or pending alert, and one for each rule that is quiet."""
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
        raise ValueError(f"an alert is inactive, pending or firing; got {state!r}")
    return Alert(
        name=name,
        state=cast(AlertState, state),
        survey=labels.get("survey"),
        value=labels.get("value"),
        window=labels.get("window"),
        # A rule that is quiet carries its text with the templates not filled in.
        summary=(notes.get("summary") or notes.get("description") or "") if state != "inactive" else "",
        since_ms=None if since is None else int(datetime.fromisoformat(since).timestamp() * 1_000),
        runbook=notes.get("runbook_url"),
    )


AlertSource = Callable[[], Awaitable[Alerts]]
