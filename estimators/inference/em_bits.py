"""Full likelihood of unary reports (RAPPOR, uRAP): needs every report, not only the counts of ones.

A report's likelihood is linear in the shares of the bits it has set (Murakami & Kawamoto, Sec. 4), so its gradient is
two products with the n x s bit matrix. The matrix stays packed, eight bits a byte and one column of bytes after
another: a product reads each byte once and looks its eight bits up in a table of 256 sums that stays in the fastest
cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimators.channels.bits import BitChannel, count_ones, pack
from estimators.inference.ascent import Told, projected_ascent
from estimators.inference.em import MAX_EVALUATIONS, TOLERANCE
from estimators.inference.likelihood import Maximum

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]

_BLOCK_ROWS = 8192
# bit_table[t, byte] = 1 where bit t of the byte is set
_BIT_TABLE = ((np.arange(256)[None, :] >> np.arange(8)[:, None]) & 1).astype(np.float64)


@dataclass(frozen=True)
class BitReports:
    """Reports of one rung without a revealing bit, packed by columns.

    columns: shape (bytes, reports), bit j of a report in byte j // 8 at position j % 8. weights: how often each report
    occurred. present, absent: Pr(bit|its value) / Pr(bit|another value) for a set and an unset bit; outside: the same
    for values without a bit among these (uRAP's non-sensitive ones), 0 where there are none.
    """

    columns: Bytes
    weights: Floats
    present: float
    absent: float
    outside: float

    @classmethod
    def from_rows(
        cls, rows: Bytes, theta: float, psi: float, *, outside: float = 0.0, weights: Floats | None = None
    ) -> BitReports:
        """Build from packed rows (reports, bytes): Pr(1|1) = theta and Pr(1|0) = psi for every bit."""
        if not 0.0 < psi < 1.0 or not 0.0 <= theta <= 1.0:
            raise ValueError(f"theta must be in [0, 1] and psi in (0, 1); got {theta!r} and {psi!r}")
        weights = np.ones(len(rows)) if weights is None else np.asarray(weights, dtype=np.float64)
        columns = np.ascontiguousarray(rows.T)
        return cls(columns, weights, theta / psi, (1.0 - theta) / (1.0 - psi), outside)

    @classmethod
    def from_patterns(cls, counts: ArrayLike, theta: float, psi: float, *, outside: float = 0.0) -> BitReports:
        """Build from a histogram of all 2**bits patterns in the order of binary numbers, first bit most significant."""
        weights = np.asarray(counts, dtype=np.float64)
        bits = max(len(weights).bit_length() - 1, 0)
        if len(weights) != 1 << bits:
            raise ValueError(f"a histogram of bit patterns has a power of two of entries; got {len(weights)}")
        digits = (np.arange(len(weights))[:, None] >> np.arange(bits - 1, -1, -1)) & 1
        rows = np.packbits(digits.astype(np.uint8), axis=1, bitorder="little")
        return cls.from_rows(rows, theta, psi, outside=outside, weights=weights)


def rappor_mle(
    reports: Sequence[BitReports],
    bits: int,
    *,
    tolerance: float = TOLERANCE,
    max_evaluations: int = MAX_EVALUATIONS,
) -> Maximum | None:
    """Return the maximum-likelihood shares of `bits` values from unary reports of all rungs; None without reports."""
    return urap_mle(reports, np.zeros(0, dtype=np.int64), bits, tolerance=tolerance, max_evaluations=max_evaluations)


def urap_mle(
    reports: Sequence[BitReports],
    revealed: NDArray[np.int64],
    bits: int,
    *,
    tolerance: float = TOLERANCE,
    max_evaluations: int = MAX_EVALUATIONS,
    told: Told | None = None,
) -> Maximum | None:
    """Return the maximum-likelihood shares of uRAP: `bits` sensitive values first, then the non-sensitive ones.

    revealed counts the reports that gave a non-sensitive value away; what their other bits say is noise and not used.
    Given the total share of the non-sensitive values, each has its part of the revealed counts; so the search runs over
    bits + 1 numbers however many non-sensitive values there are. None without any report.
    """
    given = float(revealed.sum())
    users = given + math.fsum(float(block.weights.sum()) for block in reports)
    if users == 0:
        return None
    likelihood = _Likelihood(tuple(reports), bits, given, users, lumped=bool(len(revealed)))
    found = projected_ascent(
        likelihood.evaluate,
        likelihood.metric,
        likelihood.start(),
        users,
        tolerance=tolerance,
        max_evaluations=max_evaluations,
        told=told,
    )
    if not len(revealed):
        return found
    parts = revealed / given if given else np.full(len(revealed), 1.0 / len(revealed))
    seen = revealed > 0
    value = found.log_likelihood + float(np.sum(revealed[seen] * np.log(parts[seen])))
    return Maximum(np.append(found.shares[:bits], found.shares[bits] * parts), value, found.stopped, found.iterations)


def reports_mle(
    channels: Sequence[BitChannel],
    answers: Bytes,
    rungs: NDArray[np.int64],
    *,
    sensitive: int | None = None,
    tolerance: float = TOLERANCE,
    max_evaluations: int = MAX_EVALUATIONS,
    told: Told | None = None,
) -> Maximum | None:
    """Return the maximum-likelihood shares from the last report of every user: packed rows [user, byte], rungs [user].

    For one-hot vectors whose bits share their probabilities (SUE, OUE, RAPPOR without a filter), or whose first
    `sensitive` bits do and whose other bits are set by their own value only (uRAP). Shares in the order of the bits.
    """
    size = channels[0].size
    sensitive = size if sensitive is None else sensitive
    revealed = np.zeros(size - sensitive, dtype=np.int64)
    blocks = []
    for rung, channel in enumerate(channels):
        rows = answers[rungs == rung]
        theta, psi, tell = channel.ones[0], channel.zeros[0], channel.ones[-1]
        if np.any(channel.ones[:sensitive] != theta) or np.any(channel.zeros[:sensitive] != psi):
            raise ValueError(f"the first {sensitive} bits of rung {rung} need common probabilities")
        if sensitive < size:
            others = np.zeros((1, size), dtype=np.uint8)
            others[0, sensitive:] = 1
            marked = rows & pack(others)
            open_rows = marked.any(axis=1)
            revealed += count_ones(marked, size)[sensitive:]
            rows = rows[~open_rows]
        width = -(-sensitive // 8)
        kept = rows[:, :width].copy()
        if sensitive % 8:
            kept[:, -1] &= (1 << sensitive % 8) - 1
        blocks.append(BitReports.from_rows(kept, theta, psi, outside=1.0 - tell if sensitive < size else 0.0))
    used = [block for block in blocks if block.weights.size]
    return urap_mle(used, revealed, sensitive, tolerance=tolerance, max_evaluations=max_evaluations, told=told)


@dataclass(frozen=True)
class _Likelihood:
    """The log-likelihood of all blocks over the sensitive shares and, if `lumped`, the share of all others together."""

    reports: tuple[BitReports, ...]
    bits: int
    given: float
    users: float
    lumped: bool

    @property
    def size(self) -> int:
        return self.bits + int(self.lumped)

    def start(self) -> Floats:
        """Return equal sensitive shares, the others at what the revealed reports suggest."""
        if not self.lumped:
            return np.full(self.size, 1.0 / self.size)
        hidden = sum(block.outside * float(block.weights.sum()) for block in self.reports)
        protected = sum(float(block.weights.sum()) for block in self.reports)
        told = 1.0 - hidden / protected if protected else 1.0
        rest = min(max(self.given / self.users / max(told, 1e-3), 0.05), 0.95)
        return np.append(np.full(self.bits, (1.0 - rest) / max(self.bits, 1)), rest)

    def evaluate(self, shares: Floats) -> tuple[Floats, float]:
        ratio = np.zeros(self.size)
        rest = float(shares[self.bits]) if self.lumped else 0.0
        if self.given and rest <= 0:
            return ratio, -math.inf
        value = self.given * math.log(rest) if self.given else 0.0
        for block in self.reports:
            weight, back, part = self._products(block, shares, 1)
            ratio[: self.bits] += block.absent * weight + (block.present - block.absent) * back
            ratio[self.bits :] += block.outside * weight
            value += part
        if self.given:
            ratio[self.bits] += self.given / rest
        return ratio / self.users, value

    def metric(self, shares: Floats) -> Floats:
        """Return the curvature per share; a constant added to a report's row is free where shares sum to one."""
        curvature = np.zeros(self.size)
        for block in self.reports:
            weight, back, _ = self._products(block, shares, 2)
            centre = block.absent + (block.present - block.absent) * float(back.mean()) / weight
            unset, is_set = (block.absent - centre) ** 2, (block.present - centre) ** 2
            curvature[: self.bits] += unset * weight + (is_set - unset) * back
            curvature[self.bits :] += (block.outside - centre) ** 2 * weight
        if self.given:
            curvature[self.bits] += self.given / max(float(shares[self.bits]), 1e-6) ** 2
        return np.asarray(np.maximum(curvature / self.users, 1e-9))

    def _products(self, block: BitReports, shares: Floats, power: int) -> tuple[float, Floats, float]:
        """Return sum w, Y'w and sum of weight * ln L, with w = weight / L**power and L the reports' likelihoods."""
        slope = block.present - block.absent
        padded = np.zeros(8 * len(block.columns))
        padded[: self.bits] = slope * shares[: self.bits]
        sums = padded.reshape(-1, 8) @ _BIT_TABLE
        back = np.zeros((len(block.columns), 256))
        base = block.absent * float(shares[: self.bits].sum()) + block.outside * float(shares[self.bits :].sum())
        weight, value = _products(block.columns, block.weights, sums, base, back, power)
        return weight, (back @ _BIT_TABLE.T).ravel()[: self.bits], value


@numba.njit(nogil=True, fastmath={"contract"})
def _products(
    columns: Bytes, weights: Floats, sums: Floats, base: float, back: Floats, power: int
) -> tuple[float, float]:  # pragma: no cover - compiled
    """Return both products of one block of reports."""
    width, rows = columns.shape
    block = np.empty(_BLOCK_ROWS)
    total = 0.0
    value = 0.0
    for start in range(0, rows, _BLOCK_ROWS):
        count = min(_BLOCK_ROWS, rows - start)
        for i in range(count):
            block[i] = base
        for b in range(width):
            column = columns[b, start : start + count]
            lookup = sums[b]
            for i in range(count):
                block[i] += lookup[column[i]]
        for i in range(count):
            weight = weights[start + i]
            value += weight * math.log(block[i])
            block[i] = weight / block[i] if power == 1 else weight / (block[i] * block[i])
            total += block[i]
        for b in range(width):
            column = columns[b, start : start + count]
            gather = back[b]
            for i in range(count):
                gather[column[i]] += block[i]
    return total, value
