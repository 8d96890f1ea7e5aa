"""The end of what the likelihood e-process rejects: Newton's steps on all values at once, each inside its bracket.

With L the log-likelihood, t_j = c + (1 - c) g_j the alternatives of a threshold c and w_j their shares of the evidence,

    log_e(c)  = ln mean_j exp L(t_j) - L(c)
    log_e'(c) = sum_j w_j (1 - g_j) L'(t_j) - L'(c)

L is concave and g_j > 0, so log_e falls below the most likely share, and is at most 0 above it: its only root lies
between 0 and that share. Alternatives that lie so far above it that they add nothing are left out, which can only make
the evidence smaller: a bound is on the safe side whatever is left out and however the steps went, since a threshold
counts as rejected only if this evidence against it is enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RESOLUTION: Final = 2.0**-20
"""Finer than any share that can be told apart. Finer: another step now and then."""

_NEGLIGIBLE: Final = 50.0
"""Alternatives whose log-likelihood is lower than the highest by this are left out. Less: wider bounds; more: time."""
_WHOLE: Final = RESOLUTION / 2
_MARGIN: Final = RESOLUTION / 4
_PEAK_STEPS: Final = 60
_GUESS_STEPS: Final = 4
_EDGE_STEPS: Final = 6
_MOST_STEPS: Final = 200
_CACHED: Final = 1 << 14
_TINY: Final = 1e-300


@dataclass(frozen=True, eq=False)
class Curves:
    """Log-likelihoods of a share, one per value: sum over rungs of h ln(lie + d t) + f ln(1 - lie - d t), concave in t.

    Arrays [rung, value]; d is truth - lie, h the answers that name the value, f the others.
    """

    lie: Floats
    slope: Floats
    hits: Floats
    others: Floats

    @classmethod
    def of(cls, truth: Floats, lie: Floats, ones: Floats, users: Floats) -> Curves:
        """Leave out what does not depend on the share: rungs without users, answers that tell nothing."""
        told = (users > 0) & (truth != lie)
        rungs = told.any(axis=1)
        told, truth, lie, ones, users = (array[rungs] for array in (told, truth, lie, ones, users))
        return cls(
            np.where(told, lie, 0.5),
            np.where(told, truth - lie, 0.0),
            np.where(told, ones, 0.0),
            np.where(told, users - ones, 0.0),
        )

    @property
    def values(self) -> int:
        """Number of values."""
        return int(self.lie.shape[1])

    def chosen(self, places: NDArray[np.int64]) -> Curves:
        """Return the curves of these values."""
        return Curves(self.lie[:, places], self.slope[:, places], self.hits[:, places], self.others[:, places])

    def at(self, shares: Floats) -> tuple[Floats, Floats]:
        """Return L, up to a constant, and L' at shares [..., value] that are no closer to 0 and 1 than _MARGIN."""
        level, score = np.zeros(shares.shape), np.zeros(shares.shape)
        for lie, slope, hits, others in zip(self.lie, self.slope, self.hits, self.others, strict=True):
            yes = shares * slope
            yes += lie
            no = 1.0 - yes
            score += slope * (hits / yes - others / no)
            np.log(yes, out=yes)
            np.log(no, out=no)
            yes *= hits
            no *= others
            level += yes
            level += no
        return level, score

    def information(self, shares: Floats) -> Floats:
        """Return -L''."""
        yes = self.lie + self.slope * shares
        return np.asarray((self.slope**2 * (self.hits / yes**2 + self.others / (1.0 - yes) ** 2)).sum(axis=0))

    def peaks(self) -> Floats:
        """Return the most likely shares, to RESOLUTION / 4."""
        low, high = np.full(self.values, _MARGIN), np.full(self.values, 1 - _MARGIN)
        rising, falling = self.at(low)[1] <= 0, self.at(high)[1] >= 0
        inner = np.flatnonzero(~rising & ~falling)
        share = np.where(rising, low, high)
        if len(inner):
            share[inner] = self.chosen(inner)._inner_peaks(low[inner], high[inner])
        return share

    def _inner_peaks(self, low: Floats, high: Floats) -> Floats:
        users = self.hits + self.others
        weight = self.slope / np.maximum(self.lie * (1 - self.lie), 1e-6)
        share = (weight * (self.hits - users * self.lie)).sum(axis=0) / (weight * users * self.slope).sum(axis=0)
        share = np.clip(share, 1e-3, 1 - 1e-3)
        moving = np.ones(self.values, dtype=np.bool_)
        for _ in range(_PEAK_STEPS):
            _, score = self.at(share)
            low, high = np.where(score > 0, share, low), np.where(score > 0, high, share)
            step = share + score / np.maximum(self.information(share), _TINY)
            inside = (step > low) & (step < high)
            # Values that have arrived stay where they are: what a value gets does not depend on the others.
            before, share = share, np.where(moving, np.where(inside, step, (low + high) / 2), share)
            moving &= np.abs(share - before) > _MARGIN
            if not moving.any():
                break
        return np.asarray(share)


def lower_ends(curves: Curves, enough: float, points: int) -> Floats:
    """Return for each value the largest threshold whose evidence is `enough`, up to RESOLUTION below it; 0 if none.

    Args:
        curves: log-likelihoods of the shares.
        enough: the logarithm that rejects.
        points: alternatives, equally spaced above the threshold.
    """
    ends = np.zeros(curves.values)
    if not len(curves.lie):
        return ends
    peaks = curves.peaks()
    highest, _ = curves.at(peaks)
    lowest, _ = curves.at(np.full(curves.values, RESOLUTION))
    # The evidence is at most L(peak) - L(c), so that most of the rare values need no further look.
    open_values = np.flatnonzero((highest - lowest >= enough) & (peaks > RESOLUTION))
    if len(open_values):
        search = _Search(curves.chosen(open_values), peaks[open_values], highest[open_values], enough, points)
        ends[open_values] = search.ends()
    return ends


