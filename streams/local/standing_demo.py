"""A hundred windows of the same people with fresh answers and with standing ones: error, cost, what a follower learns.

Somebody who follows a device knows which reports are its own, for example by its connection. For the comparison they
know also when its value changed, and guess the value of the last window from all answers since then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from estimators.estimates import Population
from estimators.estimation.registry import estimator_of
from estimators.exact.randomness import SeededBits
from estimators.mechanisms.registry import randomizer_of
from estimators.simulation.simulator import simulator_of
from estimators.tally import Tally
from producers.simulation.fleet import BlockWindow, Plan
from producers.simulation.scenarios import falling_shares, scenario_named
from producers.simulation.standing import PERIOD
from producers.survey.survey import Survey

WINDOWS: Final = 100
PEOPLE: Final = 1_000
GROUPS: Final = 8
"""Independent groups of people, so that the error of a mean over all windows can be told from chance."""


@dataclass(frozen=True)
class Way:
    """What came of one way to answer.

    window_error is the typical error of the share of the first value in one window, mean_error that of its mean over
    all windows; epsilon is what one person has spent on average; same_answer the part of people who gave the same
    answer in the last two windows, guessed the part whose last value a follower guesses.
    """

    way: str
    window_error: float
    mean_error: float
    epsilon: float
    same_answer: float
    guessed: float


class _Group(NamedTuple):
    errors: list[float]
    spent: float
    same: float
    guessed: float


def compared(survey: Survey, seed: int, *, windows: int = WINDOWS, groups: int = GROUPS) -> list[Way] | None:
    """Compare both ways on simulated people; None where answers are not values, which a guess needs."""
    answer = survey.mechanism.answer
    if answer.kind != "index" or answer.size != len(survey.mechanism.labels) or survey.mechanism.groups > 1:
        return None
    ways = []
    for way in ("fresh", "standing"):
        lives = [_lived(survey, seed + group, windows, fresh=way == "fresh") for group in range(groups)]
        errors = np.array([life.errors for life in lives])
        ways.append(
            Way(
                way,
                float(np.sqrt(np.mean(errors**2))),
                float(np.sqrt(np.mean(errors.mean(axis=1) ** 2))),
                float(np.mean([life.spent for life in lives])) * survey.mechanism.epsilons[-1],
                float(np.mean([life.same for life in lives])),
                float(np.mean([life.guessed for life in lives])),
            )
        )
    return ways


def _lived(survey: Survey, seed: int, windows: int, *, fresh: bool) -> _Group:
    mechanism, step_ms = survey.mechanism, survey.windows.step_ms
    standing = replace(survey, standing=True, withdrawable=False)
    plan = Plan(standing, PEOPLE, scenario_named("standing"), seed, falling_shares(len(mechanism.labels)), 0)
    population = cast(Population, survey.population)
    errors: list[float] = []
    answers: list[NDArray[np.int64]] = []
    held: list[list[str]] = []
    for number in range(windows):
        block = BlockWindow(plan, number * step_ms, 0)
        values = list(block.values)
        # The same people with the same values; fresh: each window has answers of its own.
        top = _fresh_answers(survey, values, seed, number) if fresh else block.answers[-1].astype(np.int64)
        tally = Tally.empty(mechanism.rungs, 1, mechanism.answer.cells)
        tally.counts[-1, 0], tally.users[-1, 0] = np.bincount(top, minlength=mechanism.answer.size), len(top)
        found = estimator_of(mechanism).estimate(tally, method="stratified", population=population, alpha=survey.alpha)
        numerators, denominators = simulator_of(mechanism).truth_parts(values)
        errors.append(float(found.value[0] - numerators[0] / denominators[0]))
        answers.append(top)
        held.append(values)
    chains = windows if fresh else np.mean([len(set(column)) for column in zip(*held, strict=True)])
    same = float((answers[-1] == answers[-2]).mean())
    return _Group(errors, float(chains), same, _guessed(mechanism.labels, answers, held))


def _fresh_answers(survey: Survey, values: list[str], seed: int, number: int) -> NDArray[np.int64]:
    randomizer = randomizer_of(survey.mechanism)
    bits = SeededBits(seed, "fresh", number)
    drawn = randomizer.draw(randomizer.encode(values, bits), bits)
    return np.asarray(drawn.answers[-1], dtype=np.int64)


def _guessed(labels: tuple[str, ...], answers: list[NDArray[np.int64]], held: list[list[str]]) -> float:
    """Return how often the commonest answer since the last change is the value of the last window."""
    right = 0
    for device, value in enumerate(held[-1]):
        since = next((back for back in range(1, len(held)) if held[-1 - back][device] != value), len(held))
        seen = np.bincount([column[device] for column in answers[-since:]], minlength=len(labels))
        right += labels[int(seen.argmax())] == value
    return right / len(held[-1])


def lines_of(ways: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the comparison, as data, as lines of text."""
    people = GROUPS * PEOPLE
    head = f"{WINDOWS} windows, {people:,} people who keep a value for {PERIOD} windows and answer it"
    return [head, *map(_line, ways)]


def _line(way: Mapping[str, Any]) -> str:
    return (
        f"  {way['way']:9} error of a window {way['window_error']:.4f}, of the mean of all {way['mean_error']:.4f}; "
        f"epsilon {way['epsilon']:.1f} a person; a follower guesses {100 * way['guessed']:.0f} % of the values and "
        f"sees the same answer twice in a row in {100 * way['same_answer']:.0f} %"
    )
