"""Adapters for estimation: pooling of rungs, likelihood, thresholds, bounds that may be looked at all the time."""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.channels.response import REAL
from estimators.channels.rows import channel_matrix
from estimators.estimates import Population
from estimators.inference import em, em_bits, homogeneity, likelihood, pooling
from estimators.inference import views as threshold
from estimators.inference.inversion import Rungs, bit_estimates, retention_estimate, unbiased_covariance
from estimators.inference.pooling_dense import dense_covariance_fit
from estimators.intervals import checkpoints
from estimators.intervals import one_look as bounds
from estimators.intervals.always_valid import YesNo, log_e
from estimators.papers import pitfalls
from estimators.planning import widths as planning
from tests.vectors import Adapter

Result = dict[str, Any]
Table = list[list[int]]


def pool_stratified(counts: Table, eps: list[float]) -> Result:
    return {"pi": pooling.stratified(Rungs.at_levels(eps, counts))}


def pool_gls(counts: Table, eps: list[float], pi0: list[float]) -> Result:
    shares, inverse = pooling.gls_step(Rungs.at_levels(eps, counts), np.array(pi0))
    return {"pi": shares, "cov_at_pi0": pooling.gls_covariance(inverse)}


def pool_mle(counts: Table, eps: list[float]) -> Result:
    rungs = Rungs.at_levels(eps, counts)
    maximum = likelihood.retention_mle(rungs)
    assert maximum is not None
    expected = rungs.users[:, None] * rungs.answer_shares(maximum.shares)
    statistic, freedom = homogeneity.chi_square(rungs.counts, expected, expected)
    return {
        "pi": maximum.shares,
        "score": likelihood.score(rungs, maximum.shares),
        "loglik": maximum.log_likelihood,
        "X2": statistic,
        "df": freedom,
    }


def pool_stratified_var(pi_g: list[list[float]], n_g: list[int], eps: list[float], iid: bool) -> Result:
    population: Population = "sampling" if iid else "fleet"
    return {"cov": planning.grr_stratified_covariance(pi_g, n_g, eps, population=population)}


def pool_binary_ivw(n_g: list[int], eps: list[float], pi: float) -> Result:
    plan = planning.binary_pooling(n_g, eps, pi)
    return {
        "weights": plan.weights,
        "var_iid": plan.sampling,
        "var_finite_random_assignment": plan.fleet,
        "var_stratified_fixed": plan.stratified,
    }


def pool_mle_channels(channels: list[dict[str, Any]], counts: Table) -> Result:
    size = len(counts[0])
    matrices = np.stack(
        [
            channel_matrix(channel["eps"], size)
            if channel["type"] == "grr"
            else planning.urr_matrix(channel["eps"], size, channel["S"])
            for channel in channels
        ]
    )
    tallied = np.array(counts, dtype=np.float64)
    maximum = em.dense_mle(matrices, tallied)
    return {
        "pi": maximum.shares,
        "cov": dense_covariance_fit(matrices, tallied.sum(axis=1), maximum.shares, "sampling"),
    }


def pooled_fleet(m: int, eps: list[float], counts: Table) -> Result:
    rungs = Rungs.at_levels(eps, counts)
    fit = pooling.gls(rungs)
    return {
        "pi": fit.shares,
        "cov_superpopulation": pooling.gls_covariance(fit.inverse_information),
        "cov_fleet": pooling.fleet_covariance(rungs, fit.inverse_information, fit.pilot),
    }


def average_rounds(eps: list[float], N: int) -> Result:  # noqa: N803  # the vector's own letter
    found = pitfalls.averaging_rounds(eps, N)
    return {
        "var_last": found.last,
        "cov_matrix": found.covariance,
        "equal_weight_true": found.equal_true,
        "equal_weight_claimed_if_independent": found.equal_claimed,
        "ivw_true": found.weighted_true,
        "ivw_claimed_if_independent": found.weighted_claimed,
    }


def adaptive_bias(pi: float, eps1: float, eps2: float) -> Result:
    return {"expected_moment_estimate": pitfalls.adaptive_expectation(pi, eps1, eps2), "truth": pi}


def urr_emp(counts: list[int], s: int, eps: float) -> Result:
    rungs = Rungs.at_levels([eps], [counts], pool=s)
    shares = retention_estimate(rungs.sigma[0], rungs.base[0], rungs.counts[0])
    return {"p": shares, "cov_row0": unbiased_covariance(rungs.sigma[0], counts)[0], "sum": shares.sum()}


def urap_emp(bit_counts: list[int], n: int, s: int, eps: float, theta: float | None) -> Result:
    truth, lie = planning.urap_responses(eps, len(bit_counts), s, theta=theta)
    shares, variances = bit_estimates(truth, lie, bit_counts, n)
    return {"p": shares, "var_hat": variances, "sum": shares.sum()}


def bonferroni_z(alpha: float, k: int) -> Result:
    return {"z": bounds.bonferroni_z(alpha, k)}