def _normal_area(deviations: Floats) -> Floats:
    """Return roughly the area of the normal density below this many standard deviations."""
    return np.asarray(1.0 / (1.0 + np.exp(np.clip(-1.702 * deviations, -700, 700))))


class _Search:
    """Brackets of the ends: `safe` is rejected (0 before anything is), `unsafe` is not."""

    def __init__(self, curves: Curves, peaks: Floats, highest: Floats, enough: float, points: int) -> None:
        self._curves, self._enough = curves, enough
        self._grid = (np.arange(points) + 0.5) / points
        self._safe, self._unsafe = np.zeros(curves.values), np.minimum(peaks, 1 - RESOLUTION)
        deviation = 1 / np.sqrt(np.maximum(curves.information(peaks), _TINY))
        self._edges = self._right_edges(peaks, highest, deviation)
        self._trial = self._guesses(peaks, highest, deviation)

    def _guesses(self, peaks: Floats, highest: Floats, deviation: Floats) -> Floats:
        """Return thresholds to begin with: where L(c) is `enough` below the evidence, taken as the area of a bell."""
        right = _normal_area((1.0 - peaks) / deviation)
        trial = peaks - deviation * np.sqrt(2 * self._enough)
        for _ in range(_GUESS_STEPS):
            trial = np.clip(trial, RESOLUTION, self._unsafe)
            level, score = self._curves.at(trial)
            area = deviation * np.sqrt(2 * np.pi) * (right - _normal_area((trial - peaks) / deviation))
            mean = np.log(np.clip(area / (1.0 - trial), _TINY, 1.0))
            trial = trial - (level - (highest + mean - self._enough)) / np.maximum(score, _TINY)
        return np.asarray(np.clip(trial, RESOLUTION, self._unsafe))

    def _right_edges(self, peaks: Floats, highest: Floats, deviation: Floats) -> Floats:
        """Return shares from which on alternatives are negligible; 1 where none is known."""
        share = np.minimum(peaks + deviation * np.sqrt(2 * _NEGLIGIBLE), 1 - RESOLUTION)
        edges = np.ones(self._curves.values)
        for _ in range(_EDGE_STEPS):
            level, score = self._curves.at(share)
            beyond = highest - level >= _NEGLIGIBLE
            edges = np.where(beyond, np.minimum(edges, share), edges)
            step = share + (highest - _NEGLIGIBLE - 1.0 - level) / np.minimum(score, -_TINY)
            share = np.clip(step, peaks, 1 - RESOLUTION)
        return edges

    def ends(self) -> Floats:
        """Step until every value has an end."""
        left = np.arange(self._curves.values)
        for _ in range(_MOST_STEPS):
            if not len(left):
                break
            left = left[self._step(left)]
        # Down to whole steps: the last bits depend on how many values are looked at together.
        return np.floor(self._safe / _WHOLE) * _WHOLE

    def _step(self, places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Try a threshold for each of these values; return which of them need another one."""
        trial = self._trial[places]
        evidence, slope = self._evidence(places, trial)
        beyond = evidence - self._enough
        rejected = beyond >= 0
        self._safe[places[rejected]] = trial[rejected]
        self._unsafe[places[~rejected]] = trial[~rejected]
        low, high = self._safe[places], self._unsafe[places]
        root = trial - beyond / np.minimum(slope, -_TINY)
        inside = (root > low) & (root < high)
        done = (high - low <= RESOLUTION / 2) | (rejected & (root - trial <= RESOLUTION / 2)) | (high <= RESOLUTION)
        # A little below the root, so that the last trial is rejected.
        step = np.where(inside, np.maximum(root - RESOLUTION / 4, low + (root - low) / 2), (low + high) / 2)
        self._trial[places] = np.maximum(step, RESOLUTION)
        return ~done

    def _evidence(self, places: NDArray[np.int64], thresholds: Floats) -> tuple[Floats, Floats]:
        """Return log_e and its slope, of the alternatives up to the edge and the first one beyond it."""
        grid = self._grid[:, None]
        reach = (self._edges[places] - thresholds) / (1.0 - thresholds)
        needed = np.minimum(len(grid), np.ceil(reach * len(grid) + 0.5).astype(np.int64) + 1)
        evidence, slope = np.empty(len(places)), np.empty(len(places))
        # Values with as many alternatives together; the arrays of a step stay in the processor's cache.
        order = np.argsort(needed, kind="stable")
        start = 0
        while start < len(order):
            stop = start + max(1, _CACHED // int(needed[order[start]]))
            part = order[start:stop]
            rows = grid[: int(needed[part[-1]])]
            evidence[part], slope[part] = _evidence(
                self._curves.chosen(places[part]), thresholds[part], rows, len(grid)
            )
            start = stop
        return evidence, slope


def _evidence(curves: Curves, thresholds: Floats, grid: Floats, points: int) -> tuple[Floats, Floats]:
    levels, scores = curves.at(thresholds + (1.0 - thresholds) * grid)
    level, score = curves.at(thresholds)
    highest = levels.max(axis=0)
    levels -= highest
    np.exp(levels, out=levels)
    total = levels.sum(axis=0)
    levels *= scores
    levels *= 1.0 - grid
    return highest + np.log(total / points) - level, levels.sum(axis=0) / total - score
