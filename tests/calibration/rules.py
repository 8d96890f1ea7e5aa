"""Alert rules of every mechanism that may have them, as a worker evaluates them: estimate, then `alert_bounds`.

Mechanisms are found in the registry by what they promise (`Quantity.always_valid`). A survey gets a rule on either side
of the truth. Devices arrive at every look, encode their values and draw all their answers with the mechanism's own
randomizer, and climb as they age. Under `any` every second kind of people stays on the lowest rung; under `independent`
the rung follows from the age alone. Of several values that the channel treats differently another one is watched in
every window, so that windows are independent trials.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal
from zlib import crc32

import numpy as np
import tomli_w

from estimators.estimates import Population
from estimators.exact.randomness import SeededBits
from estimators.intervals.always_valid import Side
from estimators.mechanism import Drawn
from estimators.mechanisms.mean import Mean
from estimators.mechanisms.registry import names
from estimators.simulation.tallies import tally_of
from estimators.tally import Tally
from producers.survey.survey import Survey, parse_survey
from streams.windows.alert_bounds import alert_bounds
from streams.windows.window_record import estimate
from tests.calibration.cells import whole_numbers
from tests.calibration.worlds import People, World, arguments, example_of, ladders_of, populations, possible, sizes_of
from tests.support.clock import ManualClock
from tests.support.examples import survey_file
from tests.support.memory_store import MemoryStore
from tests.support.surveys import WEEK

SIDES: tuple[Side, ...] = ("above", "below")
Assumption = Literal["any", "independent"]
ASSUMPTIONS: tuple[Assumption, ...] = ("any", "independent")

ALPHA = 0.01
"""Error rate of each rule."""
LOOKS = {"any": 8, "independent": 6}
ARRIVALS, CLIMB = 300, 2
"""Devices that arrive at each look, and looks until a device climbs a rung."""
PRECISE = (5.0, 8.0)
"""Levels whose answers hardly lie, where rungs lean: what scatters beside the noise of answers is then most of it."""
PARTS = {"any": 1, "independent": 2}
"""One window of a population for so many that are asked for: the bound of the likelihood is found by bisection."""


@dataclass(frozen=True)
class Rules:
    """The rules of one mechanism under one assumption about rungs and one population model."""

    mechanism: str
    assumption: Assumption
    population: Population

    @cached_property
    def world(self) -> World:
        """The mechanism with people of all kinds, some more common than others; numbers inside their range."""
        example = example_of(self.mechanism)
        size = max(size for size in sizes_of(example) if size <= 5)
        precise = self.assumption == "any" and possible(example, size, PRECISE)
        ladder = PRECISE if precise else ladders_of(example, size)[0]
        specification = example.build(**arguments(example, size, ladder)).specification
        values = populations(specification)[0].values
        if isinstance(specification, Mean):
            width = specification.high - specification.low
            values = (specification.low + 0.3 * width, specification.low + 0.7 * width)
        weights = whole_numbers(np.arange(float(len(values)), 0.0, -1.0), ARRIVALS) / ARRIVALS
        return World(self.mechanism, ladder, size, People("rules", values, tuple(weights.tolist())))

    def survey(self, place: int) -> Survey:
        """Return a survey with rules on both sides of the true share, or mean, of one label."""
        world, example = self.world, example_of(self.mechanism)
        file = survey_file(replace(example, **arguments(example, world.size, world.ladder)))
        truth = float(world.truth(np.array(world.people.weights))[place])
        file["estimate"] = {"rungs": self.assumption, "population": self.population}
        file["alert"] = [
            {"value": world.mechanism.labels[place], side: truth, "alpha": ALPHA * len(SIDES)} for side in SIDES
        ]
        return parse_survey(tomli_w.dumps(file), self.mechanism)

    @cached_property
    def surveys(self) -> tuple[Survey, ...]:
        """One survey for each kind of label that the channel treats differently."""
        mechanism = self.world.mechanism
        questions = mechanism.yes_no(Tally.empty(mechanism.rungs, 1, mechanism.answer.cells))
        assert questions is not None
        laws = np.round(np.concatenate([questions.truth, questions.lie]), 12)
        return tuple(self.survey(int(place)) for place in np.sort(np.unique(laws, axis=1, return_index=True)[1]))

    def fired(self, seed: int, windows: int) -> dict[Side, int]:
        """Return in how many windows a rule of either side fired at any look, although the truth is its threshold."""
        fired: dict[Side, int] = dict.fromkeys(SIDES, 0)
        for window in range(windows):
            survey, store = self.surveys[window % len(self.surveys)], MemoryStore(ManualClock(WEEK))
            firing = set()
            for tally in self._looks(np.random.default_rng([seed, crc32(repr(self).encode()), window])):
                # Only an estimate that is not stratified may turn to another method, as the answers have it.
                method = survey.method if survey.method == "stratified" else estimate(survey, tally).method
                bounds = alert_bounds(survey, WEEK, tally, method, store.states)
                assert all(bound.bound is not None for bound in bounds), f"{self}: a rule without a bound is silent"
                firing |= {bound.side for bound in bounds if bound.firing}
            for side in SIDES:
                fired[side] += side in firing
        return fired

    def _looks(self, rng: np.random.Generator) -> Iterator[Tally]:
        """Yield the tally at every look."""
        mechanism, people, looks = self.world.mechanism, self.world.people, LOOKS[self.assumption]
        shares = np.array(people.weights)
        # The same people at every look, so that the share of the devices present is the threshold at every look.
        fleet = np.tile(whole_numbers(shares, ARRIVALS), (looks, 1))
        arriving = fleet if self.population == "fleet" else rng.multinomial(ARRIVALS, shares, size=looks)
        kinds = np.concatenate([np.repeat(np.arange(len(shares)), row) for row in arriving])
        bits = SeededBits(int(rng.integers(1 << 62)), "rules")
        drawn = mechanism.draw(mechanism.encode([people.values[kind] for kind in kinds], bits), bits)
        arrival = np.repeat(np.arange(looks), ARRIVALS)
        highest = np.full(len(kinds), mechanism.rungs - 1)
        if self.assumption == "any":
            highest[kinds % 2 == 0] = 0
        for look in range(looks):
            here = (look + 1) * ARRIVALS
            rungs = np.minimum((look - arrival[:here]) // CLIMB, highest[:here])
            yield tally_of(mechanism.specification, Drawn(drawn.answers[:, :here], drawn.groups[:here]), rungs)


def watched() -> Iterator[str]:
    """Yield the mechanisms that may have alert rules."""
    for name in names():
        if all(quantity.always_valid for quantity in example_of(name).build().specification.quantities):
            yield name
