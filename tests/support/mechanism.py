"""A mechanism with all its sides in one object, for tests that follow an answer from a value to an estimate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.estimates import Estimates, Method, Population
from estimators.estimation.estimator import Estimator
from estimators.estimation.registry import estimator_of
from estimators.exact.randomness import Bits
from estimators.intervals.always_valid import YesNo
from estimators.mechanism import Answer, Drawn, Randomizer, Specification
from estimators.mechanisms.registry import randomizer_of, specification_class
from estimators.simulation.simulator import Simulator, simulator_of
from estimators.tally import Tally

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Mechanism:
    """What a device, a server and a simulation each see of one specification."""

    specification: Specification
    randomizer: Randomizer[Any]
    estimator: Estimator[Any]
    simulator: Simulator[Any]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.specification, name)

    @property
    def answer(self) -> Answer:
        return self.specification.answer

    @property
    def labels(self) -> tuple[str, ...]:
        return self.specification.labels

    @property
    def rungs(self) -> int:
        return self.specification.rungs

    def encode(self, values: Sequence[Any], bits: Bits) -> NDArray[Any]:
        return self.randomizer.encode(values, bits)

    def draw(self, inputs: NDArray[Any], bits: Bits) -> Drawn:
        return self.randomizer.draw(inputs, bits)

    def estimate(
        self, tally: Tally, *, method: Method = "pooled", population: Population = "fleet", alpha: float = 0.05
    ) -> Estimates:
        return self.estimator.estimate(tally, method=method, population=population, alpha=alpha)

    def yes_no(self, tally: Tally) -> YesNo | None:
        return self.estimator.yes_no(tally)

    def always_valid(self, tally: Tally, *, alpha: float = 0.05) -> tuple[Floats, Floats] | None:
        return self.estimator.always_valid(tally, alpha=alpha)

    def truth(self, values: Sequence[Any]) -> Floats:
        return self.simulator.truth(values)

    def simulate(self, picks: NDArray[np.int64], words: NDArray[np.uint64]) -> Sequence[Any]:
        return self.simulator.simulate(picks, words)


def whole(
    specification: Specification,
    *,
    randomizer: Randomizer[Any] | None = None,
    estimator: Estimator[Any] | None = None,
) -> Mechanism:
    """Return all sides of a specification, some of them replaced."""
    return Mechanism(
        specification,
        randomizer or randomizer_of(specification),
        estimator or estimator_of(specification),
        simulator_of(specification),
    )


def build(name: str, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> Mechanism:
    """Return the mechanism behind a word of survey files."""
    return whole(specification_class(name).build(values, ladder, parameters))
