"""Adapters for gradual release (Pan) and for the families that can be relaxed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from estimators.channels import moments, noisy_sampling
from estimators.channels.response import REAL
from estimators.inference.key_value import lpp_loss
from estimators.papers import attacks, closed_forms, gradual_release, kernels
from estimators.papers import noisy_sampling as noisy_sampling_paper
from estimators.papers.yes_no import simmons_epsilon
from estimators.planning.degradation import Degradation
from tests.vectors import Adapter

Result = dict[str, Any]


def relax_probs(m: int, eps1: float, eps2: float) -> Result:
    step = gradual_release.step(eps1, eps2, m)
    return {
        "p_aa": step.truth_to_truth,
        "p_ab_each": step.truth_to_lie,
        "p_ba": step.lie_to_truth,
        "p_bb": step.lie_to_same,
        "p_bc_each": step.lie_to_other,
        "keep_if_true": step.keep_truth,
        "keep_if_false": step.keep_lie,
    }


def table_row(m: int, pairs: list[list[float]]) -> Result:
    steps = [gradual_release.step(lower, upper, m) for lower, upper in pairs]
    return {
        "table1_paa": [step.truth_to_truth for step in steps],
        "table2_pbb": [step.lie_to_same for step in steps],
        "table3_pba": [step.lie_to_truth for step in steps],
    }


def binary_relax(eps1: float, eps2: float) -> Result:
    step = gradual_release.step(eps1, eps2, 2)
    return {"p_a": step.truth_to_truth, "p_b": step.lie_to_same}


def grr_kernel(m: int, eps1: float, eps2: float) -> Result:
    kernel = gradual_release.kernel(eps1, eps2, m)
    return {
        "retention_sigma1": REAL.grr(eps1, m).slope,
        "retention_sigma2": REAL.grr(eps2, m).slope,
        "r": kernel.retention,
        "K_same": kernel.same,
        "K_diff": kernel.different,
        "eps_of_K": kernel.epsilon,
        "prob_change": kernel.change,
    }


def sequence_prob(m: int, eps: list[float], x: int, outputs: list[int]) -> Result:
    return {
        "prob": gradual_release.sequence_probability(eps, m, x, outputs),
        "log_ratio_vs_each_x": gradual_release.log_ratios(eps, m, x, outputs),
        "posterior_uniform_prior": gradual_release.posterior(eps, m, outputs),
    }


def max_log_ratio(m: int, eps: list[float]) -> Result:
    return {"max_log_ratio": gradual_release.sequence_loss(eps, m), "eps_n": eps[-1]}


def bridge(m: int, eps_a: float, eps_b: float, eps_c: float, o_a: int, o_c: int) -> Result:
    return {"prob_o_b": gradual_release.bridge((eps_a, eps_b, eps_c), m, o_a, o_c)}


def est_binary(count_b: int, n: int, eps: float) -> Result:
    share = closed_forms.binary_estimate(count_b, n, eps)
    return {"pi_b": share, "var_fixed_population": None if share is None else moments.binary_variance(eps, n)}


def est_grr(counts: list[int], eps: float) -> Result:
    shares = closed_forms.grr_estimate(counts, eps)
    if shares is None:
        return {"pi": None, "sum": None, "pi_clip_renorm": None}
    return {"pi": shares, "sum": shares.sum(), "pi_clip_renorm": closed_forms.clip_and_renormalize(shares)}


def mean_var(l: float, h: float, eps: float, values: list[float]) -> Result:  # noqa: E741  # the key in the file
    return {
        "var": closed_forms.mean_variance(values, eps, l, h),
        "rounding_floor": closed_forms.rounding_variance(values, l, h),
    }


def mean_est(l: float, h: float, eps: float, count_h: int, n: int) -> Result:  # noqa: E741  # the key in the file
    return {"mean": closed_forms.mean_estimate(count_h, n, eps, l, h)}


def eps_ns(eps_alpha: float, eps_beta: float, K: int) -> Result:  # noqa: N803
    return {"eps_ns": noisy_sampling.sampling_epsilon(eps_alpha, eps_beta, K)}


def ns_variances(eps_alpha: float, eps_beta: float, K: int, N: int, pi: float) -> Result:  # noqa: N803
    found = noisy_sampling_paper.compare_sampling(eps_alpha, eps_beta, K, N, pi)
    return {**asdict(found), "optimal": found.weighted}


def exp1_theory(eps_alpha: float, eps_beta: float, rounds: int, N: int, pi: float) -> Result:  # noqa: N803
    found = noisy_sampling_paper.binary_experiment(eps_alpha, eps_beta, rounds, N, pi)
    return {
        "eps": found.levels,
        "sigma": found.deviation,
        "ci_low": found.lower,
        "ci_high": found.upper,
        "ns_variance": found.sampling_variance,
        "min_error": found.minimum_error,
    }


def exp2_theory(counts: list[int], eps: list[float]) -> Result:
    return {
        "sigma": noisy_sampling_paper.value_experiment(counts, eps),
        "min_error": attacks.last_answer_error(eps[-1], len(counts)),
    }


def attack_errors(m: int, eps: list[float], weights: str | list[float], eps_schedule: str | None = None) -> Result:
    last = attacks.last_answer_error(eps[-1], m)
    return {
        "LO": last,
        "MLE": attacks.likelihood_error(eps, m),
        "HF": attacks.frequency_error(eps, m),
        "WHF": attacks.frequency_error(eps, m, eps if isinstance(weights, str) else weights),
    }


def bayes_error(prior: list[float], eps: float) -> Result:
    return {
        "bayes_error": attacks.bayes_error(prior, eps),
        "uniform_prior_minimum": attacks.last_answer_error(eps, len(prior)),
    }


def degradation(found: Degradation) -> Result:
    nothing = [None] * found.upper.shape[1]
    forward = [[nothing if row is None else row for row in rows] for rows in found.forward()]
    return {"K": found.kernel, "F": forward, "ok": found.possible}


def ue_bit_kernel(p1: float, q1: float, p2: float, q2: float) -> Result:
    return degradation(kernels.bit((p1, q1), (p2, q2)))


def urr_relax(S1: list[int], S2: list[int], n: int, eps1: float, eps2: float) -> Result:  # noqa: N803
    found = kernels.utility_optimized(n, (eps1, S1), (eps2, S2))
    return {**degradation(found), "r": found.kept}


def retrep_kernel(sigma1: float, sigma2: float, pi1: list[float], pi2: list[float]) -> Result:
    return degradation(kernels.replacement((sigma1, pi1), (sigma2, pi2)))


def lpp_relax(e1: list[float], e2: list[float]) -> Result:
    found = kernels.key_value((e1[0], e1[1]), (e2[0], e2[1]))
    return {
        **degradation(found),
        "mu": found.mu,
        "nu": found.nu,
        "ldp1": lpp_loss(*e1),
        "ldp2": lpp_loss(*e2),
    }


def simmons_relax(p1: float, piB1: float, p2: float, piB2: float) -> Result:  # noqa: N803
    return {
        **degradation(kernels.simmons((p1, piB1), (p2, piB2))),
        "ldp1": simmons_epsilon(p1, piB1),
        "ldp2": simmons_epsilon(p2, piB2),
    }


def warner_relax(p1: float, p2: float) -> Result:
    return {**degradation(kernels.warner(p1, p2)), "flip": kernels.warner_flip(p1, p2)}


def ns_to_rr(eps_alpha: float, eps_beta: float, K: int, eps2: float) -> Result:  # noqa: N803
    laws = noisy_sampling_paper.count_laws(eps_alpha, eps_beta, K)
    return {
        **degradation(kernels.to_response(*laws, eps2)),
        "eps_ns": noisy_sampling.sampling_epsilon(eps_alpha, eps_beta, K),
    }


def complement_to_grr(m: int, eps1: float, eps2: float) -> Result:
    return {
        **degradation(kernels.to_grr(kernels.complement_channel(eps1, m), eps2)),
        "eps2_needed": kernels.to_grr_sufficient(eps1, m),
    }


def subset_relax(m: int, k: int, eps1: float, eps2: float) -> Result:
    return {
        "theta1": kernels.subset_retention(eps1, m, k),
        "theta2": kernels.subset_retention(eps2, m, k),
        "r": kernels.subset_kept(eps1, eps2, m, k),
    }


def fig1ab(eps_alpha: float, eps_beta: float, Kmax: int) -> Result:  # noqa: N803
    curve = noisy_sampling_paper.sampling_curve(eps_alpha, eps_beta, Kmax)
    return {"eps_ns": curve.levels, "var_noisy_sampling": curve.sampling, "var_relaxation": curve.relaxation}


def fig1c(K: int) -> Result:  # noqa: N803
    levels = noisy_sampling_paper.linear_ladder(K)
    return {"eps": levels, "var": [moments.binary_variance(level, 1) for level in levels]}


FUNCTIONS: dict[str, Adapter] = {
    "relax_probs": relax_probs,
    "table_row": table_row,
    "binary_relax": binary_relax,
    "grr_kernel": grr_kernel,
    "sequence_prob": sequence_prob,
    "max_log_ratio": max_log_ratio,
    "eps_delta": lambda m, eps1, eps2: {"eps_delta": gradual_release.step_guarantee(eps1, eps2, m)},
    "bridge": bridge,
    "est_binary": est_binary,
    "est_grr": est_grr,
    "cov_grr_fixed": lambda pi, eps, n: {"cov": closed_forms.grr_covariance(pi, n, eps, population="fleet")},
    "cov_grr_iid": lambda pi, eps, n: {"cov": closed_forms.grr_covariance(pi, n, eps, population="sampling")},
    "var_binary_fixed": lambda eps, n: {"var": moments.binary_variance(eps, n)},
    "eps_ns": eps_ns,
    "ns_variances": ns_variances,
    "mean_est": mean_est,
    "mean_var": mean_var,
    "exp1_theory": exp1_theory,
    "exp2_theory": exp2_theory,
    "attack_errors": attack_errors,
    "bayes_error": bayes_error,
    "oue_relax": lambda eps1, eps2: degradation(kernels.oue(eps1, eps2)),
    "sue_relax": lambda eps1, eps2: degradation(kernels.sue(eps1, eps2)),
    "ue_bit_kernel": ue_bit_kernel,
    "urr_relax": urr_relax,
    "urr_relax_sets": urr_relax,
    "retrep_kernel": retrep_kernel,
    "lpp_relax": lpp_relax,
    "simmons_relax": simmons_relax,
    "warner_relax": warner_relax,
    "christofides3_relax": lambda p1, p2: degradation(kernels.cards(p1, p2)),
    "christofides3_ok": lambda p1, p2: {"ok": kernels.cards_possible(p1, p2)},
    "kfold_kernel": lambda k: {"K": kernels.repetition_kernel(k)},
    "ns_to_rr": ns_to_rr,
    "complement_to_grr": complement_to_grr,
    "subset_relax": subset_relax,
    "sue_to_oue_ok": lambda eps1, eps2: {"ok": kernels.sue_to_oue_possible(eps1, eps2)},
    "oue_to_sue_min": lambda eps1: {"eps2_min": kernels.oue_to_sue_minimum(eps1)},
    "value_changed_eps": lambda m, eps1, eps2: {"total_eps": gradual_release.changed_value_loss(eps1, eps2, m)},
    "redraw_z_eps": lambda eps1, eps2: {"max_log_ratio": gradual_release.redrawn_rounding_loss(eps1, eps2)},
    "fig1ab": fig1ab,
    "fig1c": fig1c,
}
