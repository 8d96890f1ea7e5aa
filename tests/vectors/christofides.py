"""Adapters for Sun, Yan & Zhou: Warner, Simmons, Christofides and dealt decks."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from estimators.channels import decks
from estimators.papers import decks as decks_paper
from estimators.papers import yes_no
from tests.vectors import Adapter

Result = dict[str, Any]


def warner_p_from_eps(eps: float) -> Result:
    p = yes_no.warner_probability(eps)
    return {"p": p, "eps_check": yes_no.warner_epsilon(p)}


def warner_channel(p: float) -> Result:
    return {"P": yes_no.warner_rows(p), "eps": yes_no.warner_epsilon(p)}


def warner_estimate(N: int, N_yes: int, p: float) -> Result:  # noqa: N803  # names of the vectors
    return {
        "pi_hat": yes_no.warner_share(N_yes, N, p),
        "var_fixed_population": yes_no.warner_variance(N, p),
        "var_superpopulation_plugin_unbiased": yes_no.warner_sampling_variance_estimate(N_yes, N, p),
    }


def warner_variance(pi: float, n: int, N_pop: int, p: float) -> Result:  # noqa: N803
    found = yes_no.sampling_variances(yes_no.warner_variance(n, p), pi, n, N_pop)
    return {
        "fixed_population": found.fixed_population,
        "srswor": found.without_replacement,
        "with_replacement": found.with_replacement,
    }


def simmons_variance(pi: float, p: float, pi_B: float, N: int) -> Result:  # noqa: N803
    fixed = yes_no.simmons_variance(pi, N, p, pi_B)
    return {
        "channel": yes_no.simmons_rows(p, pi_B),
        "eps": yes_no.simmons_epsilon(p, pi_B),
        "var_fixed_A_random_B": fixed,
        "var_with_replacement": yes_no.sampling_variances(fixed, pi, N, N).with_replacement,
        "var_fixed_A_fixed_B": yes_no.simmons_attribute_variance(pi, N, p, pi_B),
    }


def simmons_estimate(N: int, N_yes: int, p: float, pi_B: float) -> Result:  # noqa: N803
    return {"pi_hat": yes_no.simmons_share(N_yes, N, p, pi_B)}


def simmons_p_from_eps(eps: float, pi_B: float, pi: float, N: int) -> Result:  # noqa: N803
    p = yes_no.simmons_probability(eps, pi_B)
    return {"p": p, "var": yes_no.simmons_variance(pi, N, p, pi_B)}


def christofides_params(p: list[float], N: int) -> Result:  # noqa: N803
    cards = decks.describe_cards(p)
    return {
        "EY": cards.mean,
        "VarY": cards.variance,
        "Delta": cards.delta,
        "eps": cards.epsilon,
        "channel": cards.rows,
        "var_fixed": yes_no.christofides_variance(N, cards),
    }


def christofides_estimate(p: list[float], answer_counts: list[int]) -> Result:
    return {
        "mean_answer": yes_no.mean_answer(answer_counts),
        "pi_hat": yes_no.christofides_share(answer_counts, decks.describe_cards(p)),
    }


def christofides3_p_from_eps(eps: float, p2: float) -> Result:
    return {"p": yes_no.three_cards(eps, p2), "var_MC_times_N": yes_no.three_card_variance(1, eps, p2)}


def sun_variances(pi: float, N: int, eps: float, p2: float) -> Result:  # noqa: N803
    return {
        "var_warner_simmons": yes_no.best_warner_variance(N, eps),
        "var_mod_christofides": yes_no.three_card_variance(N, eps, p2),
        "var_improved": yes_no.dealt_card_variance(pi, N, eps, p2),
        "ratio_IC_MC": yes_no.dealt_to_drawn_ratio(pi, N),
        "diff_IC_MW": yes_no.dealt_minus_warner(pi, N, eps, p2),
    }


def ic_vs_warner_roots(N: int, eps: float, p2: float) -> Result:  # noqa: N803
    found = yes_no.crossings(N, eps, p2)
    return {
        "pi_A1": found.warner_low,
        "pi_A2": found.warner_high,
        "length": found.warner_length,
        "MC_lower": found.drawn_low,
        "MC_upper": found.drawn_high,
    }


def min_sample_size(pi: float, var: float, eps: float, p2: float) -> Result:
    found = yes_no.sample_sizes(pi, var, eps, p2)
    return {"warner_simmons": found.warner, "mod_christofides": found.drawn_cards, "improved": found.dealt_cards}


def ic_mc_ratio(pi: float, N: int) -> Result:  # noqa: N803
    return {"ratio": yes_no.dealt_to_drawn_ratio(pi, N)}


def improved_christofides_variance(deck: list[int], N: int, ones: int) -> Result:  # noqa: N803
    dealt = decks.Deck(tuple(deck))
    return {
        "EY": dealt.cards.mean,
        "VarY": dealt.cards.variance,
        "Delta": dealt.cards.delta,
        "var_improved": dealt.variance(ones / N, N),
        "var_with_replacement": yes_no.christofides_variance(N, dealt.cards),
    }


def bigdeck_variance(deck: list[int], N: int, ones: int) -> Result:  # noqa: N803
    large = decks.Deck(tuple(deck))
    return {"M": large.size, "var": large.variance(ones / N, N)}


def improved_christofides_estimate(deck: list[int], answer_counts: list[int]) -> Result:
    dealt = decks.Deck(tuple(deck))
    return {"pi_hat": dealt.share(answer_counts), "ones_hat": dealt.ones(answer_counts)}


def make_deck(N: int, eps: float, p2: float) -> Result:  # noqa: N803
    plan = decks.plan_deck(N, eps, middle=p2)
    return {
        "deck": plan.counts,
        "true_eps": plan.cards.epsilon,
        "feasible": plan.feasible,
        "EY": plan.cards.mean,
        "Delta": plan.cards.delta,
    }


def ic_privacy_full_knowledge(deck: list[int]) -> Result:
    dealt = decks.Deck(tuple(deck))
    return {
        "eps_single_answer": dealt.single_answer_epsilon,
        "eps_full_knowledge": dealt.informed_epsilon(dealt.size),
        "delta_full_knowledge": dealt.informed_delta,
    }


def ic_eps_collusion(deck: list[int], m: int) -> Result:
    return {"eps": decks.Deck(tuple(deck)).collusion_epsilon(m)}


def bigdeck_eps(deck: list[int], N: int) -> Result:  # noqa: N803
    return {"eps": decks.Deck(tuple(deck)).informed_epsilon(N)}


def ic_aggregate_delta(deck: list[int], T: int) -> Result:  # noqa: N803
    dealt = decks.Deck(tuple(deck))
    return {
        "delta_eps0": decks_paper.aggregate_delta(dealt, T),
        "delta_ln2_TtoT1": decks_paper.aggregate_delta(dealt, T, Fraction(2)),
        "pmf_shift_T": {shift: float(share) for shift, share in decks_paper.shift_law(dealt, T).items()},
    }


def ic_uninformed_loglr(deck: list[int], o1: int, o3: int, target_answer: int, pi: float) -> Result:
    return {"log_lr": decks_paper.uninformed_log_ratio(decks.Deck(tuple(deck)), o1, o3, target_answer, pi)}


FUNCTIONS: dict[str, Adapter] = {
    adapter.__name__: adapter
    for adapter in (
        warner_p_from_eps,
        warner_channel,
        warner_estimate,
        warner_variance,
        simmons_variance,
        simmons_estimate,
        simmons_p_from_eps,
        christofides_params,
        christofides_estimate,
        christofides3_p_from_eps,
        sun_variances,
        ic_vs_warner_roots,
        min_sample_size,
        ic_mc_ratio,
        improved_christofides_variance,
        bigdeck_variance,
        improved_christofides_estimate,
        make_deck,
        ic_privacy_full_knowledge,
        ic_eps_collusion,
        bigdeck_eps,
        ic_aggregate_delta,
        ic_uninformed_loglr,
    )
}
