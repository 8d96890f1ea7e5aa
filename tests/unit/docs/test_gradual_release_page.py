"""The page on gradual release names functions that exist and numbers that are true."""

from __future__ import annotations

import importlib
import math
import re
from itertools import product

import numpy as np

from estimators.channels.rows import channel_matrix
from estimators.papers.gradual_release import changed_value_loss, kernel, redrawn_rounding_loss
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "gradual-release.md").read_text(encoding="utf-8")


def test_every_function_in_the_table_exists() -> None:
    named = re.findall(r"`(kernels|gradual_release)\.(\w+)`", PAGE)
    assert len(named) > 15
    for module, function in named:
        assert callable(getattr(importlib.import_module(f"estimators.papers.{module}"), function))


def test_independent_draws_of_one_level_hold_what_the_page_says() -> None:
    sharp, down = channel_matrix(3.0, 2), kernel(1.0, 3.0, 2).matrix
    for buyers, said in ((2, "1.87"), (5, "2.93")):
        losses = []
        for draws in product(range(2), repeat=buyers):
            chances = sharp @ np.prod([down[:, draw] for draw in draws], axis=0)
            losses.append(math.log(chances.max() / chances.min()))
        assert f"{max(losses):.2f}" == said
        assert said in PAGE


def test_misuse_costs_what_the_page_says() -> None:
    assert f"{redrawn_rounding_loss(3.0, 4.0):.2f}" == "5.67"
    assert changed_value_loss(1.0, 2.0, 4) == 2 * 1.0 + 2.0
    assert "5.67" in PAGE
    assert "2 eps1 + eps2" in PAGE
