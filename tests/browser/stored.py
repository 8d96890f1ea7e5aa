"""Estimates of simulated devices, written to a real Redis as a worker would: for pages with many surveys and values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from estimators.estimates import Estimates
from estimators.tally import Tally
from producers.clock import system_clock
from producers.survey.survey import Survey
from streams.settings import Settings
from streams.store.connect import open_store
from streams.store.heartbeats import Heartbeat
from streams.store.truth import RedisTruths
from streams.windows.history import encode_point
from streams.windows.marginals import marginals
from streams.windows.record import make_record
from streams.windows.settled import settles_ms
from streams.windows.withheld import withheld_by, withheld_record
from tests.support.mechanism import Mechanism, whole
from tests.support.simulate import simulated_tally, simulated_values

KEPT_MS = 3_600_000
DIFFERENT = 4
"""Different windows where nothing else is asked for; the others repeat their counts."""


def survey_file(
    folder: Path,
    name: str,
    values: Iterable[str] | str,
    *,
    question: str = "",
    mechanism: str = 'name = "grr"',
    size: str = "10s",
    retention: str = "1h",
    end: str = "",
    registry: str = "",
    publish: str = "",
) -> Path:
    """Write a survey file and return its path; values are listed, or the text of a grid."""
    listed = f"{{grid = {{{values}}}}}" if isinstance(values, str) else json.dumps(list(values), ensure_ascii=False)
    path = folder / f"{name}.toml"
    path.write_text(f"""
name = "{name}"
question = "{question or f"What about {name}?"}"
values = {listed}
shards = 16
{f"end = {end}" if end else ""}
{f"[registry]{chr(10)}{registry}" if registry else ""}
{f"[publish]{chr(10)}{publish}" if publish else ""}

[mechanism]
{mechanism}

[release]
kind = "listed"
ladder = [1.0, 2.0, 4.0]
opens = ["0s", "1s", "2s"]
jitter = "100ms"

[window]
size = "{size}"
retention = "{retention}"
skew = "10s"

[estimate]
rungs = "independent"

[budget]
lifetime = 1000000
""")
    return path


def store_windows(
    settings: Settings,
    survey: Survey,
    *,
    windows: int,
    users: int,
    seed: int,
    truths: RedisTruths | None = None,
    different: int = DIFFERENT,
    people: Sequence[Any] | None = None,
) -> list[int]:
    """Store the newest settled windows of a survey, with a history and perhaps their truth; returns their starts.

    `people` are true values to draw those of every window from, instead of simulated ones.
    """
    store = open_store(settings)
    mechanism = whole(survey.mechanism)
    now_ms = system_clock()
    newest = survey.windows.latest(now_ms)
    while settles_ms(survey, newest) > now_ms:
        newest -= survey.windows.step_ms
    starts = [newest - age * survey.windows.step_ms for age in reversed(range(windows))]
    answers = [_values(mechanism, users, seed + i, people) for i in range(different)]
    looks = [_looks(survey, mechanism, values, seed + i) for i, values in enumerate(answers)]
    for i, start_ms in enumerate(starts):
        secret = store.queue.lock(survey.id, start_ms, 60_000)
        assert secret is not None
        for part, tally, estimates in looks[i % different]:
            read_ms = start_ms + int(part * (settles_ms(survey, start_ms) - start_ms))
            # The last one is as new as the page: nothing is stale.
            computed_ms = now_ms if part == 1.0 else read_ms
            views = mechanism.estimator.views(tally, estimates)
            record = make_record(
                survey, start_ms, tally, estimates, read_ms=read_ms, computed_ms=computed_ms, views=views
            )
            held = withheld_by(survey, tally, settled=part == 1.0)
            if held is not None:
                nothing = withheld_record(survey, start_ms, tally, held)
                record = msgspec.structs.replace(nothing, read_ms=read_ms, computed_ms=computed_ms)
            point = b"" if held is not None else encode_point(record)
            assert store.estimates.save(survey.id, start_ms, secret, record.encode(), now_ms + KEPT_MS, point=point)
        store.queue.unlock(survey.id, start_ms, secret)
        if truths is not None:
            values = answers[i % different]
            told = {"numerators": mechanism.truth(values).tolist(), "denominators": [1.0] * len(mechanism.labels)}
            truths.post(survey.id, start_ms, "0", told | {"devices": len(values), "settled": True, "blocks": 1})
    return starts


def _values(mechanism: Mechanism, users: int, seed: int, people: Sequence[Any] | None) -> Sequence[Any]:
    devices = users + 10 * seed
    if people is None:
        return simulated_values(mechanism, devices, seed)
    return [people[i] for i in np.random.default_rng(seed).integers(0, len(people), size=devices)]


def _looks(
    survey: Survey, mechanism: Mechanism, values: Sequence[Any], seed: int
) -> list[tuple[float, Tally, Estimates]]:
    """Return what is counted and estimated when a part of the devices has reported, sums of attributes included."""
    looks = []
    for part in (0.2, 0.6, 1.0):
        tally = simulated_tally(mechanism, values[: int(part * len(values))], seed)
        found = mechanism.estimate(tally)
        looks.append((part, tally, replace(found, derived=(*found.derived, *marginals(survey, tally, found)))))
    return looks


def beat(settings: Settings, worker: str, *, age_ms: int = 0, lag_seconds: float = 0.2, kafka_up: bool = True) -> None:
    """Publish a worker's heartbeat, as it was some time ago."""
    time_ms = system_clock() - age_ms
    told = Heartbeat(worker, time_ms, 0, time_ms, 0.4, 0.9, lag_seconds=lag_seconds, kafka_up=kafka_up)
    store = open_store(settings)
    store.heartbeats.publish(told)
    store._client.zincrby(f"{settings.prefix}thaw:v1:{{workers}}:beats", -age_ms, worker)
