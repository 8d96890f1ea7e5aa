"""Tests of declared laws: each level's answers, each step from level to level, processes, and independence of noise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from estimators.auditing.bounds import count_p_values, sum_p_value
from estimators.auditing.declared import DeclaredLaw
from estimators.auditing.transcripts import Ints, Transcripts

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Test:
    """The smallest p-value of some comparisons, and how many there were: together p * comparisons is a p-value."""

    __test__ = False

    name: str
    comparisons: int
    p_value: float
    worst: str = ""
    """The comparison with the smallest p-value, in words."""

    @property
    def corrected(self) -> float:
        """The p-value of all comparisons together (Bonferroni)."""
        return min(1.0, self.p_value * max(self.comparisons, 1))


def level_laws(law: DeclaredLaw, symbols: Ints, entered: Ints, rows: NDArray[np.bool_], name: str) -> list[Test]:
    """Compare the answers of every level, given what entered the channel, with the declared channel."""
    tests = []
    for rung in range(law.rungs):
        found: list[tuple[float, str]] = []
        for number, family in enumerate(law.families):
            places = np.flatnonzero(law.family == number)
            given, told = entered[rows][:, places].ravel(), symbols[rung][rows][:, places].ravel()
            found += _cells((given,), told, family.channels[rung])
        tests.append(_smallest(f"{name}level {rung}", found))
    return tests


def sharpening_laws(law: DeclaredLaw, symbols: Ints, entered: Ints) -> list[Test]:
    """Compare each level's answers, given the value and the answer of the level above, with the declared kernel.

    The kernel does not look at the value; a step that does tells more than the upper level.
    """
    tests = []
    for rung in range(law.rungs - 1):
        found: list[tuple[float, str]] = []
        for number, family in enumerate(law.families):
            places = np.flatnonzero(law.family == number)
            value = entered[:, places].ravel()
            upper, lower = symbols[rung + 1][:, places].ravel(), symbols[rung][:, places].ravel()
            found += _cells((value, upper), lower, family.kernels[rung])
        tests.append(_smallest(f"levels {rung} and {rung + 1}", found))
    return tests


def _cells(given: Sequence[Ints], told: Ints, channel: Floats) -> list[tuple[float, str]]:
    """Return p-values of all counts of `told` given `given`; the last of `given` is the row of the channel."""
    outputs = channel.shape[1]
    keys = np.zeros(len(told), dtype=np.int64)
    for part in given:
        keys = keys * (int(part.max(initial=0)) + 1) + part
    kinds, first, group = np.unique(keys, return_index=True, return_inverse=True)
    counts = np.bincount(group * outputs + told, minlength=len(kinds) * outputs).reshape(len(kinds), outputs)
    trials = counts.sum(axis=1)
    rows = channel[given[-1][first]]
    p_values = count_p_values(counts, trials[:, None], rows)
    names = ("value", "answer above")
    found = []
    for i, start in enumerate(first.tolist()):
        context = ", ".join(f"{names[k]} {int(part[start])}" for k, part in enumerate(given))
        found += [
            (float(p), f"{context}: answer {y} came {int(c)} times of {int(trials[i])}, {q:.4g} declared")
            for y, (p, c, q) in enumerate(zip(p_values[i], counts[i], rows[i], strict=True))
        ]
    return found


def pair_agreement(
    law: DeclaredLaw, symbols: Ints, entered: Ints, pairs: Iterable[tuple[int, int]], name: str
) -> list[Test]:
    """Compare how often two chains that hold the same value agree with what independent noise gives."""
    left, right = np.array(list(pairs), dtype=np.int64).reshape(-1, 2).T
    same = entered[left] == entered[right]
    tests = []
    for rung in range(law.rungs):
        agreed, trials, expected = 0, 0, 0.0
        for position, number in enumerate(law.family.tolist()):
            use = same[:, position]
            channel = law.families[number].channels[rung]
            chances = (channel**2).sum(axis=1)[entered[left[use], position]]
            hits = symbols[rung, left[use], position] == symbols[rung, right[use], position]
            agreed, trials, expected = (
                agreed + int(hits.sum()),
                trials + int(use.sum()),
                expected + float(chances.sum()),
            )
        mean = expected / max(trials, 1)
        words = f"level {rung}: {agreed} of {trials} pairs agree, {mean:.4g} expected"
        tests.append(Test(f"{name}, level {rung}", 1, sum_p_value(agreed, trials, mean), words))
    return tests


def across_processes(recorded: Transcripts) -> list[tuple[int, int]]:
    """Return pairs of chains of equal slot and window in neighbouring processes, none twice."""
    return _paired(recorded, (recorded.copies, recorded.windows, recorded.slots), recorded.processes)


def inside_process(recorded: Transcripts) -> list[tuple[int, int]]:
    """Return pairs of chains of the two devices of a pair in one process and window."""
    return _paired(
        recorded, (recorded.copies, recorded.windows, recorded.processes, recorded.slots // 2), recorded.slots
    )


def across_windows(recorded: Transcripts) -> list[tuple[int, int]]:
    """Return pairs of chains of one device in different windows with the same value."""
    return _paired(recorded, (recorded.copies, recorded.processes, recorded.slots, recorded.truths), recorded.windows)


def _paired(recorded: Transcripts, equal: Sequence[Ints], order: Ints) -> list[tuple[int, int]]:
    """Return disjoint pairs of neighbouring rows, in the given order, of equal keys."""
    ranks = np.lexsort((order, *equal))
    keys = np.stack([key[ranks] for key in equal], axis=1)
    pairs, i = [], 0
    while i + 1 < len(recorded):
        if np.array_equal(keys[i], keys[i + 1]) and order[ranks[i]] != order[ranks[i + 1]]:
            pairs.append((int(ranks[i]), int(ranks[i + 1])))
            i += 1
        i += 1
    return pairs


def token_tests(recorded: Transcripts) -> list[Test]:
    """Tell whether tokens look random, and whether two tokens of one device resemble each other."""
    bits = np.unpackbits(recorded.tokens, axis=1)
    ones = count_p_values(bits.sum(axis=0), len(bits), 0.5)
    devices = np.lexsort((recorded.windows, recorded.copies, recorded.slots, recorded.processes))
    tokens, owner = (
        recorded.tokens[devices],
        np.stack([recorded.processes, recorded.slots, recorded.copies])[:, devices],
    )
    neighbours = np.flatnonzero((owner[:, 1:] == owner[:, :-1]).all(axis=0))[::2]
    equal = (tokens[neighbours] == tokens[neighbours + 1]).sum(axis=0)
    same = count_p_values(equal, len(neighbours), 1.0 / 256.0)
    return [
        Test("tokens are random", len(ones), float(ones.min(initial=1.0)), f"bit {int(np.argmin(ones))} of tokens"),
        Test("tokens of one device differ", len(same), float(same.min(initial=1.0)), f"byte {int(np.argmin(same))}"),
    ]


def _smallest(name: str, found: Sequence[tuple[float, str]]) -> Test:
    p_value, words = min(found, default=(1.0, ""))
    return Test(name, len(found), p_value, words)
