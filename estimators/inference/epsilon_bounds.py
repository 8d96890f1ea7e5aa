"""Lower bounds on epsilon from devices whose values are known, valid at every look for all time.

Each event of `telling_events.py` gets a lower bound on how likely it is under its likely values and an upper bound
under its unlikely ones. Both are confidence sequences (`estimators.intervals.always_valid`): likelihood e-processes,
exact for any number of looks, a function of the counts alone. The logarithm of their ratio bounds epsilon, and so does
that of the complements.

Counts that only grow would hide a fault that begins after a year. So they are taken over *spans* of batches that begin
again when they are full, each with its own part of alpha: span number k of one length gets 1 / (k (k + 1)) of it, which
adds up to 1 for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from estimators.inference.telling_events import LIKELY, LIKELY_HITS, UNLIKELY, UNLIKELY_HITS
from estimators.intervals.always_valid import YesNo, confidence_sequence

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

SPAN_BATCHES: Final = (16, 256)
"""Batches of a short and of a long span. A shorter one notices a gross fault sooner; a longer one notices a smaller
fault, but remembers one that was repaired for longer: up to two spans."""


@dataclass(frozen=True, eq=False)
class Span:
    """Counts of some batches in a row. before are the bounds, per rung, at the end of the span before this one."""

    length: int
    number: int
    batches: int
    counts: Counts
    before: tuple[float, ...]

    def add(self, batch: Counts, alpha: float) -> Span:
        """Return the span with one more batch, or the next span if this one is full; alpha is for its length."""
        if self.batches < self.length:
            return replace(self, batches=self.batches + 1, counts=self.counts + batch)
        return Span(self.length, self.number + 1, 1, batch, tuple(self.now(alpha).tolist()))

    def now(self, alpha: float) -> Floats:
        """Return the lower bounds, per rung, from this span alone."""
        return epsilon_lower_bounds(self.counts, alpha / (self.number * (self.number + 1)))

    def bounds(self, alpha: float) -> Floats:
        """Return the lower bounds, per rung, from this span and the one before."""
        return np.maximum(self.now(alpha), self.before)


def first_spans(batch: Counts) -> tuple[Span, ...]:
    """Return spans that begin with this batch."""
    return tuple(Span(length, 1, 1, batch, (0.0,) * len(batch)) for length in SPAN_BATCHES)


def add_batch(spans: Sequence[Span], batch: Counts, alpha: float) -> tuple[Span, ...]:
    """Return the spans with one more batch."""
    return tuple(span.add(batch, alpha / len(spans)) for span in spans)


def always_valid_bounds(spans: Sequence[Span], alpha: float) -> Floats:
    """Return a lower bound on the epsilon of the answers up to each rung.

    If the devices keep their promise, then with probability at least 1 - alpha no bound of any rung exceeds it at any
    batch, ever.
    """
    return np.asarray(np.max([span.bounds(alpha / len(spans)) for span in spans], axis=0))


def epsilon_lower_bounds(counts: Counts, alpha: float) -> Floats:
    """Return a lower bound on the epsilon of the answers up to each rung, from counts that only grew.

    counts are those of `TellingEvents.count`. All rungs and events share alpha; 0 where the answers prove nothing.
    """
    rungs, _, events, _ = counts.shape
    return np.asarray(proven_epsilon(counts, alpha / ((2 * rungs - 1) * events)).max(axis=(1, 2)))


def proven_epsilon(counts: Counts, alpha: float) -> Floats:
    """Return the lower bound on epsilon from each event alone, for counts [..., 4]; each may be wrong with alpha."""
    likely = confidence_sequence(_shares(counts, LIKELY, LIKELY_HITS), alpha / 2)
    unlikely = confidence_sequence(_shares(counts, UNLIKELY, UNLIKELY_HITS), alpha / 2, side="below")
    with np.errstate(divide="ignore"):
        proven = np.maximum(np.log(likely) - np.log(unlikely), np.log1p(-unlikely) - np.log1p(-likely))
    return np.asarray(np.maximum(proven, 0.0).reshape(counts.shape[:-1]))


def _shares(counts: Counts, users: int, hits: int) -> YesNo:
    """Return each event as a share that is seen as it is: an answer shows the event or does not."""
    return YesNo.of([1.0], [0.0], counts[..., hits].reshape(1, -1), counts[..., users].reshape(1, -1))
