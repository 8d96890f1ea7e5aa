"""The contract of the server side of a mechanism."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, cast

import numpy as np

from estimators.estimates import Estimates, Floats, Method, Population, View
from estimators.inference.summed_shares import SummedBands, summed_bands
from estimators.inference.views import views_of
from estimators.intervals.always_valid import YesNo, confidence_interval
from estimators.mechanism import Attacker, S
from estimators.tally import Tally


class Estimator(ABC, Generic[S]):
    """Turns tallies into estimates of the quantities that the specification names."""

    def __init__(self, specification: S) -> None:
        self.specification = specification

    @abstractmethod
    def estimate(
        self, tally: Tally, *, method: Method = "pooled", population: Population = "fleet", alpha: float = 0.05
    ) -> Estimates:
        """Turn a tally into estimates. O(rungs x cells), independent of the number of users."""

    def yes_no(self, tally: Tally) -> YesNo | None:  # noqa: ARG002  # for those that can
        """See every label as a yes/no question of its own; None where answers do not allow it."""
        return None

    def sums(self, tally: Tally, sums: Sequence[Sequence[int]], found: Estimates) -> SummedBands:
        """Return sums of shares of an estimate of this tally, with bands; each is given by the places of its labels.

        For mechanisms whose shares add up and whose labels are yes/no questions.
        """
        questions = self.yes_no(tally)
        if questions is None or not self.specification.adds_up:
            raise TypeError(f"shares of {self.specification.name} have no bands when they are added up")
        return summed_bands(
            questions,
            sums,
            found.value,
            one_symbol=self.specification.answer.kind == "index",
            method=cast(Method, found.method),
            population=found.population,
            alpha=found.alpha,
        )

    def views(self, tally: Tally, found: Estimates) -> tuple[View, ...]:
        """Return the views of an estimate of this tally; none where shares need not sum to one."""
        return views_of(found, self.yes_no(tally)) if self.specification.exclusive else ()

    def attackers(self) -> tuple[Attacker, ...]:
        """Return what each kind of attacker can learn, where the guarantee is not one number for all of them."""
        return ()

    def answer_law(self, population: Population) -> Population:
        """Return which law the yes/no answers follow when the shares of `population` are meant.

        `sampling` in any case where a device rounds its value at random before it answers: that scatters as drawing
        people does, at most.
        """
        return population

    def always_valid(self, tally: Tally, *, alpha: float = 0.05) -> tuple[Floats, Floats] | None:
        """Return bounds per label that hold at all looks of a window's life together with probability 1 - alpha.

        For surveys whose rungs do not depend on values. None where the mechanism does not offer them.
        """
        questions = self.yes_no(tally)
        if questions is None:
            return None
        lower, upper = confidence_interval(questions, alpha)
        low = np.array([quantity.low for quantity in self.specification.quantities])
        width = np.array([quantity.high for quantity in self.specification.quantities]) - low
        return low + width * lower, low + width * upper
