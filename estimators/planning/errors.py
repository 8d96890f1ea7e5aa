"""The error to expect of a mechanism, in closed form, before anybody has answered."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from estimators.channels.moments import retention_variances
from estimators.channels.response import Response
from estimators.estimates import Floats, Population
from estimators.estimation.registry import estimator_of
from estimators.mechanism import Specification
from estimators.mechanisms.small_channel import SmallChannel
from estimators.tally import Tally


def standard_errors(
    specification: Specification,
    truth: ArrayLike,
    users: int,
    *,
    rung: int = -1,
    population: Population = "fleet",
) -> Floats:
    """Return the standard deviation of every estimate if `users` people answer on one rung and `truth` is the truth.

    truth has one entry per label, in its unit: shares, or the mean. Exact for the linear estimate: no simulation, no
    approximation. A mean is charged for the rounding of numbers to an end of the range, at its worst.

    Raises:
        ValueError: truth has another length, or the mechanism has no closed form per value: estimate simulated
            answers instead (`coverage`).
    """
    quantities = specification.quantities
    expected = np.asarray(truth, dtype=np.float64)
    if expected.shape != (len(quantities),):
        raise ValueError(f"truth must have one entry for each of {len(quantities)} labels; got shape {expected.shape}")
    if isinstance(specification, SmallChannel):
        channel = specification.chain.channels[rung]
        return np.sqrt(channel.variances(expected, users, population=population))
    nobody = Tally.empty(specification.rungs, specification.groups, specification.answer.cells)
    estimator = estimator_of(specification)
    questions = estimator.yes_no(nobody)
    if questions is None:
        raise ValueError(f"{specification.name} has no closed form per value; simulate it with estimators.coverage")
    low = np.array([quantity.low for quantity in quantities])
    width = np.array([quantity.high for quantity in quantities]) - low
    response = Response.of(questions.truth[rung], questions.lie[rung])
    charged = estimator.answer_law(population)
    with np.errstate(divide="ignore"):
        variances = retention_variances((expected - low) / width, users, response, population=charged)
    return np.asarray(np.sqrt(variances) * width)
