"""Adapters for Ma & Wang: three-element response and key-value data."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np

from estimators.channels.rows import club_rows, loss_of_rows
from estimators.inference import key_value
from estimators.papers import key_value as key_value_paper
from estimators.papers import three_element
from tests.vectors import Adapter

Result = dict[str, Any]
Z95 = NormalDist().inv_cdf(0.975)

ROWS: dict[str, Callable[..., Any]] = {
    "ewrr3": three_element.equal_weights_rows,
    "ewrrn": lambda p, n: three_element.equal_weights_rows(p, n),
    "rr3_dagger": three_element.dagger_rows,
    "rr3_ddagger": three_element.ddagger_rows,
    "rr3_club": club_rows,
    "general": lambda P: np.array(P),  # noqa: N803  # name of the vectors
}


def channel(kind: str, **parameters: Any) -> Result:
    rows = ROWS[kind](**parameters)
    return {"P": rows, "det": three_element.determinant(rows), "eps": loss_of_rows(rows.tolist())}


def estimate(kind: str, counts: list[int], **parameters: Any) -> Result:
    found = three_element.linear_estimate(ROWS[kind](**parameters), counts)
    return {"pi_hat": found.shares, "cov_hat_unbiased": found.covariance}


def covariance(kind: str, pi: list[float], N: int, **parameters: Any) -> Result:  # noqa: N803
    found = three_element.linear_covariances(ROWS[kind](**parameters), pi, N)
    return {"superpopulation": found.sampling, "fixed_population": found.fixed_population}


def ewrrn_var(n: int, p: float, pi: float, N: int) -> Result:  # noqa: N803
    return {"var": three_element.equal_weights_variance(n, p, pi, N)}


def ewrrn_optimal_p(n: int, eps: float) -> Result:
    high, low = three_element.equal_weights_probability(n, eps), three_element.unlikely_truth_probability(n, eps)
    return {
        "p_high": high,
        "p_low": low,
        "var_high_at_pi_0p2": three_element.equal_weights_variance(n, high, 0.2, 1),
        "var_low_at_pi_0p2": three_element.equal_weights_variance(n, low, 0.2, 1),
    }


def rr3_dagger_var_grad(p1: float, p2: float, pi0: float, N: int) -> Result:  # noqa: N803
    by_p1, by_p2 = three_element.dagger_gradient(p1, p2, pi0, N)
    return {
        "var": three_element.dagger_variance(p1, p2, pi0, N),
        "d_dp1": by_p1,
        "d_dp2": by_p2,
        "eps": loss_of_rows(three_element.dagger_rows(p1, p2).tolist()),
    }


def lpp_eps(eps1: float, eps2: float) -> Result:
    parameters = key_value_paper.lpp_parameters(eps1, eps2)
    return {
        "p1": parameters.p1,
        "q": parameters.q,
        "eps": key_value.lpp_loss(eps1, eps2),
        "eq47_as_printed": key_value.lpp_loss_printed(eps1, eps2),
        "channel": parameters.rows,
    }


def lpp_split(eps: float) -> Result:
    eps1, eps2 = key_value_paper.lpp_split(eps)
    parameters = key_value_paper.lpp_parameters(eps1, eps2)
    return {"eps1": eps1, "eps2": eps2, "p1": parameters.p1, "q": parameters.q}


def vpp_prob_plus(w: float, eps2: float) -> Result:
    return {
        "P_plus": key_value_paper.value_response(w, eps2),
        "unbias_factor": key_value_paper.value_unbias_factor(eps2),
    }


def number(value: Any) -> float | None:
    return None if math.isnan(value) else float(value)


def described(found: key_value.KeyValueEstimate) -> Result:
    return {
        "f": number(found.share),
        "s": number(found.total),
        "mean": number(found.mean),
        "var_f": number(found.share_variance),
        "var_s": number(found.total_variance),
        "cov_fs": number(found.covariance),
    }


def interval(ends: tuple[Any, Any]) -> list[float] | None:
    return None if math.isnan(ends[0]) else [float(end) for end in ends]


def kv_estimate(n0: int, n_plus: int, n_minus: int, p1: float, p2: float, q: float) -> Result:
    parameters = key_value.KeyValueParameters(p1, p2, q)
    found = key_value.estimate_key_values(n0 + n_plus + n_minus, n_plus, n_minus, parameters)
    return described(found) | {
        "se_mean_delta": number(found.mean_error),
        "ci95_mean_delta": interval(found.delta_interval(Z95)),
        "ci95_mean_fieller": "unbounded" if found.fieller_unbounded(Z95) else interval(found.fieller_interval(Z95)),
    }


def kv_theory_cov(p1: float, p2: float, q: float, f: float, s: float, N: int) -> Result:  # noqa: N803
    found = key_value_paper.key_value_theory(f, s, N, key_value.KeyValueParameters(p1, p2, q))
    return described(found) | {"var_mean_delta": found.mean_variance}


def kv_index_sampling_var(
    n: int,
    m: int,
    k: float,
    W: float,  # noqa: N803
    W2: float,  # noqa: N803
    eps1: float,
    eps2: float,
) -> Result:
    found = key_value_paper.item_variances(n, m, k, W, W2, key_value_paper.lpp_parameters(eps1, eps2))
    return {
        "var_k_HT": found.degree_inflated,
        "var_k_ratio_approx": found.degree_ratio,
        "var_W_HT": found.weight_inflated,
        "var_W_ratio_approx": found.weight_ratio,
    }


def kv_degree_weight(n_users: int, m: int, n_j: int, n_plus: int, n_minus: int, eps1: float, eps2: float) -> Result:
    found = key_value.estimate_key_values(n_j, n_plus, n_minus, key_value_paper.lpp_parameters(eps1, eps2))
    totals = key_value_paper.item_totals(found, n_users, m, n_j)
    return {
        "k_HT": totals.degree_inflated,
        "W_HT": totals.weight_inflated,
        "k_ratio": totals.degree_ratio,
        "W_ratio": totals.weight_ratio,
        "mean": found.mean,
    }


def graph_averages(n: int, m: int, degrees: list[float], weights: list[float]) -> Result:
    if len(degrees) != m:
        raise ValueError(f"{m} items need {m} degrees; got {len(degrees)}")
    found = key_value.graph_averages(n, degrees, weights)
    return {
        "printed_eq6_k": key_value_paper.printed_graph_average(n, degrees),
        "printed_eq6_w": key_value_paper.printed_graph_average(n, weights),
        "avg_degree": found.degree,
        "avg_degree_V2": found.degree_of_items,
        "avg_degree_V1": found.degree_of_users,
        "bipartite_density": found.density,
        "avg_edge_weight": found.edge_weight,
        "avg_vertex_weight_V2": found.weight_of_items,
    }


def ewrr3_weight(p: float, counts: list[int]) -> Result:
    found = three_element.half_step_weight(p, counts)
    return {"W": found.total, "var_W": found.variance}


def pckv_ue_eps(a: float, b_mw: float, p: float) -> Result:
    invented = key_value_paper.other_convention(b_mw)
    eps1, eps2 = key_value_paper.pckv_losses(a, invented, p)
    return {
        "eps1": eps1,
        "eps2": eps2,
        "eps": key_value.lpp_loss(eps1, eps2),
        "eps_of_3x3_matrix_alone": key_value_paper.pckv_position_loss(a, invented, p),
    }


def pckv_ue_alloc(eps: float) -> Result:
    a, b, p = key_value_paper.pckv_allocation(eps)
    return {"a": a, "b_gu": b, "p": p, "eps_check": key_value.lpp_loss(*key_value_paper.pckv_losses(a, b, p))}


def pckv_ue_estimate(n: int, n_plus: int, n_minus: int, a: float, b_gu: float, p: float, ell: int) -> Result:
    parameters = key_value_paper.pckv_parameters(a, b_gu, p)
    return described(key_value.estimate_key_values(n, n_plus, n_minus, parameters).scaled(ell))


FUNCTIONS: dict[str, Adapter] = {
    **{f"{kind}_channel": partial(channel, kind) for kind in ROWS},
    **{f"{kind}_estimate": partial(estimate, kind) for kind in ROWS},
    **{f"{kind}_cov": partial(covariance, kind) for kind in ROWS},
    **{
        adapter.__name__: adapter
        for adapter in (
            ewrrn_var,
            ewrrn_optimal_p,
            rr3_dagger_var_grad,
            lpp_eps,
            lpp_split,
            vpp_prob_plus,
            kv_estimate,
            kv_theory_cov,
            kv_index_sampling_var,
            kv_degree_weight,
            graph_averages,
            ewrr3_weight,
            pckv_ue_eps,
            pckv_ue_alloc,
            pckv_ue_estimate,
        )
    },
}
