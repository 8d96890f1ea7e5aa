"""The declared law of what leaves a device, in one form for all mechanisms: independent positions, a channel each.

A symbol is one position with a large alphabet; a bit vector has a position per bit; a key-value vector one per key with
three symbols. What a device draws without looking at its value (a cohort, the key that it is asked about) is a position
whose input never changes. All probabilities are the quotients of the integers that devices draw with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.auditing.transcripts import Ints, Transcripts
from estimators.planning.odds import highest_suspicion

Floats = NDArray[np.float64]
Read = Callable[[NDArray[np.uint8], Ints], Ints]
"""(answers as bytes [row, width], groups [row]) -> symbols [row, position]."""

_MOST_OUTCOMES = 1 << 17
"""Outcomes that the best possible attack is summed over; with more, the ceiling of the level stands in for it."""


class NotAuditedError(ValueError):
    """An attack on single answers has no meaning for this mechanism; the message says why."""


@dataclass(frozen=True)
class Position:
    """A family of positions with equal channels: what enters (rows), what leaves (columns), and the kernels below."""

    channels: tuple[Floats, ...]
    """Per rung: Pr(symbol | input)."""
    kernels: tuple[Floats, ...]
    """kernels[i]: Pr(symbol of rung i | symbol of rung i + 1)."""
    protected: NDArray[np.bool_]
    """Per symbol whether the guarantee covers it; False: it may give away a value that is not sensitive."""


@dataclass(frozen=True)
class DeclaredLaw:
    """The law of all answers given the true value, for the values that an audit gives to its devices."""

    names: tuple[str, ...]
    values: tuple[Any, ...]
    """As a device takes them."""
    families: tuple[Position, ...]
    family: Ints
    """[position] -> number of its family."""
    inputs: Ints
    """[group, value, position]: what enters each channel."""
    read: Read
    levels: tuple[float, ...]
    """The epsilon of every level that the survey declares to a person; inf where it declares none."""

    @property
    def rungs(self) -> int:
        """Number of levels."""
        return len(self.families[0].channels)

    def symbols(self, recorded: Transcripts) -> Ints:
        """Return the symbols of recorded answers, [rung, row, position]."""
        return np.stack([self.read(answers, recorded.groups) for answers in recorded.answers])

    def entered(self, recorded: Transcripts) -> Ints:
        """Return what entered every channel, [row, position]."""
        return np.asarray(self.inputs[recorded.groups % len(self.inputs), recorded.truths])

    def log_likelihoods(self, rung: int, symbols: Ints, groups: Ints) -> Floats:
        """Return ln Pr(answer of a rung | value) for all rows of symbols [row, position] and all values."""
        found = np.zeros((len(symbols), len(self.values)))
        by_group = self.inputs[groups % len(self.inputs)]
        for position, family in enumerate(self.family.tolist()):
            with np.errstate(divide="ignore"):
                logs = np.log(self.families[family].channels[rung])
            found += logs[by_group[:, :, position], symbols[:, None, position]]
        return found

    def protected(self, symbols: Ints) -> NDArray[np.bool_]:
        """Tell which rows of symbols [row, position] the guarantee covers."""
        covered = np.ones(len(symbols), dtype=np.bool_)
        for position, family in enumerate(self.family.tolist()):
            covered &= self.families[family].protected[symbols[:, position]]
        return covered

    @cached_property
    def losses(self) -> tuple[float, ...]:
        """Per level the exact epsilon between the worst two of the values: the sum over positions of the worst ratio.

        All protected answers together; a chain up to a level has the same loss, since lower answers are drawn from it.
        """
        return tuple(self._loss(rung) for rung in range(self.rungs))

    def _loss(self, rung: int) -> float:
        worst = 0.0
        for table in self.inputs:
            total = np.zeros((len(self.values), len(self.values)))
            for position, number in enumerate(self.family.tolist()):
                family = self.families[number]
                entered = table[:, position]
                rows = family.channels[rung][:, family.protected][entered]
                with np.errstate(divide="ignore", invalid="ignore"):
                    ratios = np.log(rows[:, None, :]) - np.log(rows[None, :, :])
                # 0/0: neither value can give this symbol.
                total += np.where(np.isnan(ratios), -np.inf, ratios).max(axis=2)
            worst = max(worst, float(total.max()))
        return worst

    def best_success(self, rung: int, prior: Floats) -> float:
        """Return the highest share of right guesses that anybody can reach from answers of a level.

        Exact, sum over outcomes of max_x prior_x Pr(outcome | x), averaged over groups; where there are too many
        outcomes, the ceiling that the level itself gives.
        """
        shares = [self._best_in_group(rung, prior, table) for table in self.inputs]
        if any(share is None for share in shares):
            return highest_suspicion(float(prior.max()), self.losses[rung])
        return float(np.mean([share for share in shares if share is not None]))

    def _best_in_group(self, rung: int, prior: Floats, table: Ints) -> float | None:
        rows = [
            self.families[number].channels[rung][table[:, position]]
            for position, number in enumerate(self.family.tolist())
            if len(np.unique(table[:, position])) > 1
        ]
        if np.prod([row.shape[1] for row in rows], dtype=np.float64) > _MOST_OUTCOMES:
            return None
        joint = prior[:, None]
        for row in rows:
            joint = (joint[:, :, None] * row[:, None, :]).reshape(len(prior), -1)
        return float(joint.max(axis=0).sum())


def worst_values(law: DeclaredLaw) -> tuple[int, int]:
    """Return the two values that protected answers of the top level tell apart best, by the declared law."""
    best, found = -1.0, (0, min(1, len(law.values) - 1))
    top = law.rungs - 1
    for a, b in product(range(len(law.values)), repeat=2):
        if a == b:
            continue
        # Total variation, position by position: what a sample of fixed size sees.
        apart = 0.0
        for position, number in enumerate(law.family.tolist()):
            family = law.families[number]
            rows = family.channels[top][:, family.protected][law.inputs[0][:, position]]
            apart += 0.5 * float(np.abs(rows[a] - rows[b]).sum())
        if apart > best + 1e-12:
            best, found = apart, (a, b)
    return found