def emp_thr_threshold(k: int, s: int, eps: float, n: int, alpha: float) -> Result:
    retention = REAL.grr(eps, s)
    bits = REAL.urap(eps)
    categories = threshold.zero_deviation(retention.slope, retention.lie, n)
    return {
        "uRR_sensitive": threshold.significance_threshold(categories, alpha, k),
        "uRAP_sensitive": threshold.significance_threshold(
            threshold.zero_deviation(bits.sensitive.slope, bits.sensitive.lie, n), alpha, k
        ),
        "nonsensitive": threshold.significance_threshold(threshold.zero_deviation(bits.other.truth, 0.0, n), alpha, k),
    }


def urr_emp_thr(counts: list[int], s: int, eps: float, alpha: float) -> Result:
    rungs = Rungs.at_levels([eps], [counts], pool=s)
    questions = YesNo.of(rungs.sigma[:, None] + rungs.base, rungs.base, rungs.counts, rungs.users)
    deviation = threshold.zero_share_deviation(questions, "stratified")
    limits = threshold.significance_threshold(deviation, alpha, len(counts))
    return _significant(pooling.stratified(rungs), limits)


def urap_emp_thr(bit_counts: list[int], n: int, s: int, eps: float, alpha: float) -> Result:
    truth, lie = planning.urap_responses(eps, len(bit_counts), s)
    shares, _ = bit_estimates(truth, lie, bit_counts, n)
    limits = threshold.significance_threshold(
        threshold.zero_deviation(np.subtract(truth, lie), lie, n), alpha, len(bit_counts)
    )
    return _significant(shares, limits)


def urr_mle(counts: list[int], s: int, eps: float) -> Result:
    rungs = Rungs.at_levels([eps], [counts], pool=s)
    maximum = likelihood.retention_mle(rungs)
    assert maximum is not None
    return {
        "p": maximum.shares,
        "active_sensitive": likelihood.active(maximum.shares, s),
        "loglik": maximum.log_likelihood,
        "equals_emp": likelihood.is_linear(rungs, maximum.shares),
    }


def urr_em_iterate(counts: list[int], s: int, eps: float, iterations: int) -> Result:
    evaluate = em.retention_evaluate(Rungs.at_levels([eps], [counts], pool=s))
    return {"p": em.plain_em(evaluate, em.uniform(len(counts)), iterations)}


def rappor_full_mle(pattern_counts: list[int], k: int, eps: float) -> Result:
    chance = REAL.urap(eps)
    reports = em_bits.BitReports.from_patterns(pattern_counts, chance.sensitive.truth, chance.sensitive.lie)
    maximum = em_bits.rappor_mle([reports], k, tolerance=1e-13)
    assert maximum is not None
    return {"p": maximum.shares}


def urap_full_mle(
    protected_pattern_counts: list[int], invertible_counts: list[int], s: int, k: int, eps: float
) -> Result:
    chance = REAL.urap(eps)
    reports = em_bits.BitReports.from_patterns(
        protected_pattern_counts, chance.sensitive.truth, chance.sensitive.lie, outside=chance.other.miss
    )
    maximum = em_bits.urap_mle([reports], np.array(invertible_counts), s, tolerance=1e-13)
    assert maximum is not None
    return {"p": maximum.shares}


def simplex_projection(y: list[float]) -> Result:
    return {"p": threshold.simplex_projection(y)}


def eprocess_log(m: int, eps: list[float], n_g: list[int], h_g: list[int], c: float, grid_points: int) -> Result:
    chances = [REAL.grr(epsilon, m) for epsilon in eps]
    tally = YesNo.of([chance.truth for chance in chances], [chance.lie for chance in chances], h_g, n_g)
    return {"log_e": log_e(tally, c, points=grid_points)[0]}


def checkpoint_alpha(alpha: float, k: int) -> Result:
    part = checkpoints.checkpoint_alpha(alpha, k)
    return {"alpha_k": part, "z_one_sided": bounds.one_sided_z(part), "z_two_sided": bounds.two_sided_z(part)}


def _significant(shares: Any, limits: Any) -> Result:
    found = threshold.keep_significant(shares, limits)
    return {
        "emp": shares,
        "threshold_S": limits[0],
        "kept": found.kept,
        "remaining": found.remaining,
        "p": found.shares,
    }


FUNCTIONS: dict[str, Adapter] = {
    adapter.__name__: adapter
    for adapter in (
        pool_stratified,
        pool_gls,
        pool_mle,
        pool_stratified_var,
        pool_binary_ivw,
        pool_mle_channels,
        pooled_fleet,
        average_rounds,
        adaptive_bias,
        urr_emp,
        urap_emp,
        bonferroni_z,
        emp_thr_threshold,
        urr_emp_thr,
        urap_emp_thr,
        urr_mle,
        urr_em_iterate,
        rappor_full_mle,
        urap_full_mle,
        simplex_projection,
        eprocess_log,
        checkpoint_alpha,
    )
}
FUNCTIONS["pool_mle_kkt"] = pool_mle
