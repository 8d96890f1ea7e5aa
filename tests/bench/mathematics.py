"""Drawing and estimating: against multi-freq-ldpy, ldp-toolbox and plain EM, in one run."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from estimators.channels.channel import RetentionChannel
from estimators.exact.randomness import SecureBits
from estimators.inference.em import retention_evaluate
from estimators.inference.inversion import Rungs
from estimators.inference.likelihood import Maximum, retention_mle
from estimators.tally import Tally, count_symbols
from tests.bench.goals import Result, seconds, side_by_side
from tests.support.mechanism import build
from tests.support.paths import ROOT
from tests.support.peers import multi_freq_ldpy

PEERS = ROOT / ".cache" / "peers"
TOOLBOX = "ldp-toolbox==0.1.3"

VALUES = 100
EPSILON = 1.0
GRR_DEVICES, UNARY_DEVICES, ANSWERS = 1_000_000, 200_000, 1_000_000
# Peers go one device at a time in Python: a smaller number of them takes long enough to be measured.
PEER_GRR_DEVICES, PEER_UNARY_DEVICES = 50_000, 10_000

LARGE_VALUES, LARGE_SENSITIVE, LARGE_USERS = 12_800, 2_432, 240_000
EM_RATIO = 1000


def results() -> Iterator[Result]:
    """Measure everything, slowest last."""
    yield grr_perturbation()
    yield unary_perturbation()
    yield estimation()
    yield maximum_likelihood("likelihood-rr", LARGE_VALUES)
    yield maximum_likelihood("likelihood-urr", LARGE_SENSITIVE)
    yield from bit_likelihood()


def grr_perturbation() -> Result:
    """One GRR answer out of 100 values per device, secure bits, as bytes for the wire."""
    mechanism = build("grr", _labels(), [EPSILON], {})
    values, bits = _values(GRR_DEVICES), SecureBits()
    client = multi_freq_ldpy("GRR").GRR_Client
    few = values[:PEER_GRR_DEVICES].tolist()
    ours, theirs = side_by_side(
        lambda: mechanism.draw(values, bits), lambda: [client(value, VALUES, EPSILON) for value in few]
    )
    return _rates("grr-perturbation", GRR_DEVICES / ours, len(few) / theirs, 50)


def unary_perturbation() -> Result:
    """One optimised unary vector of 100 bits per device, secure bits, packed."""
    mechanism = build("oue", _labels(), [EPSILON], {})
    values, bits = _values(UNARY_DEVICES), SecureBits()
    client = multi_freq_ldpy("UE").UE_Client
    few = values[:PEER_UNARY_DEVICES].tolist()
    ours, theirs = side_by_side(
        lambda: mechanism.draw(values, bits), lambda: [client(value, VALUES, EPSILON, True) for value in few]
    )
    return _rates("unary-perturbation", UNARY_DEVICES / ours, len(few) / theirs, 37)


def estimation() -> Result:
    """Count a million GRR answers and estimate 100 shares; ours with variances and intervals."""
    mechanism = build("grr", _labels(), [EPSILON], {})
    answers = mechanism.draw(_values(ANSWERS), SecureBits()).answers[0]
    peer = toolbox("grr").GeneralizedRandomizedResponse(VALUES, EPSILON)
    as_list = answers.tolist()  # what the peer is fastest with

    def ours() -> object:
        counts = count_symbols(answers, VALUES).reshape(1, 1, VALUES)
        return mechanism.estimate(Tally(counts, np.array([[ANSWERS]])))

    mine, theirs = side_by_side(ours, lambda: peer.estimate(as_list), rounds=15)
    return _rates("estimation", ANSWERS / mine, ANSWERS / theirs, 75, peer="ldp-toolbox")


def maximum_likelihood(name: str, sensitive: int) -> Result:
    """Maximum likelihood for 12,800 values; plain EM runs until it is as likely, or seen to lose."""
    channel = RetentionChannel.for_epsilon(EPSILON, LARGE_VALUES, pool=sensitive)
    counts = np.bincount(channel.sample(_zipf_values(), SecureBits()), minlength=LARGE_VALUES)
    rungs = Rungs.of([channel], counts[None], np.array([LARGE_USERS]))
    ours = min(seconds(lambda: retention_mle(rungs)) for _ in range(5))
    best = retention_mle(rungs)
    assert best is not None
    theirs, done = _plain_em(rungs, best, limit_seconds=max(10.0, 1.2 * EM_RATIO * ours))
    return Result(name, 1 / ours, "runs/s", "plain EM", 1 / theirs, least_ratio=EM_RATIO, still_running=not done)


def _plain_em(rungs: Rungs, best: Maximum, *, limit_seconds: float) -> tuple[float, bool]:
    """Return how long plain EM ran, and whether it became as likely as the maximum."""
    evaluate = retention_evaluate(rungs)
    shares = np.full(rungs.size, 1 / rungs.size)
    start = time.perf_counter()
    # The stopping rule of the estimators: a gain below 1e-9 per user does not matter.
    enough = best.log_likelihood - 1e-9 * LARGE_USERS
    while (spent := time.perf_counter() - start) < limit_seconds:
        ratio, likelihood = evaluate(shares)
        if likelihood >= enough:
            return spent, True
        shares = shares * ratio
    return spent, False


def bit_likelihood() -> Iterator[Result]:
    """Full likelihood of uRAP at the paper's size, in a process of its own so that its memory can be told."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.bit_likelihood"], capture_output=True, text=True, check=True
    )
    measured = json.loads(done.stdout)
    yield Result("urap-likelihood-time", measured["seconds"], "s", most=20)
    yield Result("urap-likelihood-memory", measured["peak_bytes"] / 1e9, "GB", most=2)


def toolbox(protocol: str) -> Any:
    """Return a protocol of ldp-toolbox; it is fetched once, without the web dashboard that it depends on."""
    if not PEERS.is_dir():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(PEERS), TOOLBOX]
        subprocess.run(command, check=True)
    if str(PEERS) not in sys.path:
        sys.path.append(str(PEERS))
    return importlib.import_module(f"ldp_toolbox.protocols.frequency.{protocol}")


def _rates(name: str, ours: float, theirs: float, least: float, *, peer: str = "multi-freq-ldpy") -> Result:
    return Result(name, ours / 1e6, "M/s", peer, theirs / 1e6, least_ratio=least)


def _labels() -> list[str]:
    return [f"value {i}" for i in range(VALUES)]


def _values(count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.default_rng(1).integers(0, VALUES, count)


def _zipf_values() -> np.ndarray[Any, np.dtype[np.int64]]:
    rng = np.random.default_rng(1)
    shares = 1 / np.arange(1, LARGE_VALUES + 1)
    return rng.permutation(LARGE_VALUES)[rng.choice(LARGE_VALUES, LARGE_USERS, p=shares / shares.sum())]
