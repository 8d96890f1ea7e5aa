"""What `thaw plan --compare` says of mechanisms, held against windows whose answers the mechanisms themselves draw.

The people of every window are drawn from the expected shares. A mean of absolute errors over thousands of windows is
nearly normal; each check takes one share of the suite's budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from estimators.channels.bits import unpack
from estimators.estimation.registry import estimator_of
from estimators.exact.randomness import SeededBits
from estimators.mechanism import Drawn, Specification
from estimators.mechanisms.k_randomization import KRandomization
from estimators.mechanisms.perturbation import perturb
from estimators.mechanisms.registry import build
from estimators.papers.yes_no import best_warner_variance, dealt_card_variance
from estimators.papers.yes_no import crossings as card_crossings
from estimators.planning.comparison import (
    MIDDLE,
    Domain,
    best_theta,
    contenders,
    copies_error,
    crossings,
    theta_error,
)
from estimators.simulation.tallies import tally_of
from estimators.tally import Tally
from producers.planning.draft import Draft
from producers.planning.intervals import Expectation
from tests.support.stats import assert_normal

Floats = NDArray[np.float64]


def labels_of(size: int) -> tuple[str, ...]:
    return tuple(f"v{i}" for i in range(size))


def specification_of(domain: Domain, mechanism: str, level: float, **parameters: Any) -> Specification:
    """Return a mechanism that a survey file would name so, with its sensitive values first."""
    labels = labels_of(domain.size)
    if mechanism in ("urr", "urap"):
        parameters["sensitive"] = list(labels[: domain.sensitive])
    if mechanism in ("christofides", "improved_christofides"):
        parameters["middle"] = MIDDLE
    return build(mechanism, labels, [level], **parameters)


def counted(specification: Specification, drawn: Drawn, windows: NDArray[np.int64]) -> Floats:
    """Return how often each cell was answered, [window, cell]."""
    number, size = int(windows.max()) + 1, specification.answer.size
    if specification.answer.kind == "bits":
        bits = unpack(drawn.answers[0], size)
        return np.stack([np.bincount(windows, bits[:, cell], minlength=number) for cell in range(size)], axis=1)
    cells = windows * size + drawn.answers[0]
    return np.bincount(cells, minlength=number * size).reshape(number, size).astype(np.float64)


def estimated(specification: Specification, counts: Floats, sent: int) -> Floats:
    """Return what the mechanism's estimator says of each window, [window, label].

    On one rung it is an affine map of the counts, read from its answers to windows in which everybody said the same;
    some windows are estimated by itself.
    """
    estimator = estimator_of(specification)

    def by_itself(cells: Floats) -> Floats:
        tally = Tally(np.rint(cells).astype(np.int64)[None, None], np.array([[sent]]))
        return estimator.estimate(tally).value

    corners = np.array([by_itself(row) for row in sent * np.eye(specification.answer.size)])
    origin = np.zeros(corners.shape[1])
    if specification.answer.kind == "bits":
        origin = by_itself(np.zeros(specification.answer.size))
    found = origin + counts / sent @ (corners - origin)
    # With more answers than values (cards) the weights depend on the counts, and the map is one in a hundred off.
    overdetermined = specification.answer.kind == "index" and specification.answer.size > len(specification.labels)
    allowed = 0.01 * float(found.std(axis=0).min()) if overdetermined else 1e-9
    for window in range(3):
        assert found[window] == pytest.approx(by_itself(counts[window]), abs=allowed)
    return np.asarray(found)


def simulated(domain: Domain, specification: Specification, windows: int, seed: int) -> Floats:
    """Return the mean absolute error of a value's share in each window, the users being drawn from the shares."""
    rng, bits = np.random.default_rng(seed), SeededBits(seed)
    picks = rng.choice(domain.size, size=windows * domain.users, p=domain.shares)
    truth = np.array(domain.shares)
    people: Sequence[Any]
    if isinstance(specification, KRandomization):
        one = len(specification.labels) == 1
        people = (picks == 0).tolist() if one else [[specification.labels[pick]] for pick in picks.tolist()]
        truth = truth[: len(specification.labels)]
    else:
        people = np.array(specification.labels, dtype=object)[picks].tolist()
    drawn = perturb(specification, people, bits)
    # A block of people with one deck is a window; everybody else is in the order of the windows.
    sent = domain.users * specification.copies
    dealt = specification.groups > 1
    place = drawn.groups.astype(np.int64) if dealt else np.arange(windows * sent) // sent
    single = specification
    if dealt:
        single = specification_of(domain, specification.name, specification.ladder[0], block=sent, blocks=1)
    found = estimated(single, counted(specification, drawn, place), sent)
    return np.asarray(np.abs(found - truth).mean(axis=1))


