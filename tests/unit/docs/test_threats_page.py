"""The page on threats states what the homogeneity test really does."""

from __future__ import annotations

import numpy as np

from estimators.channels.rows import channel_matrix
from estimators.inference.pooling import pool_retention
from estimators.inference.pooling_result import HOMOGENEITY_ALPHA
from estimators.mechanisms.grr import GRR
from producers.survey.survey import load_survey
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "threats.md").read_text(encoding="utf-8").replace("\n", " ")
SHARES = (0.4, 0.2, 0.15, 0.1, 0.1, 0.05)
HONEST, LIARS, WINDOWS = 10_000, 50, 100


def test_attackers_on_the_top_rung_are_noticed() -> None:
    mechanism = load_survey(ROOT / "deploy" / "surveys" / "browser.toml").mechanism
    assert isinstance(mechanism, GRR)
    rng = np.random.default_rng(1)
    blurred = channel_matrix(mechanism.ladder[0], len(SHARES))
    noticed = 0
    for _ in range(WINDOWS):
        values = rng.multinomial(HONEST, SHARES)
        first = sum(rng.multinomial(users, row) for users, row in zip(values, blurred, strict=True))
        counts = np.array([first, np.zeros(len(SHARES)), np.eye(len(SHARES))[0] * LIARS], dtype=np.int64)
        estimate = pool_retention(mechanism.labels, mechanism.chain.retention_channels, counts, counts.sum(axis=1))
        noticed += estimate.homogeneity_p is not None and estimate.homogeneity_p < HOMOGENEITY_ALPHA
        assert estimate.method == "stratified"
    assert noticed == WINDOWS
    assert "50 or more attackers on the top rung are noticed" in " ".join(PAGE.split())
