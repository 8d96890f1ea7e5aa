"""Noisy samples as answers of a survey, and clients that go on from samples that they have sent: exact laws."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from estimators import migrate
from estimators.channels.chain import LadderError
from estimators.channels.forward import forward_rows
from estimators.channels.noisy_sampling import sampling_epsilon
from estimators.channels.sampled import Migration, count_laws, fewer_samples
from estimators.exact.randomness import SeededBits
from estimators.exact.rounding import exp_decimal
from estimators.mechanisms.registry import build_sampled
from estimators.papers.noisy_sampling import weighted_variance
from producers.survey.survey import SurveyError, parse_survey
from tests.support.checks import (
    check_chain_law,
    check_cost,
    check_draws,
    check_estimates,
    check_integers,
    check_inversion,
    fractions_of,
)
from tests.support.mechanism import Mechanism, whole
from tests.support.stats import assert_law
from tests.support.surveys import survey_text

PERMANENT, SAMPLE = 1.0, 0.5
CURVE = [sampling_epsilon(PERMANENT, SAMPLE, k) for k in range(1, 4)]


def sampled(*later: float) -> Mechanism:
    ladder = [*CURVE, *later]
    return whole(build_sampled("warner", ["no", "yes"], ladder, permanent=PERMANENT, sample=SAMPLE, samples=3))


@pytest.mark.parametrize("later", [(), (1.0,), (0.61, 1.0, 4.0)])
def test_samples_and_sharper_answers_are_one_chain_by_enumeration(later: tuple[float, ...]) -> None:
    mechanism = sampled(*later)
    check_cost(mechanism)
    check_integers(mechanism.chain)
    check_chain_law(mechanism.chain)
    for channel in mechanism.chain.channels:
        check_inversion(channel)
    check_draws(mechanism, random_in_draw=True)
    check_estimates(mechanism)


def test_the_samples_are_those_of_the_paper() -> None:
    """Each rung has the law of its number of ones; one sample less is one left out, whichever."""
    kept = told = Fraction(3, 4)
    for samples in (2, 3, 5):
        more, fewer = count_laws(kept, told, samples), count_laws(kept, told, samples - 1)
        kernel = fewer_samples(samples)
        for row, wanted in zip(more, fewer, strict=True):
            found = [sum(row[t] * kernel[t][s] for t in range(samples + 1)) for s in range(samples)]
            assert found == list(wanted)
    # The best weights per number of ones, which the paper's comparison has, are no worse than the linear inverse.
    spread = sampled().chain.channels[2].variances([0.5, 0.5], 1_000)[1]
    assert spread >= weighted_variance(PERMANENT, SAMPLE, 3, 1_000, 0.5) * (1 - 1e-9)


@pytest.mark.parametrize(("samples", "upper"), [(1, 0.3), (3, 0.61), (3, 1.0), (10, 4.0)])
def test_a_client_that_sent_its_samples_pays_for_the_new_answer_alone(samples: int, upper: float) -> None:
    """Over all numbers of ones and both new answers, in exact fractions."""
    step = Migration.for_levels(PERMANENT, SAMPLE, samples, upper)
    low, high = fractions_of(step.lower), fractions_of(step.upper)
    rows = forward_rows(step.lower, step.upper, step._step.kernel)
    bound = Fraction(exp_decimal(upper))
    for told in (0, 1):
        joint = [[low[x][ones] * (rows[x][ones] or (0, 0))[told] for ones in range(samples + 1)] for x in (0, 1)]
        for x in (0, 1):
            assert sum(joint[x]) == high[x][told], "the new answer is one of randomized response at its level"
        for zero, one in zip(*joint, strict=True):
            assert zero <= bound * one
            assert one <= bound * zero


def test_migrated_bits_follow_their_law() -> None:
    step = Migration.for_levels(PERMANENT, SAMPLE, 3, 2.0)
    rows = forward_rows(step.lower, step.upper, step._step.kernel)
    for value in (0, 1):
        for ones in range(4):
            drawn = migrate(
                np.full(100_000, value),
                np.full(100_000, ones),
                3,
                permanent=PERMANENT,
                sample=SAMPLE,
                upper=2.0,
                bits=SeededBits(value, ones),
            )
            law = rows[value][ones]
            assert law is not None
            assert_law(np.bincount(drawn, minlength=2), [float(chance) for chance in law])


def test_without_given_randomness_the_secure_source_is_used() -> None:
    first, second = (migrate([1] * 500, [1] * 500, 2, permanent=1.0, sample=0.5, upper=0.6) for _ in range(2))
    assert (first != second).any()


def test_an_answer_that_costs_less_than_the_samples_is_refused() -> None:
    with pytest.raises(LadderError, match="choose a sharper level"):
        migrate([1], [3], 3, permanent=PERMANENT, sample=SAMPLE, upper=0.6)
    with pytest.raises(ValueError, match="1 to 32 samples; got 0"):
        migrate([1], [0], 0, permanent=PERMANENT, sample=SAMPLE, upper=1.0)
    with pytest.raises(ValueError, match="exchange 0 and 1"):
        Migration.for_chances(Fraction(1, 3), Fraction(3, 4), 2, 1.0)


NOISY = survey_text(
    values='values = ["no", "yes"]',
    kind='kind = "noisy_sampling"\nepsilon_permanent = 1.0\nepsilon_sample = 0.5\nrounds = 3\nrelax = false',
    ladder="then = [1.0, 2.0]",
    opens='every = "5s"',
).replace('name = "grr"', 'name = "warner"')


def test_a_survey_selects_the_baseline_and_goes_on_after_it() -> None:
    known = parse_survey(NOISY, "test.toml")
    assert known.mechanism.ladder == pytest.approx((*CURVE, 1.0, 2.0))
    assert "noisy samples of a permanent answer" in known.mechanism.warnings()[0]
    assert known.mechanism.answer.size == 4
    relaxed = parse_survey(NOISY.replace("relax = false\n", ""), "test.toml")
    assert relaxed.mechanism.ladder == known.mechanism.ladder
    assert relaxed.id != known.id


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('name = "warner"', 'name = "simmons"', "release.relax"),
        ('name = "warner"', 'name = "warner"\ncoin = 0.5', "mechanism.coin"),
        ("then = [1.0, 2.0]", "then = [0.5]", "release.then[0]"),
        ("then = [1.0, 2.0]", "then = [1.0, 1.0]", "release.then[1]"),
        ("rounds = 3", "rounds = 33", "release.rounds"),
    ],
)
def test_a_baseline_that_makes_no_sense_is_refused(old: str, new: str, field: str) -> None:
    with pytest.raises(SurveyError) as refused:
        parse_survey(NOISY.replace(old, new), "test.toml")
    assert refused.value.field == field