def agrees(errors: Floats, planned: float | None) -> None:
    """Fail if a planned error is not the mean of simulated ones."""
    assert planned is not None
    assert_normal(float(errors.mean()), planned, float(errors.std()) / math.sqrt(len(errors)))


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("shares", "sensitive", "level"),
    [((0.3, 0.7), 1, 1.0), ((0.5, 0.3, 0.2), 1, 0.7), ((0.3, 0.25, 0.2, 0.1, 0.1, 0.05), 2, 1.5)],
)
def test_planned_errors_of_all_mechanisms_are_those_of_simulated_windows(
    shares: tuple[float, ...], sensitive: int, level: float
) -> None:
    """Detects: a variance for the fleet where users are drawn, another theta, another deck, a lost factor."""
    domain, windows = Domain(shares, sensitive, 400), 1_500
    for number, contender in enumerate(contenders(domain)):
        if contender.mechanism == "k_randomization":
            continue  # by copies, below
        parameters: dict[str, Any] = {}
        if contender.parameters == "best theta":
            parameters["theta"] = best_theta(domain, level)
        if contender.mechanism == "improved_christofides":
            parameters |= {"block": domain.users, "blocks": windows}
        specification = specification_of(domain, contender.mechanism, level, **parameters)
        agrees(simulated(domain, specification, windows, number), contender.error(level))


@pytest.mark.statistical
@pytest.mark.parametrize("copies", [1, 4, 16])
def test_planned_errors_of_copies_are_those_of_simulated_windows(copies: int) -> None:
    domain, level = Domain((0.2, 0.5, 0.3), 3, 150), 1.0
    specification = KRandomization(labels_of(3), level, least_records=domain.users, copies=copies)
    agrees(simulated(domain, specification, 6_000 // (5 + copies), copies), copies_error(domain, level, copies))


@pytest.mark.statistical
def test_the_best_theta_is_better_in_simulated_windows_by_what_is_planned() -> None:
    domain, level = Domain((0.02,) * 20 + (0.03,) * 20, 20, 300), 3.0
    best, mean = best_theta(domain, level), {}
    for seed, theta in enumerate((best, 0.3, 0.9)):
        errors = simulated(domain, specification_of(domain, "urap", level, theta=theta), 500, seed)
        agrees(errors, theta_error(domain, level, theta))
        mean[theta] = float(errors.mean())
    assert mean[best] < min(mean[0.3], mean[0.9])


@pytest.mark.statistical
def test_mechanisms_change_places_in_simulated_windows_on_both_sides_of_a_planned_crossing() -> None:
    domain = Domain((1 / 20,) * 20, 20, 300)
    pair = [c for c in contenders(domain) if c.mechanism in ("grr", "oue")]
    [crossing] = crossings(pair)
    for side, better in ((0.8, crossing.below), (1.25, crossing.above)):
        level = side * crossing.epsilon
        errors = {c.mechanism: simulated(domain, specification_of(domain, c.mechanism, level), 600, 7) for c in pair}
        for contender in pair:
            agrees(errors[contender.mechanism], contender.error(level))
        assert min(errors, key=lambda name: float(errors[name].mean())) == better


@pytest.mark.statistical
@pytest.mark.parametrize("dealt_wins", [True, False])
def test_a_dealt_deck_beats_the_coin_for_the_planned_shares_only(dealt_wins: bool) -> None:
    """Variances are those for the people who answered: the same ones answer in every window."""
    users, level, windows, middle = 200, 3.0, 500, 0.1
    share = card_crossings(users, level, middle).warner_low / 2 if dealt_wins else 0.5
    ones = round(share * users)
    people, spread = ["v1"] * ones + ["v0"] * (users - ones), {}
    for name, parameters in (
        ("warner", {}),
        ("improved_christofides", {"middle": middle, "block": users, "blocks": 1}),
    ):
        specification = build(name, labels_of(2), [level], **parameters)
        counts = np.empty((windows, specification.answer.size))
        for window in range(windows):
            counts[window] = tally_of(specification, perturb(specification, people, SeededBits(5, window))).counts[0, 0]
        spread[name] = float(np.var(estimated(specification, counts, users)[:, 1]))
    planned = {"warner": best_warner_variance(users, level)}
    planned["improved_christofides"] = dealt_card_variance(ones / users, users, level, middle)
    for name, variance in spread.items():
        # A deck has whole cards: its level, and so its variance, is a little off.
        assert_normal(variance, planned[name], planned[name] * (math.sqrt(2 / windows) + 0.01))
    assert (spread["improved_christofides"] < spread["warner"]) == dealt_wins


@pytest.mark.statistical
@pytest.mark.parametrize(("mechanism", "band"), [("grr", 0.04), ("oue", 0.05)])
def test_the_fewest_users_for_a_band_give_that_band_in_simulated_windows(mechanism: str, band: float) -> None:
    survey = Draft(labels_of(5), mechanism, (1.0,)).survey()
    needed = Expectation(survey).users_for(0, band)
    assert needed is not None
    rng, estimator, typical = np.random.default_rng(3), estimator_of(survey.mechanism), {}
    for users in (needed, round(0.9 * needed)):
        halves = []
        for window in range(30):
            people = [f"v{i % 5}" for i in rng.permutation(users)]
            tally = tally_of(survey.mechanism, perturb(survey.mechanism, people, SeededBits(users, window)))
            found = estimator.estimate(tally, method=survey.method, population="fleet", alpha=survey.alpha)
            halves.append(np.median(found.upper - found.lower) / 2)
        typical[users] = float(np.mean(halves))
    # Widths of single windows differ by a few percent, means of 30 by a few tenths of one; a tenth of the users is 5 %.
    assert typical[needed] == pytest.approx(band, rel=0.01)
    assert typical[round(0.9 * needed)] == pytest.approx(band / math.sqrt(0.9), rel=0.01)
