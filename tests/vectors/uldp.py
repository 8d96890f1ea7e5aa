"""Utility-optimised mechanisms: probabilities, losses, personal tags (Murakami & Kawamoto)."""

from __future__ import annotations

import math
from typing import Any

from estimators.channels.response import REAL
from estimators.papers import utility_optimized
from estimators.planning import losses, widths
from tests.vectors import Adapter


def level(text: float | str, size: int = 0) -> float:
    """Read "ln(k)" and "ln(625)" as numbers."""
    if isinstance(text, str):
        inner = text.removeprefix("ln(").removesuffix(")")
        return math.log(size if inner == "k" else float(inner))
    return text


def rr_params(k: int, eps: float | str) -> dict[str, Any]:
    chance = REAL.grr(level(eps, k), k)
    return {"p_true": chance.truth, "p_other": chance.lie}


def urr_params(k: int, s: int, eps: float | str) -> dict[str, Any]:
    chance = REAL.grr(level(eps, k), s)
    return {"c1": chance.truth, "c2": chance.lie, "c3": chance.slope}


def urr_matrix(k: int, s: int, eps: float) -> dict[str, Any]:
    return {"Q": widths.urr_matrix(eps, k, range(s))}


def urap_params(eps: float, theta: float | None) -> dict[str, Any]:
    chance = REAL.urap(eps, theta)
    own = chance.sensitive
    return {
        "theta": chance.sensitive.truth,
        "d1": chance.sensitive.lie,
        "d2": chance.other.miss,
        "one_minus_d2": chance.other.truth,
        "eps_check": math.log(own.truth * (1 - own.lie) / (own.miss * own.lie)),
    }


def rappor_cov(p: list[float], eps: float) -> dict[str, Any]:
    covariance = utility_optimized.rappor_covariance(p, eps)
    return {"n_var": covariance.diagonal(), "n_cov01": covariance[0, 1], "n_var_sum": covariance.sum()}


def mangat(p: float, n_yes: int, n: int) -> dict[str, Any]:
    found = utility_optimized.mangat_estimate(n_yes, n, p)
    return {
        "eps_uldp": found.epsilon,
        "pi_hat": found.share,
        "var_hat": found.variance,
        "urr_equivalent_eps": found.epsilon,
    }


def binomial_mad(n: int, m: float) -> dict[str, Any]:
    return {"mad": losses.mean_deviation(n, m), "normal_approx": losses.normal_mean_deviation(n, m)}


def l1_urr(p: list[float], s: int, eps: float, n: int) -> dict[str, Any]:
    found = losses.l1_urr(p, s, eps, n)
    return {"eq12": found.approximate, "exact": found.exact, "tv_eq12": found.total_variation}


def l1_urap(p: list[float], s: int, eps: float, n: int) -> dict[str, Any]:
    found = losses.l1_urap(p, s, eps, n)
    return {"eq17": found.approximate, "exact": found.exact, "tv_eq17": found.total_variation}


def l1_worst(k: int, s: int, eps: float | str, n: int) -> dict[str, Any]:
    epsilon = level(eps, k)
    return {
        "eq13": losses.l1_urr_other_uniform(k, s, epsilon, n),
        "eq18": losses.l1_urap_worst(k, s, epsilon, n),
        "eq16": losses.l1_urr_high_privacy(s, epsilon, n),
        "eq19": losses.l1_urap_high_privacy(s, epsilon, n),
        "nonprivate": losses.l1_without_privacy(k, n),
    }


def l1_lowpriv(k: int, s: int, n: int, eps: float | str) -> dict[str, Any]:
    epsilon, uniform = level(eps, k), [1 / k] * k
    return {
        "eq15": losses.l1_urr_star(k, s, epsilon, n),
        "eq18": losses.l1_urap_worst(k, s, epsilon, n),
        "rr_uniform": losses.l1_urr(uniform, k, epsilon, n).approximate,
        "rappor_uniform": losses.l1_urap(uniform, k, epsilon, n).approximate,
        "nonprivate": losses.l1_without_privacy(k, n),
    }


def worst_case_p_star(s: int, N: int, eps: float, n: int) -> dict[str, Any]:  # noqa: N803  # the vector's own letter
    sensitive, other = losses.worst_shares(s, N, eps)
    return {"p_S": sensitive, "p_N": other, "l1": losses.l1_urr_star(s + N, s, eps, n)}


def l2_losses(p: list[float], s: int, eps: float, n: int) -> dict[str, Any]:
    return {"eq46_urr": losses.l2_urr(p, s, eps, n), "eq48_urap": losses.l2_urap(p, s, eps, n)}


def l2_worst(k: int, s: int, eps: float, n: int) -> dict[str, Any]:
    return {
        "prop15": losses.l2_urr_other_uniform(k, s, eps, n),
        "prop16": losses.l2_urr_star(k, s, eps, n),
        "prop16_applies": losses.l2_urr_star_applies(k, s, eps),
        "prop18": losses.l2_urap_worst(k, s, eps, n),
    }


def pum_estimate(r: list[float], s: int, kappa: int, pi_k: list[list[float] | None]) -> dict[str, Any]:
    shares = utility_optimized.personal_shares(r, s, kappa, pi_k)
    return {"p": shares, "sum": shares.sum()}


def pum_from_counts(
    counts: list[int], s: int, kappa: int, pi_k: list[list[float] | None], eps: float
) -> dict[str, Any]:
    linear, highest = utility_optimized.personal_estimates(counts, s, kappa, pi_k, eps)
    return {"r_emp": linear.combined, "p_emp": linear.shares, "r_mle": highest.combined, "p_mle": highest.shares}


def pum_theorem1(r: list[float], r_hat: list[float], pi: list[float], pi_hat: list[float]) -> dict[str, Any]:
    found = utility_optimized.personal_error_bound(r, r_hat, pi, pi_hat)
    return {"l1": found.error, "bound_printed": found.printed, "bound_correct": found.bound}


def uldp_composition(eps0: float, eps1: float, t: int) -> dict[str, Any]:
    return {
        "two": utility_optimized.composed_epsilon([eps0, eps1]),
        "t_fold": utility_optimized.composed_epsilon([eps0] * t),
    }


FUNCTIONS: dict[str, Adapter] = {
    "rr_params": rr_params,
    "urr_params": urr_params,
    "urr_matrix": urr_matrix,
    "urap_params": urap_params,
    "rappor_cov": rappor_cov,
    "mangat": mangat,
    "binomial_mad": binomial_mad,
    "l1_urr": l1_urr,
    "l1_urap": l1_urap,
    "l1_worst": l1_worst,
    "l1_lowpriv": l1_lowpriv,
    "worst_case_p_star": worst_case_p_star,
    "l2_losses": l2_losses,
    "l2_worst": l2_worst,
    "pum_estimate": pum_estimate,
    "pum_from_counts": pum_from_counts,
    "pum_theorem1": pum_theorem1,
    "uldp_composition": uldp_composition,
}
