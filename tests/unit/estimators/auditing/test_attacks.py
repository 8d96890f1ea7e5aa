"""Attacks on chains: their success is that of the closed forms, and broken chains are found out."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from estimators.auditing.declared import DeclaredLaw
from estimators.auditing.examine import Examination, examine
from estimators.auditing.guesses import ATTACKS, guess
from estimators.auditing.transcripts import Transcripts
from estimators.auditing.views import declared_law
from estimators.mechanisms.grr import GRR
from estimators.papers.attacks import bayes_error, frequency_error, last_answer_error
from tests.unit.estimators.auditing.chains import sound_chains

LADDER = [0.5, 1.0, 1.5]
GRR3 = GRR(["a", "b", "c"], LADDER)
LAW = declared_law(GRR3)
SOUND = sound_chains(GRR3, LAW, 6_400)


def judged(recorded: Transcripts, law: DeclaredLaw = LAW, charged: tuple[float, ...] = GRR3.epsilons) -> Examination:
    return examine(law, recorded, charged, 1e-6)


def test_attacks_are_right_as_often_as_the_closed_forms_say() -> None:
    """Six standard deviations of 6,400 guesses: a false alarm in 5e8 runs, and the seed is fixed."""
    even = np.full(3, 1 / 3)
    errors = {
        "LO": last_answer_error(1.5, 3),
        "MLE": last_answer_error(1.5, 3),
        "HF": frequency_error(LADDER, 3),
        "WHF": frequency_error(LADDER, 3, LADDER),
        "Bayes": bayes_error(even.tolist(), 1.5),
    }
    found = {guess.attack: guess for guess in judged(SOUND).guesses}
    assert set(found) == set(ATTACKS)
    for attack, error in errors.items():
        deviation = math.sqrt(error * (1 - error) / len(SOUND))
        assert found[attack].share == pytest.approx(1 - error, abs=6 * deviation), attack
        assert found[attack].lower < 1 - error
        assert not found[attack].contradicts


def test_a_prior_beats_the_last_answer() -> None:
    logs = [np.log(np.array([[0.4, 0.6]]))]
    prior = np.array([0.9, 0.1])
    assert guess("LO", logs, [1.0], prior).tolist() == [1]
    assert guess("Bayes", logs, [1.0], prior).tolist() == [0]


def test_levels_drawn_independently_are_found_out() -> None:
    independent = np.stack([_redrawn(rung, seed=3 + rung) for rung in range(3)])
    found = judged(replace(SOUND, answers=independent))
    chain = next(row for row in found.rows if row.rungs == (0, 1, 2))
    assert chain.empirical.lower > chain.charged, "three independent answers cost the sum of their levels"
    assert not next(row for row in found.rows if row.rungs == (2,)).contradictions(), "each level alone is sound"
    assert {family for family, _ in found.failed()} == {"sharpening"}


def _redrawn(rung: int, seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Return answers of one level that have nothing to do with the other levels."""
    draws = np.random.default_rng(seed).random(len(SOUND))
    edges = np.cumsum(LAW.families[0].channels[rung], axis=1)[SOUND.truths]
    return np.asarray((draws[:, None] > edges).sum(axis=1)[:, None], dtype=np.uint8)


def test_a_level_without_noise_is_found_out_by_every_kind_of_attack() -> None:
    told = SOUND.answers.copy()
    told[2, :, 0] = SOUND.truths
    found = judged(replace(SOUND, answers=told))
    assert any("an attack shows at least" in sentence for sentence in found.contradictions())
    assert any(sentence.startswith("LO guesses") for sentence in found.contradictions())
    assert {"levels", "sharpening"} <= {family for family, _ in found.failed()}


def test_equal_noise_is_found_out_where_it_is_shared() -> None:
    twins = SOUND.answers.copy()
    even = SOUND.processes % 2 == 0
    twins[:, ~even] = twins[:, even]
    # Process 1 repeats process 0, process 3 process 2: the same slots and windows, in the same order.
    failed = judged(replace(SOUND, answers=twins)).failed()
    assert {test.name.split(",")[0] for _, test in failed} == {"the same value in two processes"}


def test_tokens_that_repeat_a_part_are_found_out() -> None:
    tokens = SOUND.tokens.copy()
    tokens[:, 3] = SOUND.slots
    names = {test.name for family, test in judged(replace(SOUND, tokens=tokens)).failed() if family == "linkage"}
    assert names == {"tokens are random", "tokens of one device differ"}


def test_a_ledger_that_charges_less_is_found_out() -> None:
    found = judged(SOUND, charged=(0.5, 1.0, 1.4))
    assert [sentence for sentence in found.contradictions() if "the ledger charges 1.4" in sentence]


def test_a_survey_that_declares_less_is_found_out() -> None:
    found = judged(SOUND, law=replace(LAW, levels=(0.5, 1.0, 0.4)))
    sentences = " ".join(found.contradictions())
    assert "the integers give epsilon 1.5, the survey declares 0.4" in sentences
    assert "level 2: an attack shows at least" in sentences
