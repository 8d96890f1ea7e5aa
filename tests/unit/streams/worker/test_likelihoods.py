"""The full likelihood of unary reports: asked for, computed by one worker, read with its progress."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tomli_w

from estimators.exact.randomness import SeededBits
from estimators.inference.em_bits import reports_mle
from estimators.mechanisms.registry import randomizer_of
from producers.survey.survey import Survey, parse_survey
from streams.windows.likelihood import ABANDONED_MS, MOST_ASKED, Likelihood, Likelihoods, offers_likelihood
from streams.worker.likelihoods import LikelihoodMaker
from tests.support.applier import Bench, batches_of
from tests.support.examples import EXAMPLES, survey_file
from tests.support.reports import NOW_MS, WINDOW, Report, SurveyDict, token_in
from tests.support.surveys import survey_text

DEVICES = 600
VALUES = 'values = ["red", "green", "blue", "black", "white", "grey"]'
SECRET = 'name = "urap"\nsensitive = ["blue", "grey"]'


def unary(mechanism: str = 'name = "sue"') -> Survey:
    return parse_survey(
        survey_text(values=VALUES, opens='opens = ["0s", "4s", "8s"]').replace('name = "grr"', mechanism), "test.toml"
    )


def counted(known: Survey) -> tuple[Bench, list[Report]]:
    """Let devices answer on mixed rungs, through the applier."""
    bench = Bench(surveys=[known])
    bits, labels = SeededBits(5), known.mechanism.labels
    rng = np.random.default_rng(5)
    values = [labels[i] for i in rng.choice(len(labels), size=DEVICES, p=[0.4, 0.3, 0.1, 0.1, 0.1, 0.0])]
    randomizer = randomizer_of(known.mechanism)
    drawn = randomizer.draw(randomizer.encode(values, bits), bits)
    reports = [
        Report(token_in(i % known.shards, i, known), i % 3, drawn.answers[i % 3][i].tobytes()) for i in range(DEVICES)
    ]
    bench.process(*batches_of(known, reports))
    assert bench.letters == []
    return bench, reports


def maker(bench: Bench, known: Survey, name: str = "one") -> LikelihoodMaker:
    return LikelihoodMaker(bench.store, SurveyDict(known), name, clock=bench.clock)


@pytest.mark.parametrize("mechanism", ['name = "sue"', 'name = "oue"', SECRET])
def test_what_is_asked_for_is_the_maximum_over_all_reports_in_the_order_of_the_values(mechanism: str) -> None:
    known = unary(mechanism)
    bench, reports = counted(known)
    likelihoods = Likelihoods(bench.store.states)
    assert likelihoods.read(known, WINDOW) is None
    assert likelihoods.ask(known, WINDOW, DEVICES, NOW_MS).state == "asked"
    assert maker(bench, known).look() == 1
    found = likelihoods.read(known, WINDOW)
    assert found is not None
    assert (found.state, found.users, found.progress) == ("done", DEVICES, 1.0)
    one_hot = known.mechanism.one_hot
    assert one_hot is not None
    answers = np.array([list(one.answer) for one in reports], dtype=np.uint8)
    rungs = np.array([one.rung for one in reports])
    alone = reports_mle(one_hot.channels, answers, rungs, sensitive=one_hot.shielded)
    assert alone is not None
    np.testing.assert_allclose(found.shares, alone.shares[one_hot.places], atol=1e-6)
    assert sum(found.shares) == pytest.approx(1.0)
    assert found.shares[0] > found.shares[2], "red is far more frequent than blue"
    assert likelihoods.asked(known) == []
    assert likelihoods.ask(known, WINDOW, DEVICES, NOW_MS) == found, "it is not computed twice"
    assert likelihoods.ask(known, WINDOW, DEVICES + 1, NOW_MS).state == "asked", "but again for other reports"


def test_only_one_worker_computes_a_window_and_another_takes_over_from_one_that_is_gone() -> None:
    known = unary()
    bench, _ = counted(known)
    likelihoods = Likelihoods(bench.store.states)
    likelihoods.ask(known, WINDOW, DEVICES, NOW_MS)
    assert likelihoods.take(known, WINDOW, "gone", NOW_MS)
    assert likelihoods.tell(known, WINDOW, Likelihood("computing", NOW_MS, "gone", 0.4))
    assert maker(bench, known).look() == 0
    told = likelihoods.read(known, WINDOW)
    assert told is not None
    assert (told.state, told.progress) == ("computing", 0.4)
    bench.clock.sleep((ABANDONED_MS + 1) / 1_000)
    assert maker(bench, known).look() == 1
    assert not likelihoods.tell(known, WINDOW, Likelihood("done", NOW_MS, "gone", 1.0, 1, [1.0])), "it comes too late"


def test_a_window_without_reports_says_why_and_a_worker_that_stops_leaves_it_to_others() -> None:
    known = unary()
    bench = Bench(surveys=[known])
    likelihoods = Likelihoods(bench.store.states)
    likelihoods.ask(known, WINDOW, 0, NOW_MS)
    maker(bench, known).look()
    found = likelihoods.read(known, WINDOW)
    assert found is not None
    assert (found.state, found.reason) == ("failed", "the window has no reports")
    bench, _ = counted(known)
    likelihoods = Likelihoods(bench.store.states)
    likelihoods.ask(known, WINDOW, DEVICES, NOW_MS)
    stop = threading.Event()
    stop.set()
    assert maker(bench, known).look(stop) == 0
    assert likelihoods.asked(known) == [WINDOW]


def test_nobody_can_ask_for_endless_work() -> None:
    known = unary()
    bench = Bench(surveys=[known])
    likelihoods = Likelihoods(bench.store.states)
    for age in range(MOST_ASKED):
        assert likelihoods.ask(known, WINDOW - age * 60_000, 1, NOW_MS).state == "asked"
    assert "waiting already" in likelihoods.ask(known, WINDOW - MOST_ASKED * 60_000, 1, NOW_MS).reason


def test_unary_mechanisms_offer_it_and_no_others() -> None:
    surveys = [parse_survey(tomli_w.dumps(survey_file(example)), "example.toml") for example in EXAMPLES]
    assert {known.name for known in surveys if offers_likelihood(known)} == {"sue", "oue", "urap"}
