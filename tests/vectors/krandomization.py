"""k-randomization: flip probabilities, exact ratios and failure chances (Zhilyaev & Zeber)."""

from __future__ import annotations

from typing import Any

from estimators.channels import crowd
from estimators.papers import crowd as crowd_paper
from tests.vectors import Adapter


# The inputs of the vectors carry the letters of the paper.
def krand_q(N: int, lam: float, k: int) -> dict[str, Any]:  # noqa: N803
    q = crowd.flip_probability(N, lam, copies=k)
    return {
        "q": q,
        "sigma_T": crowd_paper.total_deviation(N, q, copies=k),
        "sigma_S": crowd_paper.count_deviation(N, q, copies=k),
        "true_ldp_single": crowd_paper.local_epsilon(q),
        "true_ldp_k_linked": crowd_paper.local_epsilon(q, copies=k),
    }


def krand_q_vec(N: int, lam: float, L: int, k: int) -> dict[str, Any]:  # noqa: N803
    q = crowd.flip_probability(N, lam, copies=k, bits=L)
    return {
        "q": q,
        "true_ldp_single": crowd_paper.local_epsilon(q, bits=L),
        "true_ldp_k_linked": crowd_paper.local_epsilon(q, bits=L, copies=k),
    }


def krand_inv_ratio(N: int, q: float, k: int, s: int) -> dict[str, Any]:  # noqa: N803
    return {
        "inv_R": crowd_paper.inverse_ratio(s, N, q, copies=k),
        "binomial_upper_bound": crowd_paper.inverse_ratio_bound(s, N, q, copies=k),
    }


def krand_delta(N: int, q: float, k: int, lam: float) -> dict[str, Any]:  # noqa: N803
    found = crowd_paper.first_record_delta(N, q, lam, copies=k)
    return {
        "delta_Dm_over_D": found.zeros_over_one,
        "delta_D_over_Dm": found.one_over_zeros,
        "prob_R_gt_lam_given_Dm": crowd_paper.chance_of_excess(N, q, lam, copies=k),
        "coverage_3sigma_Dm": crowd_paper.coverage_of_three_sigmas(N, q, copies=k),
    }


def krand_estimate(S: int, N: int, q: float, k: int) -> dict[str, Any]:  # noqa: N803
    found = crowd_paper.estimate_total(S, N, q, copies=k)
    return {"T_hat": found.records, "var": found.variance}


def krand_var_x(N: int, q: float, L: int) -> dict[str, Any]:  # noqa: N803
    mean, variance = crowd_paper.weight_moments(N, q, bits=L)
    return {"mean": mean, "var": variance}


FUNCTIONS: dict[str, Adapter] = {
    "krand_q": krand_q,
    "krand_q_vec": krand_q_vec,
    "krand_inv_ratio": krand_inv_ratio,
    "krand_delta": krand_delta,
    "krand_estimate": krand_estimate,
    "krand_var_X": krand_var_x,
}
