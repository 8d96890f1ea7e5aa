"""What an estimate with always-valid bounds costs, beside the same with bounds found by halving alone."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

from estimators.intervals import always_valid
from estimators.tally import Tally
from producers.simulation.scenarios import falling_shares
from producers.survey.survey import Survey, parse_survey
from streams.windows.window_record import estimate_record
from tests.bench.goals import Measured, Result, Series
from tests.support.mechanism import whole
from tests.support.plain_bounds import halved
from tests.support.simulate import simulated_tally

ROUNDS: Final = 3
GOALS: Final = {100: None, 1_000: 10.0, 10_000: 10.0}
"""By the number of values."""
USERS: Final = 1_000_000


def survey_of_values(values: int) -> Survey:
    """Return a survey of four rungs whose bounds are always valid."""
    labels = json.dumps([f"value {number}" for number in range(values)])
    return parse_survey(
        f"""
name = "recompute-{values}"
question = "Which?"
values = {labels}
shards = 64
[mechanism]
name = "grr"
[release]
kind = "listed"
ladder = [0.5, 1.0, 2.0, 4.0]
opens = ["0s", "10s", "20s", "30s"]
jitter = "0s"
[window]
size = "1m"
retention = "1d"
[estimate]
rungs = "independent"
[budget]
lifetime = 1000
""",
        "recompute.toml",
    )


def tally_of(survey: Survey, seed: int) -> Tally:
    """Return what is counted of devices that stopped at random rungs, a few values common and many rare."""
    shares = falling_shares(len(survey.mechanism.labels))
    picked = np.random.default_rng(seed).choice(len(shares), USERS, p=shares)
    values = [survey.mechanism.labels[value] for value in picked.tolist()]
    return simulated_tally(whole(survey.mechanism), values, seed)


@contextmanager
def halving() -> Iterator[None]:
    """Let estimates find their bounds by halving."""
    own = always_valid.confidence_sequence
    always_valid.confidence_sequence = halved
    try:
        yield
    finally:
        always_valid.confidence_sequence = own


def cost_ms(survey: Survey, tally: Tally) -> float:
    """Return the processor time of one estimate."""
    begin = time.process_time()
    estimate_record(survey, 0, tally)
    return (time.process_time() - begin) * 1e3


def results() -> Iterator[Measured]:
    """Compare in turns; the least processor time of each counts."""
    points = []
    for values, least in GOALS.items():
        survey = survey_of_values(values)
        ours, theirs = [], []
        for seed in range(ROUNDS):
            tally = tally_of(survey, seed)
            ours.append(cost_ms(survey, tally))
            with halving():
                theirs.append(cost_ms(survey, tally))
        points.append((float(values), min(ours)))
        yield Result(
            f"recompute-{values}", 1e3 / min(ours), "per CPU-s", "halving", 1e3 / min(theirs), least_ratio=least
        )
    yield Series("values", "an estimate", points)
