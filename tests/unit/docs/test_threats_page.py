"""The page on threats states what the homogeneity test really does."""

from __future__ import annotations

import numpy as np

from estimators.channels.rows import channel_matrix
from estimators.estimates import Estimates
from estimators.inference.pooling import pool_retention
from estimators.inference.pooling_result import HOMOGENEITY_ALPHA
from estimators.mechanisms.grr import GRR
from producers.survey.survey import load_survey
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "threats.md").read_text(encoding="utf-8").replace("\n", " ")
SHARES = (0.4, 0.2, 0.15, 0.1, 0.1, 0.05)
HONEST, ATTACKERS, WINDOWS = 10_000, 50, 100


def windows_with(attackers: int, target: int, *, raised: float = 0.0) -> list[Estimates]:
    """Return pooled estimates of windows: attackers on the top rung name one value, all others are on rung 0.

    raised: they do not all name it, but answer like honest devices among whom its share is higher by this.
    """
    mechanism = load_survey(ROOT / "deploy" / "surveys" / "browser.toml").mechanism
    assert isinstance(mechanism, GRR)
    rng = np.random.default_rng(1)
    blurred = channel_matrix(mechanism.ladder[0], len(SHARES))
    lies = np.eye(len(SHARES))[target] * attackers
    if raised:
        pretended = np.array(SHARES) + raised * (np.eye(len(SHARES))[target] - np.eye(len(SHARES))[0])
        lies = np.rint(attackers * (pretended @ channel_matrix(mechanism.ladder[-1], len(SHARES))))
    found = []
    for _ in range(WINDOWS):
        values = rng.multinomial(HONEST, SHARES)
        first = sum(rng.multinomial(users, row) for users, row in zip(values, blurred, strict=True))
        counts = np.array([first, np.zeros(len(SHARES)), lies], dtype=np.int64)
        found.append(pool_retention(mechanism.labels, mechanism.chain.retention_channels, counts, counts.sum(axis=1)))
    return found


def noticed(estimate: Estimates) -> bool:
    return estimate.homogeneity_p is not None and estimate.homogeneity_p < HOMOGENEITY_ALPHA


def test_attackers_on_the_top_rung_are_noticed() -> None:
    for estimate in windows_with(ATTACKERS, 0):
        assert noticed(estimate)
        assert estimate.method == "stratified"
    assert "50 or more attackers on the top rung who name one value are noticed in every window" in " ".join(
        PAGE.split()
    )


def test_many_attackers_move_what_stratified_lets_them() -> None:
    moved = [np.mean([estimate.value[i] - SHARES[i] for estimate in windows_with(200, i)]) for i in (0, 5)]
    # By 200 / 10,200 of the score of one answer on the top rung, 1.8, minus the share.
    assert all(0.02 < shift < 0.045 for shift in moved)
    assert "move the stratified estimate by 3 to 4 points" in " ".join(PAGE.split())


def test_few_attackers_who_name_a_rare_value_are_not_noticed() -> None:
    estimates = windows_with(20, 5)
    assert np.mean([noticed(estimate) for estimate in estimates]) < 0.3
    assert 0.07 < np.mean([estimate.value[5] - SHARES[5] for estimate in estimates]) < 0.11
    assert 0.065 < np.mean([(estimate.upper[5] - estimate.lower[5]) / 2 for estimate in estimates]) < 0.085
    assert "they move a share of 5 % by about 9 points, with a band of ±7 points" in " ".join(PAGE.split())


def test_attackers_who_imitate_honest_devices_are_not_noticed() -> None:
    estimates = windows_with(400, 4, raised=0.12)
    assert np.mean([noticed(estimate) for estimate in estimates]) < 0.2
    assert 0.055 < np.mean([estimate.value[4] - SHARES[4] for estimate in estimates]) < 0.085
    assert 0.04 < np.mean([(estimate.upper[4] - estimate.lower[4]) / 2 for estimate in estimates]) < 0.06
    assert "move that share by about 7 points, outside a band of ±5 points" in " ".join(PAGE.split())
