"""python -m tests.bench.bit_likelihood: full likelihood of uRAP at the paper's size; prints time and memory as JSON."""

from __future__ import annotations

import json
import resource
import sys
import time

import numpy as np

from estimators.channels.bits import count_ones
from estimators.channels.response import REAL
from estimators.exact.randomness import SeededBits
from estimators.inference.em_bits import BitReports, urap_mle
from estimators.mechanisms.uldp import urap_chain

VALUES, SENSITIVE, USERS = 12_800, 2_432, 240_000
EPSILON = 6.0
_BLOCK = 8_000


def main() -> None:
    """Draw the reports, keep what the likelihood needs, maximise it, print time and peak memory."""
    rng = np.random.default_rng(1)
    shares = 1 / np.arange(1, VALUES + 1)
    values = rng.permutation(VALUES)[rng.choice(VALUES, USERS, p=shares / shares.sum())]
    chain, bits = urap_chain([EPSILON], SENSITIVE, VALUES - SENSITIVE), SeededBits(1, "uRAP")
    protected, revealed = [], np.zeros(VALUES - SENSITIVE, dtype=np.int64)
    split = SENSITIVE // 8
    assert SENSITIVE % 8 == 0, "sensitive bits must end with a byte"
    for start in range(0, USERS, _BLOCK):
        answers = chain.draw_one_hot(values[start : start + _BLOCK], bits)[0]
        told = answers[:, split:].any(axis=1)
        protected.append(answers[~told, :split])
        revealed += count_ones(answers[told, split:], len(revealed))
    chance = REAL.urap(EPSILON)
    reports = BitReports.from_rows(
        np.concatenate(protected), chance.sensitive.truth, chance.sensitive.lie, outside=chance.other.miss
    )
    start_seconds = time.perf_counter()
    found = urap_mle([reports], revealed, SENSITIVE)
    spent = time.perf_counter() - start_seconds
    assert found is not None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    measured = {"seconds": spent, "peak_bytes": peak, "stopped": found.stopped, "reports": len(reports.weights)}
    json.dump(measured, sys.stdout)


if __name__ == "__main__":
    main()
