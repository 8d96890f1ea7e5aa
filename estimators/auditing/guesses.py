"""Attacks that guess the true value from a whole chain, named as in Pan's paper, and how often they may be right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from estimators.auditing.declared import DeclaredLaw
from estimators.auditing.transcripts import Ints
from estimators.intervals.one_look import clopper_pearson

Floats = NDArray[np.float64]

ATTACKS = {
    "LO": "the most likely value given the last answer",
    "MLE": "the most likely value given all answers; with a sound chain the same as LO",
    "HF": "the value that most levels name",
    "WHF": "the value that most levels name, each weighted by its epsilon",
    "Bayes": "the most likely value given the last answer and the true shares of the values",
    "product": "the most likely value if the levels were drawn independently",
}
"""What each attack guesses."""


@dataclass(frozen=True)
class Guessing:
    """How often one attack was right, a lower bound on its chance, and the most that any attack can reach."""

    attack: str
    rows: int
    right: int
    lower: float
    best: float

    @property
    def share(self) -> float:
        """Share of right guesses."""
        return self.right / self.rows if self.rows else 0.0

    @property
    def contradicts(self) -> bool:
        """Whether the attack is certainly better than any attack on the declared law can be."""
        return self.lower > self.best * (1.0 + 1e-12)


def guess(attack: str, logs: Sequence[Floats], levels: Sequence[float], prior: Floats) -> Ints:
    """Return the guess of an attack for every row; logs[i] is ln Pr(answer of rung i | value) [row, value].

    A value between which and another one the answers do not decide loses against the one that stands first.
    """
    last = logs[-1]
    if attack in ("LO", "MLE"):
        # The likelihood of a chain is that of its last answer times what does not depend on the value (Lemma 3.1).
        scores = last
    elif attack == "Bayes":
        with np.errstate(divide="ignore"):
            scores = last + np.log(prior)
    elif attack == "product":
        scores = np.sum(logs, axis=0)
    else:
        weights = np.ones(len(logs)) if attack == "HF" else np.asarray(levels)
        named = np.stack([np.argmax(log, axis=1) for log in logs])
        values = np.arange(last.shape[1])
        scores = np.einsum("r,rnv->nv", weights, (named[:, :, None] == values).astype(np.float64))
    return np.asarray(np.argmax(scores, axis=1), dtype=np.int64)


def guessing(law: DeclaredLaw, logs: Sequence[Floats], truths: Ints, alpha: float) -> list[Guessing]:
    """Try every attack on whole chains; each lower bound is wrong with probability at most alpha.

    The truths are fixed and guesses independent given them, so right guesses are a sum of independent trials with mean
    at most `best`; such a sum exceeds its mean no more easily than a binomial count does (Hoeffding 1956).
    """
    prior = np.bincount(truths, minlength=len(law.values)) / max(len(truths), 1)
    best = law.best_success(law.rungs - 1, prior)
    found = []
    for attack in ATTACKS:
        right = int(np.sum(guess(attack, logs, law.losses, prior) == truths))
        lower, _ = clopper_pearson(right, len(truths), alpha)
        found.append(Guessing(attack, len(truths), right, lower, best))
    return found
