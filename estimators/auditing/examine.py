"""All attacks on recorded chains together, with one false-alarm rate for everything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from estimators.auditing import laws
from estimators.auditing.declared import DeclaredLaw
from estimators.auditing.events import EpsilonBound, epsilon_bound
from estimators.auditing.guesses import ATTACKS, Guessing, guessing
from estimators.auditing.laws import Test
from estimators.auditing.transcripts import Transcripts

Floats = NDArray[np.float64]

FAMILIES = ("epsilon", "guesses", "levels", "sharpening", "processes", "linkage")
"""What shares the false-alarm rate, in equal parts."""
_ROUNDING = 1e-9
"""Relative difference between two ways to compute one epsilon in floats."""


@dataclass(frozen=True)
class LevelRow:
    """One level alone, or all levels up to it, in four numbers."""

    rungs: tuple[int, ...]
    declared: float
    """The level of the survey; inf where it promises nothing about single devices."""
    exact: float
    """From the integers that devices draw with, for the values that the audit used."""
    charged: float
    """What the ledgers charge for it."""
    empirical: EpsilonBound
    best_success: float
    """The highest share of right guesses that any attack on these answers can reach."""

    @property
    def name(self) -> str:
        """The row in words."""
        return f"level {self.rungs[0]}" if len(self.rungs) == 1 else f"chain up to {self.rungs[-1]}"

    def contradictions(self) -> list[str]:
        """Return what contradicts the declaration or the ledger."""
        found = []
        if self.exact > self.declared * (1.0 + _ROUNDING):
            found.append(
                f"{self.name}: the integers give epsilon {self.exact:.6g}, the survey declares {self.declared:g}"
            )
        if self.charged < self.exact * (1.0 - _ROUNDING):
            found.append(f"{self.name}: the ledger charges {self.charged:.6g}, the integers give {self.exact:.6g}")
        bound = min(self.declared, self.charged)
        if self.empirical.lower > bound:
            found.append(
                f"{self.name}: an attack shows at least epsilon {self.empirical.lower:.4g}, more than {bound:.6g}"
            )
        return found


@dataclass(frozen=True)
class Examination:
    """What all attacks found."""

    rows: tuple[LevelRow, ...]
    guesses: tuple[Guessing, ...]
    tests: dict[str, tuple[Test, ...]]
    """By family; those of FAMILIES that are tests."""
    alpha: float

    @property
    def share(self) -> float:
        """The part of the false-alarm rate that each family has."""
        return self.alpha / len(FAMILIES)

    def failed(self) -> list[tuple[str, Test]]:
        """Return the tests that reject the declared law, with their families."""
        return [
            (family, test)
            for family, tests in self.tests.items()
            for test in tests
            if test.corrected * len(tests) <= self.share
        ]

    def contradictions(self) -> list[str]:
        """Return everything that contradicts what was declared, one sentence each."""
        found = [sentence for row in self.rows for sentence in row.contradictions()]
        found += [
            f"{guess.attack} guesses {guess.share:.2%} right, at least {guess.lower:.2%} in the long run; no attack on "
            f"the declared law can reach more than {guess.best:.2%}"
            for guess in self.guesses
            if guess.contradicts
        ]
        return found + [
            f"{family}: {test.name}: {test.worst} (p < {_power(test.p_value)})" for family, test in self.failed()
        ]


def examine(law: DeclaredLaw, recorded: Transcripts, charged: Sequence[float], alpha: float) -> Examination:
    """Attack recorded chains in every way; a sound device is accused with probability at most alpha.

    charged: what the ledgers charge for the chain up to every level.
    """
    symbols, entered = law.symbols(recorded), law.entered(recorded)
    share = alpha / len(FAMILIES)
    logs = [law.log_likelihoods(rung, symbols[rung], recorded.groups) for rung in range(law.rungs)]
    covered = [law.protected(symbols[rung]) for rung in range(law.rungs)]
    # Alternating windows: both halves see all processes and devices.
    learning = recorded.windows % 2 == 0
    prior = np.bincount(recorded.truths, minlength=len(law.values)) / max(len(recorded), 1)
    parts = [(rung,) for rung in range(law.rungs)] + [tuple(range(rung + 1)) for rung in range(1, law.rungs)]
    rows = tuple(
        LevelRow(
            part,
            law.levels[part[-1]],
            law.losses[part[-1]],
            charged[part[-1]],
            epsilon_bound(
                [logs[rung] for rung in part],
                covered[part[-1]],
                recorded.truths,
                learning,
                [law.losses[rung] for rung in part],
                share / len(parts),
            ),
            law.best_success(part[-1], prior),
        )
        for part in parts
    )
    guesses = tuple(guessing(law, logs, recorded.truths, share / len(ATTACKS)))
    everything = np.ones(len(recorded), dtype=np.bool_)
    by_process = [
        test
        for process in np.unique(recorded.processes).tolist()
        for test in laws.level_laws(law, symbols, entered, recorded.processes == process, f"process {process}, ")
    ]
    pairs = [
        ("processes", laws.across_processes(recorded), "the same value in two processes"),
        ("processes", laws.inside_process(recorded), "the same value on two devices of a process"),
        ("linkage", laws.across_windows(recorded), "the same value in two windows of a device"),
    ]
    agreement: dict[str, list[Test]] = {"processes": by_process, "linkage": laws.token_tests(recorded)}
    for family, found, name in pairs:
        agreement[family] += laws.pair_agreement(law, symbols, entered, found, name)
    tests = {
        "levels": tuple(laws.level_laws(law, symbols, entered, everything, "")),
        "sharpening": tuple(laws.sharpening_laws(law, symbols, entered)),
        "processes": tuple(agreement["processes"]),
        "linkage": tuple(agreement["linkage"]),
    }
    return Examination(rows, guesses, tests, alpha)


def _power(p_value: float) -> str:
    """Return an upper bound on a p-value as a power of ten."""
    return "1e-300" if p_value < 1e-300 else f"1e{math.ceil(math.log10(p_value))}"
